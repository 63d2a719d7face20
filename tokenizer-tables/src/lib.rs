//! Vocabularies and Unicode classes as flat arrays that are ready where they lie.
#![no_std]
#![deny(unsafe_code)]

/// A vocabulary. Tokens are named by their rank.
#[derive(Clone, Copy, Debug)]
pub struct Vocabulary {
    /// The trie of all tokens as a double array: per unit its kind and, above it, the highest bits of its rank.
    /// [`unit`] says what the kinds are. Every unit comes after the units of its children, the root is the last
    /// one. A node's child for a byte is the unit at its base less the byte, the unit after its base has its
    /// rank if a token ends there and others go on, no unit is used twice, no base either.
    pub units: &'static [u8],
    /// Per unit that is a node: the byte that leads to it.
    pub labels: &'static [u8],
    /// Per unit that has a rank: its lower bits; first the low bytes of all, then the high ones.
    pub ranks: &'static [u8],
    /// Per unit that is a node with children: the unit of the child of the lowest byte, less the same of the node
    /// before that is also [`unit::SINGLE`], or also is not; two's complement, first the low bytes of all, then
    /// the high ones.
    pub places: &'static [u8],
    /// Per unit of the kind [`unit::TAIL`]: how many bytes go on to the token's end.
    pub tail_lengths: &'static [u8],
    /// Likewise, the rank; first the lowest bytes of all, then the higher, then the highest ones.
    pub tail_ranks: &'static [u8],
    /// The bytes themselves.
    pub tails: &'static [u8],
    /// The ranks of the two parts whose merge is the token, per rank: their lower 16 bits, the left part's first,
    /// each with the low byte first. They are often needed together and lie so.
    pub parts_low: &'static [[u8; 4]],
    /// The highest bits: the left part's in the low half.
    pub parts_high: &'static [u8],
    /// Ranks of the tokens whose bytes do not merge in the order of the ranks; four bytes each, the lowest first.
    #[cfg(feature = "llama3")]
    pub disordered: &'static [u8],
    /// Tokens that no merges lead to: only a whole piece is one. They have no rank. A length and so many bytes
    /// each, sorted.
    #[cfg(feature = "llama3")]
    pub alone: &'static [u8],
}

macro_rules! vocabulary {
    ($name:literal) => {
        Vocabulary {
            units: include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".units")),
            labels: include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".labels")),
            ranks: include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".ranks")),
            places: include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".places")),
            tail_lengths: include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".tail_lengths")),
            tail_ranks: include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".tail_ranks")),
            tails: include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".tails")),
            parts_low: include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".low")).as_chunks().0,
            parts_high: include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".high")),
            #[cfg(feature = "llama3")]
            disordered: include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".disordered")),
            #[cfg(feature = "llama3")]
            alone: include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".alone")),
        }
    };
}

pub static O200K: Vocabulary = vocabulary!("o200k");
pub static CL100K: Vocabulary = vocabulary!("cl100k");
#[cfg(feature = "llama3")]
pub static LLAMA3: Vocabulary = vocabulary!("llama3");
#[cfg(feature = "qwen2")]
pub static QWEN2: Vocabulary = vocabulary!("qwen2");
#[cfg(feature = "deepseek_v3")]
pub static DEEPSEEK_V3: Vocabulary = vocabulary!("deepseek_v3");
#[cfg(feature = "mistral")]
pub static MISTRAL: Vocabulary = vocabulary!("mistral");

/// The kinds of units of [`Vocabulary::units`].
pub mod unit {
    /// The bits of a unit that tell its kind. Those above are the rank's from the 17th on.
    pub const KIND: u8 = 7;
    pub const KIND_BITS: u32 = 3;

    /// Nothing.
    pub const EMPTY: u8 = 0;
    /// The rank of a node with children.
    pub const VALUE: u8 = 1;
    /// A node without children; it has the rank of the token that ends there.
    pub const LEAF: u8 = 2;
    /// A node that only one token goes through, and does not end there.
    pub const TAIL: u8 = 3;
    /// A node with one child where no token ends.
    pub const SINGLE: u8 = 4;
    /// A node with more children where no token ends.
    pub const INNER: u8 = 5;
    /// A node with children where a token ends.
    pub const VALUED: u8 = 6;
}

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

/// What deepseek_v3's split pattern tells apart.
#[cfg(feature = "deepseek_v3")]
pub mod kind {
    /// Controls and what is no character.
    pub const OTHER: u8 = 0;
    /// L, M.
    pub const WORD: u8 = 1;
    /// P, S.
    pub const SYMBOL: u8 = 2;
    /// Of the pattern's range of kana and ideographs: L, M.
    pub const CJK_WORD: u8 = 3;
    /// P, S.
    pub const CJK_SYMBOL: u8 = 4;
    /// What is no character.
    pub const CJK_OTHER: u8 = 9;
    /// N.
    pub const NUMBER: u8 = 5;
    /// White space but for the two below.
    pub const SPACE: u8 = 6;
    /// CR, LF.
    pub const NEWLINE: u8 = 7;
    /// U+0020.
    pub const BLANK: u8 = 8;

    /// Per 128 code points: the number of their block in [`BLOCKS`].
    pub static INDEX: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/kind.index"));
    /// A kind per code point, in blocks of 128.
    pub static BLOCKS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/kind.blocks"));
}
