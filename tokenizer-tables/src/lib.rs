//! Vocabularies and Unicode classes as flat arrays that are ready where they lie.
#![no_std]
#![deny(unsafe_code)]

/// A vocabulary. Tokens are named by their rank.
#[derive(Clone, Copy, Debug)]
pub struct Vocabulary {
    /// The trie of all tokens, a double array of little-endian units; unit 0 is its root.
    ///
    /// Bits 0–8: the label, that is the byte that leads here; 256 where nothing is, 257 for a value.
    /// Bit 9: a token ends here and no other goes on; bits 11–31 are its rank.
    /// Bit 10: a token ends here and others go on; its rank is in bits 11–31 of the unit at the base.
    /// Bits 11–31: the base; the child for a byte is the unit at base + 1 + byte.
    pub units: &'static [[u8; 4]],
    /// The low 16 bits of the ranks of the two parts whose merge is the token, little endian.
    pub split_low: &'static [[u8; 4]],
    /// Their higher bits: the left part's in the low half.
    pub split_high: &'static [u8],
}

const fn words(bytes: &'static [u8]) -> &'static [[u8; 4]] {
    bytes.as_chunks().0
}

pub static O200K: Vocabulary = Vocabulary {
    units: words(include_bytes!(concat!(env!("OUT_DIR"), "/o200k.units"))),
    split_low: words(include_bytes!(concat!(env!("OUT_DIR"), "/o200k.low"))),
    split_high: include_bytes!(concat!(env!("OUT_DIR"), "/o200k.high")),
};

pub static CL100K: Vocabulary = Vocabulary {
    units: words(include_bytes!(concat!(env!("OUT_DIR"), "/cl100k.units"))),
    split_low: words(include_bytes!(concat!(env!("OUT_DIR"), "/cl100k.low"))),
    split_high: include_bytes!(concat!(env!("OUT_DIR"), "/cl100k.high")),
};

/// What the split patterns tell apart.
pub mod class {
    /// Everything else: punctuation, symbols, controls.
    pub const OTHER: u8 = 0;
    /// Lu, Lt.
    pub const UPPER: u8 = 1;
    /// Ll.
    pub const LOWER: u8 = 2;
    /// Lm, Lo.
    pub const LETTER: u8 = 3;
    /// M.
    pub const MARK: u8 = 4;
    /// N.
    pub const NUMBER: u8 = 5;
    /// White space but for the two below.
    pub const SPACE: u8 = 6;
    /// CR, LF.
    pub const NEWLINE: u8 = 7;
    /// U+0020.
    pub const BLANK: u8 = 8;

    /// Per 128 code points: the number of their block in [`BLOCKS`].
    pub static INDEX: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/class.index"));
    /// A class per code point, in blocks of 128.
    pub static BLOCKS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/class.blocks"));
}
