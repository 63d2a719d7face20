//! A vocabulary: which tokens a text starts with, and which two tokens merge to a third.

use std::sync::OnceLock;

use tokengate_tables as tables;

#[cfg(feature = "llama3")]
use super::unruly::{self, Unruly};
use super::{Encoding, trie::Trie, work};

/// Ranks need 18 bits of a merge; most of the rest, the mark, tells most other pairs apart.
const RANK: u32 = (1 << 18) - 1;
/// Another merge of the same slot is in [`Vocabulary::others`].
const HAS_OTHER: u32 = 1 << 31;
const MARK: u32 = !(RANK | HAS_OTHER);

#[derive(Debug)]
pub struct Vocabulary {
    pub trie: Trie,
    tables: tables::Vocabulary,
    /// The last merge per slot, which is the hash of its parts. 0 is none: the token 0 is a byte, no merge.
    merges: Vec<u32>,
    shift: u32,
    /// Per rank: the merge before it of the same slot.
    others: Vec<u32>,
    #[cfg(feature = "llama3")]
    unruly: Unruly,
}

impl Vocabulary {
    /// The first call takes a few milliseconds.
    pub fn of(encoding: Encoding) -> &'static Self {
        Self::cell(encoding).get_or_init(|| Self::new(tables_of(encoding)))
    }

    /// The vocabulary, if it was made already.
    pub fn loaded(encoding: Encoding) -> Option<&'static Self> {
        Self::cell(encoding).get()
    }

    fn cell(encoding: Encoding) -> &'static OnceLock<Self> {
        static O200K: OnceLock<Vocabulary> = OnceLock::new();
        static CL100K: OnceLock<Vocabulary> = OnceLock::new();
        #[cfg(feature = "llama3")]
        static LLAMA3: OnceLock<Vocabulary> = OnceLock::new();
        #[cfg(feature = "qwen2")]
        static QWEN2: OnceLock<Vocabulary> = OnceLock::new();
        #[cfg(feature = "deepseek_v3")]
        static DEEPSEEK_V3: OnceLock<Vocabulary> = OnceLock::new();
        #[cfg(feature = "mistral")]
        static MISTRAL: OnceLock<Vocabulary> = OnceLock::new();
        match encoding {
            Encoding::O200kBase => &O200K,
            Encoding::Cl100kBase => &CL100K,
            #[cfg(feature = "llama3")]
            Encoding::Llama3 => &LLAMA3,
            #[cfg(feature = "qwen2")]
            Encoding::Qwen2 => &QWEN2,
            #[cfg(feature = "deepseek_v3")]
            Encoding::DeepSeekV3 => &DEEPSEEK_V3,
            #[cfg(feature = "mistral")]
            Encoding::Mistral => &MISTRAL,
        }
    }

    fn new(tables: tables::Vocabulary) -> Self {
        let tokens = tables.split_high.len();
        let trie = Trie::new(&tables);
        // A slot has less than one merge on average.
        let slots = tokens.next_power_of_two();
        let mut vocabulary = Self {
            trie,
            tables,
            merges: vec![0; slots],
            shift: 64 - slots.trailing_zeros(),
            others: Vec::new(),
            #[cfg(feature = "llama3")]
            unruly: Unruly::new(&tables),
        };
        vocabulary.others = (0..tokens as u32).map(|rank| vocabulary.insert(rank)).collect();
        vocabulary
    }

    /// Makes the merge to a token the first of its slot and returns the one that was. Nothing here depends on
    /// what is in the slot, so that the processor need not wait for it.
    #[inline(always)]
    fn insert(&mut self, rank: u32) -> u32 {
        let (left, right) = self.parts(rank);
        let (slot, mark) = self.place(left, right);
        match self.merges.get_mut(slot) {
            Some(first) if left != rank => {
                let has_other = u32::from(*first != 0) << HAS_OTHER.trailing_zeros();
                std::mem::replace(first, has_other | mark | rank)
            }
            _ => 0,
        }
    }

    /// The slot of a pair, and the mark.
    #[inline(always)]
    fn place(&self, left: u32, right: u32) -> (usize, u32) {
        let hash = (u64::from(left) << 18 | u64::from(right)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((hash >> self.shift) as usize, (hash >> 14) as u32 & MARK)
    }

    /// The token that two tokens merge to, if they are the parts whose merge makes it.
    #[inline]
    pub fn merged(&self, left: u32, right: u32) -> Option<u32> {
        let (slot, mark) = self.place(left, right);
        let mut merge = self.merges.get(slot).copied().filter(|&first| first != 0)?;
        loop {
            work::step();
            let rank = merge & RANK;
            if merge & MARK == mark && self.parts(rank) == (left, right) {
                return Some(rank);
            }
            if merge & HAS_OTHER == 0 {
                return None;
            }
            merge = self.others.get(rank as usize).copied()?;
        }
    }

    /// The two tokens whose merge makes this one; a byte is its own parts.
    #[inline]
    pub fn parts(&self, rank: u32) -> (u32, u32) {
        let pair = |pairs: &[[u8; 2]]| pairs.get(rank as usize).copied().unwrap_or_default();
        let ([left_low, right_low], [left_middle, right_middle]) =
            (pair(self.tables.split_low), pair(self.tables.split_middle));
        let high = self.tables.split_high.get(rank as usize).copied().unwrap_or(0);
        (
            u32::from_le_bytes([left_low, left_middle, high & 0xf, 0]),
            u32::from_le_bytes([right_low, right_middle, high >> 4, 0]),
        )
    }

    /// Whether a whole piece is a token that no merges lead to.
    #[cfg(feature = "llama3")]
    pub fn is_alone(&self, piece: &[u8]) -> bool {
        self.unruly.is_alone(piece)
    }

    /// Whether the merges of the two tokens' bytes, lowest rank first, leave just these two tokens.
    ///
    /// Takes their merges back, latest first; in between, a merge across the cut would have come first if
    /// its rank is lower than that of the merge taken back last. At equal ranks the left one comes first.
    #[inline]
    pub fn stay_apart(&self, mut left: u32, mut right: u32) -> bool {
        #[cfg(feature = "llama3")]
        if self.unruly.is_disordered(left) || self.unruly.is_disordered(right) {
            return unruly::stay_apart(self, left, right);
        }
        let mut limit = u32::MAX;
        loop {
            if self.merged(left, right).is_some_and(|merged| merged < limit) {
                return false;
            }
            if left > right {
                limit = left;
                left = self.parts(left).1;
                if left == limit {
                    limit = right + 1;
                    right = self.parts(right).0;
                    if right + 1 == limit {
                        return true;
                    }
                }
            } else {
                limit = right + 1;
                right = self.parts(right).0;
                if right + 1 == limit {
                    limit = left;
                    left = self.parts(left).1;
                    if left == limit {
                        return true;
                    }
                }
            }
        }
    }
}

fn tables_of(encoding: Encoding) -> tables::Vocabulary {
    match encoding {
        Encoding::O200kBase => tables::O200K,
        Encoding::Cl100kBase => tables::CL100K,
        #[cfg(feature = "llama3")]
        Encoding::Llama3 => tables::LLAMA3,
        #[cfg(feature = "qwen2")]
        Encoding::Qwen2 => tables::QWEN2,
        #[cfg(feature = "deepseek_v3")]
        Encoding::DeepSeekV3 => tables::DEEPSEEK_V3,
        #[cfg(feature = "mistral")]
        Encoding::Mistral => tables::MISTRAL,
    }
}
