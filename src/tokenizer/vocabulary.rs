//! A vocabulary: which tokens a text starts with, and which two tokens merge to a third.

use std::sync::OnceLock;

use tokengate_tables as tables;

use super::{Encoding, work};

const LABEL: u32 = 0x1ff;
const LEAF: u32 = 1 << 9;
const HAS_VALUE: u32 = 1 << 10;
const PAYLOAD_SHIFT: u32 = 11;

/// Ranks need 18 bits; the rest of a slot of [`Vocabulary::merges`] tells most other pairs apart.
const RANK: u32 = (1 << 18) - 1;

#[derive(Debug)]
pub struct Vocabulary {
    tables: tables::Vocabulary,
    /// The merged token per pair of parts, open addressing. 0 is free: the token 0 is a byte, no merge.
    merges: Vec<u32>,
    shift: u32,
}

impl Vocabulary {
    /// The first call takes a few milliseconds.
    pub fn of(encoding: Encoding) -> &'static Self {
        static O200K: OnceLock<Vocabulary> = OnceLock::new();
        static CL100K: OnceLock<Vocabulary> = OnceLock::new();
        match encoding {
            Encoding::O200kBase => O200K.get_or_init(|| Self::new(tables::O200K)),
            Encoding::Cl100kBase => CL100K.get_or_init(|| Self::new(tables::CL100K)),
        }
    }

    fn new(tables: tables::Vocabulary) -> Self {
        let size = (tables.split_high.len() * 2).next_power_of_two();
        let mut vocabulary = Self { tables, merges: vec![0; size], shift: 64 - size.trailing_zeros() };
        for rank in 0..tables.split_high.len() as u32 {
            let (left, right) = vocabulary.parts(rank);
            if left != rank {
                vocabulary.insert(left, right, rank);
            }
        }
        vocabulary
    }

    fn insert(&mut self, left: u32, right: u32, rank: u32) {
        let (mut slot, mark) = self.place(left, right);
        let mask = self.merges.len() - 1;
        // There are more slots than tokens.
        while let Some(found) = self.merges.get_mut(slot & mask) {
            if *found == 0 {
                *found = mark | rank;
                return;
            }
            slot += 1;
        }
    }

    /// The first slot of a pair, and the bits that its slot has besides the rank.
    #[inline(always)]
    fn place(&self, left: u32, right: u32) -> (usize, u32) {
        let hash = (u64::from(left) << 18 | u64::from(right)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((hash >> self.shift) as usize, (hash >> 14) as u32 & !RANK)
    }

    /// The token that two tokens merge to, if they are the parts whose merge makes it.
    #[inline]
    fn merged(&self, left: u32, right: u32) -> Option<u32> {
        let (mut slot, mark) = self.place(left, right);
        let mask = self.merges.len() - 1;
        loop {
            work::step();
            let found = self.merges.get(slot & mask).copied().unwrap_or(0);
            if found == 0 {
                return None;
            }
            if found & !RANK == mark && self.parts(found & RANK) == (left, right) {
                return Some(found & RANK);
            }
            slot += 1;
        }
    }

    /// The two tokens whose merge makes this one; a byte is its own parts.
    #[inline]
    fn parts(&self, rank: u32) -> (u32, u32) {
        let low = self.tables.split_low.get(rank as usize).copied().unwrap_or([0; 4]);
        let high = u32::from(self.tables.split_high.get(rank as usize).copied().unwrap_or(0));
        let low = u32::from_le_bytes(low);
        (low & 0xffff | (high & 0xf) << 16, low >> 16 | high >> 4 << 16)
    }

    /// Finds all tokens that the bytes start with. At least the first byte is one.
    #[inline(always)]
    pub fn prefixes(&self, bytes: &[u8], found: &mut Prefixes) {
        found.count = 0;
        let mut unit = self.unit(0);
        for (depth, &byte) in bytes.iter().enumerate() {
            work::step();
            let next = self.unit((unit >> PAYLOAD_SHIFT) + 1 + u32::from(byte));
            if next & LABEL != u32::from(byte) {
                break;
            }
            if next & (LEAF | HAS_VALUE) != 0 {
                found.push(next, depth + 1);
                if next & LEAF != 0 {
                    break;
                }
            }
            unit = next;
        }
    }

    #[inline(always)]
    fn unit(&self, at: u32) -> u32 {
        self.tables.units.get(at as usize).map_or(LABEL, |unit| u32::from_le_bytes(*unit))
    }

    /// Whether the merges of the two tokens' bytes, lowest rank first, leave just these two tokens.
    ///
    /// Takes their merges back, latest first; in between, a merge across the cut would have come first if
    /// its rank is lower than that of the merge taken back last. At equal ranks the left one comes first.
    #[inline]
    pub fn stay_apart(&self, mut left: u32, mut right: u32) -> bool {
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

/// The tokens that some bytes start with. There are no more of them than the longest token has bytes.
#[derive(Debug)]
pub struct Prefixes {
    /// The unit where a token ends, and the token's length.
    ends: [(u32, u32); MAX_LENGTH],
    count: usize,
}

/// Bytes of the longest token.
const MAX_LENGTH: usize = 128;

impl Default for Prefixes {
    fn default() -> Self {
        Self { ends: [(0, 0); MAX_LENGTH], count: 0 }
    }
}

impl Prefixes {
    #[inline(always)]
    fn push(&mut self, unit: u32, length: usize) {
        if let Some(end) = self.ends.get_mut(self.count) {
            *end = (unit, length as u32);
            self.count += 1;
        }
    }

    /// Takes out the longest: its rank and its length.
    #[inline(always)]
    pub fn pop(&mut self, vocabulary: &Vocabulary) -> Option<(u32, usize)> {
        self.count = self.count.checked_sub(1)?;
        let (unit, length) = self.ends.get(self.count).copied()?;
        let unit = if unit & LEAF != 0 { unit } else { vocabulary.unit(unit >> PAYLOAD_SHIFT) };
        Some((unit >> PAYLOAD_SHIFT, length as usize))
    }

    /// Whether one of this length is there.
    pub fn has(&self, length: usize) -> bool {
        self.ends.iter().take(self.count).any(|(_, found)| *found as usize == length)
    }

    /// The length of the longest.
    #[inline(always)]
    pub fn longest(&self) -> usize {
        self.count
            .checked_sub(1)
            .and_then(|last| self.ends.get(last))
            .map_or(0, |(_, length)| *length as usize)
    }
}
