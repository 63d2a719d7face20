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
        // The tables have as much of each as is taken here; less would only leave tokens out.
        let mut set = |at: u32, bits: u32| {
            if let Some(unit) = units.get_mut(at as usize) {
                *unit = bits;
            }
        };
        let mut labels = tables.labels.iter();
        let mut ranks = ranks(tables.ranks);
        // Each node's children are the next nodes that no node before it has.
        let mut children = Nodes::new(tables);
        if let Some(root) = children.next() {
            set(0, VALUE | root.base << PAYLOAD_SHIFT);
        }
        for parent in Nodes::new(tables).filter(|parent| parent.count > 0) {
            for (&label, child) in labels.by_ref().take(parent.count).zip(&mut children) {
                let mut unit = u32::from(label);
                if child.count == 0 {
                    unit |= LEAF | ranks.next().unwrap_or(0) << PAYLOAD_SHIFT;
                } else {
                    unit |= child.base << PAYLOAD_SHIFT;
                    if child.has_value {
                        unit |= HAS_VALUE;
                        set(child.base, VALUE | ranks.next().unwrap_or(0) << PAYLOAD_SHIFT);
                    }
                }
                set(parent.base + 1 + u32::from(label), unit);
            }
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

/// The nodes of the tables, breadth first.
struct Nodes {
    counts: std::slice::Iter<'static, u8>,
    /// The children's, from the next node on.
    labels: &'static [u8],
    values: std::slice::Iter<'static, u8>,
    low: std::slice::Iter<'static, u8>,
    high: std::slice::Iter<'static, u8>,
    /// The last base plus label of a node that needs one unit, and of one that needs more.
    last_single: u32,
    last: u32,
}

struct Node {
    count: usize,
    has_value: bool,
    base: u32,
}

impl Nodes {
    fn new(tables: &Vocabulary) -> Self {
        let (low, high) = tables.bases.split_at(tables.bases.len() / 2);
        Self {
            counts: tables.counts.iter(),
            labels: tables.labels,
            values: tables.values.iter(),
            low: low.iter(),
            high: high.iter(),
            last_single: 0,
            last: 0,
        }
    }
}

impl Iterator for Nodes {
    type Item = Node;

    #[inline(always)]
    fn next(&mut self) -> Option<Node> {
        let count = match *self.counts.next()? {
            0 => return Some(Node { count: 0, has_value: true, base: 0 }),
            // Only the root.
            u8::MAX => 256,
            count => usize::from(count),
        };
        let has_value = *self.values.next()? == 1;
        let step = i16::from_le_bytes([*self.low.next()?, *self.high.next()?]);
        let last = if count == 1 && !has_value { &mut self.last_single } else { &mut self.last };
        *last = last.wrapping_add_signed(step.into());
        let base = last.wrapping_sub((*self.labels.first()?).into());
        self.labels = self.labels.get(count..)?;
        Some(Node { count, has_value, base })
    }
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
