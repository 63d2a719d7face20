//! All tokens of a vocabulary in a double array: which of them a text starts with takes one load per byte.

use tokengate_tables::Vocabulary;

use super::work;

/// The byte that leads to the unit. No byte is `EMPTY`, where nothing is, or `VALUE`, where a rank is.
const LABEL: u32 = 0x1ff;
const EMPTY: u32 = 256;
const VALUE: u32 = 257;
/// A token ends here and none goes on: the payload is its rank.
const LEAF: u32 = 1 << 9;
/// A token ends here and others go on: its rank is the payload of the unit at the base.
const HAS_VALUE: u32 = 1 << 10;
/// Above: the rank, or the base. The child for a byte is the unit at base + 1 + byte.
const PAYLOAD_SHIFT: u32 = 11;

/// Bytes of the longest token.
const MAX_LENGTH: usize = 128;

#[derive(Debug)]
pub struct Trie {
    units: Vec<u32>,
}

impl Trie {
    pub fn new(tables: &Vocabulary) -> Self {
        let mut units = vec![EMPTY; tables.units];
        let mut labels = tables.labels.iter();
        let mut ranks = ranks(tables.ranks);
        let mut values = tables.values.iter();
        let mut steps = steps(tables.bases);
        let (mut last_single, mut last_first) = (0_u32, 0_u32);
        // The tables have as much of each as is taken here; less would only leave tokens out.
        let mut set = |at: u32, bits: u32| {
            if let Some(unit) = units.get_mut(at as usize) {
                *unit = bits;
            }
        };
        // Where the nodes lie whose turn has not come: the last level and the next.
        let mut queue = std::collections::VecDeque::from([(0, VALUE)]);
        for &count in tables.counts {
            let Some((at, label)) = queue.pop_front() else { break };
            if count == 0 {
                set(at, label | LEAF | ranks.next().unwrap_or(0) << PAYLOAD_SHIFT);
                continue;
            }
            let has_value = values.next() == Some(&1);
            let last = if count == 1 && !has_value { &mut last_single } else { &mut last_first };
            *last = last.wrapping_add_signed(steps.next().unwrap_or(0).into());
            let base = last.saturating_sub(labels.as_slice().first().copied().unwrap_or(0).into());
            if has_value {
                set(base, VALUE | ranks.next().unwrap_or(0) << PAYLOAD_SHIFT);
            }
            set(at, label | if has_value { HAS_VALUE } else { 0 } | base << PAYLOAD_SHIFT);
            let count = if count == u8::MAX { 256 } else { usize::from(count) };
            queue.extend(
                labels.by_ref().take(count).map(|&label| (base + 1 + u32::from(label), label.into())),
            );
        }
        Self { units }
    }

    #[inline(always)]
    fn unit(&self, at: u32) -> u32 {
        self.units.get(at as usize).copied().unwrap_or(EMPTY)
    }

    /// The token of a byte.
    pub fn byte(&self, byte: u8) -> u32 {
        let unit = self.unit((self.unit(0) >> PAYLOAD_SHIFT) + 1 + u32::from(byte));
        self.rank(unit)
    }

    /// The rank of the token that ends at a unit.
    #[inline(always)]
    fn rank(&self, unit: u32) -> u32 {
        let unit = if unit & LEAF != 0 { unit } else { self.unit(unit >> PAYLOAD_SHIFT) };
        unit >> PAYLOAD_SHIFT
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
}

fn steps(bytes: &[u8]) -> impl Iterator<Item = i16> {
    let (low, high) = bytes.split_at(bytes.len() / 2);
    low.iter().zip(high).map(|(&low, &high)| i16::from_le_bytes([low, high]))
}

fn ranks(bytes: &[u8]) -> impl Iterator<Item = u32> {
    let (low, rest) = bytes.split_at(bytes.len() / 3);
    let (middle, high) = rest.split_at(rest.len() / 2);
    low.iter()
        .zip(middle)
        .zip(high)
        .map(|((&low, &middle), &high)| u32::from_le_bytes([low, middle, high, 0]))
}

/// The tokens that some bytes start with. There are no more of them than the longest token has bytes.
#[derive(Debug)]
pub struct Prefixes {
    /// The unit where a token ends, and the token's length.
    ends: [(u32, u32); MAX_LENGTH],
    count: usize,
}

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
    pub fn pop(&mut self, trie: &Trie) -> Option<(u32, usize)> {
        self.count = self.count.checked_sub(1)?;
        let (unit, length) = self.ends.get(self.count).copied()?;
        Some((trie.rank(unit), length as usize))
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
