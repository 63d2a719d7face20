//! Vocabularies and Unicode classes as flat arrays that are ready where they lie.
#![no_std]
#![deny(unsafe_code)]

/// A vocabulary. Tokens are named by their rank.
#[derive(Clone, Copy, Debug)]
pub struct Vocabulary {
    /// The trie of all tokens, its nodes breadth first. Per node but the root: the byte that leads to it.
    pub labels: &'static [u8],
    /// Per node: how many children it has. The root's 255 are 256.
    pub counts: &'static [u8],
    /// Per node with children: whether a token ends there, 1 or 0.
    pub values: &'static [u8],
    /// Per node with children: its base in a double array plus its first child's byte, less the same of the
    /// node before that also needs one unit, or more than one; two's complement, first the low bytes of all, then the high ones. The child for a byte
    /// is the unit at base + 1 + byte, the unit at the base is for the rank if there is one, and no unit is
    /// used twice, no base either.
    pub bases: &'static [u8],
    /// Per node where a token ends: its rank; first the lowest bytes of all, then the higher, then the
    /// highest ones.
    pub ranks: &'static [u8],
    /// How many units the double array has.
    pub units: usize,
    /// The low bytes of the ranks of the two parts whose merge is the token, per rank.
    pub split_low: &'static [[u8; 2]],
    /// The next bytes.
    pub split_middle: &'static [[u8; 2]],
    /// The highest bits of both parts' ranks: the left part's in the low half.
    pub split_high: &'static [u8],
    /// Ranks of the tokens whose bytes do not merge in the order of the ranks; four bytes each, the lowest first.
    #[cfg(feature = "llama3")]
    pub disordered: &'static [u8],
    /// Tokens that no merges lead to: only a whole piece is one. They have no rank. A length and so many bytes
    /// each, sorted.
    #[cfg(feature = "llama3")]
    pub alone: &'static [u8],
}

const fn pairs(bytes: &'static [u8]) -> &'static [[u8; 2]] {
    bytes.as_chunks().0
}

/// Decimal digits.
const fn number(mut digits: &[u8]) -> usize {
    let mut number = 0;
    while let [digit, rest @ ..] = digits {
        number = number * 10 + (*digit - b'0') as usize;
        digits = rest;
    }
    number
}

macro_rules! vocabulary {
    ($name:literal) => {
        Vocabulary {
            labels: include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".labels")),
            counts: include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".counts")),
            values: include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".values")),
            bases: include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".bases")),
            ranks: include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".ranks")),
            units: number(include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".size"))),
            split_low: pairs(include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".low"))),
            split_middle: pairs(include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".middle"))),
            split_high: include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".high")),
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
