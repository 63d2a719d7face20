//! A vocabulary: which tokens a text starts with, and which two tokens merge to a third.

use std::sync::OnceLock;

use tokengate_tables as tables;

#[cfg(feature = "llama3")]
use super::unruly::{self, Unruly};
use super::{Encoding, trie::Trie, work};

/// Ranks need 18 bits of a merge.
const RANK: u32 = (1 << 18) - 1;
/// These tell most other pairs of the same slot apart.
const MARK: u32 = 0x3ff << MARK_SHIFT;
const MARK_SHIFT: u32 = 18;
/// A bit for each value of the mark's two lowest bits: a merge with that one is in [`Vocabulary::others`] behind
/// this one.
const OTHERS: u32 = 0xf << OTHERS_SHIFT;
const OTHERS_SHIFT: u32 = 28;

#[derive(Debug)]
pub struct Vocabulary {
    pub trie: Trie,
    tables: tables::Vocabulary,
    /// The merge of the lowest rank per slot, which is the hash of its parts. 0 is none: the token 0 is a byte,
    /// no merge.
    merges: Vec<u32>,
    shift: u32,
    /// Per rank, the last one first: the merge of the next higher rank in the same slot.
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
        let tokens = tables.parts_high.len();
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
        vocabulary.others = (0..tokens as u32).rev().map(|rank| vocabulary.insert(rank)).collect();
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
                let others = *first & OTHERS | u32::from(*first != 0) << others_bit(*first);
                std::mem::replace(first, others | mark | rank)
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
    #[inline(always)]
    pub fn merged(&self, left: u32, right: u32) -> Option<u32> {
        let (slot, mark) = self.place(left, right);
        work::step();
        // Mostly there is none. An empty slot has no bits that would need a branch of its own.
        let first = self.merges.get(slot).copied()?;
        if first & MARK == mark && self.makes(first, left, right) {
            return Some(first & RANK);
        }
        if has_other(first, mark) { self.merged_behind(first, left, right, mark) } else { None }
    }

    #[inline(always)]
    fn merged_behind(&self, mut merge: u32, left: u32, right: u32, mark: u32) -> Option<u32> {
        while has_other(merge, mark) {
            work::step();
            merge = self.others.get(self.others.len().wrapping_sub((merge & RANK) as usize + 1)).copied()?;
            if merge & MARK == mark && self.makes(merge, left, right) {
                return Some(merge & RANK);
            }
        }
        None
    }

    #[inline(always)]
    fn makes(&self, merge: u32, left: u32, right: u32) -> bool {
        let rank = merge & RANK;
        rank != 0 && self.parts(rank) == (left, right)
    }

    /// The two tokens whose merge makes this one; a byte is its own parts.
    #[inline]
    pub fn parts(&self, rank: u32) -> (u32, u32) {
        let low = self.tables.parts_low.get(rank as usize).copied().unwrap_or_default();
        let high = self.tables.parts_high.get(rank as usize).copied().unwrap_or(0);
        let (low, high) = (u32::from_le_bytes(low), u32::from(high));
        (low & 0xffff | (high & 0xf) << 16, low >> 16 | (high >> 4) << 16)
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

/// The bit of [`OTHERS`] for a merge's mark.
#[inline(always)]
fn others_bit(merge: u32) -> u32 {
    OTHERS_SHIFT + (merge >> MARK_SHIFT & 3)
}

/// Whether a merge of the mark may be behind this one.
#[inline(always)]
fn has_other(merge: u32, mark: u32) -> bool {
    merge >> others_bit(mark) & 1 != 0
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
