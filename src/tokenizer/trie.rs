//! All tokens of a vocabulary in a double array: which of them a text starts with takes one load per byte.

use tokengate_tables::{Vocabulary, unit};

use super::work;

/// The byte that leads to the unit, and that one does.
const LABEL: u32 = 0x1ff;
const IS_CHILD: u32 = 1 << 8;
/// A token ends here and none goes on: the payload is its rank.
const LEAF: u32 = 1 << 9;
/// A token ends here and others go on: its rank is the payload of the unit after the base.
const HAS_VALUE: u32 = 1 << 10;
/// One token goes on from here: the payload is its place in `tails`.
const TAIL: u32 = 1 << 11;
/// Above: the rank, or the base. The child for a byte is the unit at the base less the byte.
const PAYLOAD_SHIFT: u32 = 12;

/// Bytes of the longest token.
const MAX_LENGTH: usize = 128;

#[derive(Debug)]
pub struct Trie {
    units: Vec<u32>,
    root: u32,
    tails: Vec<Tail>,
    tail_bytes: &'static [u8],
}

/// How the only token that goes on from a node ends.
#[derive(Clone, Copy, Debug)]
struct Tail {
    rank: u32,
    /// Where its bytes start, and above 24 bits how many there are.
    bytes: u32,
}

impl Trie {
    pub fn new(tables: &Vocabulary) -> Self {
        let units = units(tables);
        let root = units.last().map_or(0, |root| root >> PAYLOAD_SHIFT);
        Self { units, root, tails: tails(tables), tail_bytes: tables.tails }
    }

    #[inline(always)]
    fn unit(&self, at: u32) -> u32 {
        self.units.get(at as usize).copied().unwrap_or(0)
    }

    #[inline(always)]
    fn child(&self, base: u32, byte: u8) -> u32 {
        self.unit(base.wrapping_sub(byte.into()))
    }

    /// The token of a byte.
    pub fn byte(&self, byte: u8) -> u32 {
        self.rank(self.child(self.root, byte))
    }

    /// The rank of the token that ends at a unit.
    #[inline(always)]
    fn rank(&self, unit: u32) -> u32 {
        let unit = if unit & LEAF != 0 { unit } else { self.unit((unit >> PAYLOAD_SHIFT) + 1) };
        unit >> PAYLOAD_SHIFT
    }

    /// Finds all tokens that the bytes start with. At least the first byte is one.
    #[inline(always)]
    pub fn prefixes(&self, bytes: &[u8], found: &mut Prefixes) {
        found.count = 0;
        let mut base = self.root;
        for (depth, &byte) in bytes.iter().enumerate() {
            work::step();
            let unit = self.child(base, byte);
            if unit & LABEL != IS_CHILD | u32::from(byte) {
                break;
            }
            if unit & (LEAF | HAS_VALUE | TAIL) != 0 {
                if unit & TAIL != 0 {
                    self.tail(unit, depth + 1, bytes, found);
                    break;
                }
                found.push(unit, depth + 1);
                if unit & LEAF != 0 {
                    break;
                }
            }
            base = unit >> PAYLOAD_SHIFT;
        }
    }

    /// The token that goes on from a unit, if the bytes do.
    #[inline(always)]
    fn tail(&self, unit: u32, depth: usize, bytes: &[u8], found: &mut Prefixes) {
        let Some(tail) = self.tails.get((unit >> PAYLOAD_SHIFT) as usize) else { return };
        let (start, length) = ((tail.bytes & 0xff_ffff) as usize, (tail.bytes >> 24) as usize);
        let (Some(tail_bytes), Some(rest)) =
            (self.tail_bytes.get(start..start + length), bytes.get(depth..depth + length))
        else {
            return;
        };
        let is_equal = |(one, other)| {
            work::step();
            one == other
        };
        if tail_bytes.iter().zip(rest).all(is_equal) {
            found.push(LEAF | tail.rank << PAYLOAD_SHIFT, depth + length);
        }
    }
}

/// How a kind of unit is made, without a branch: they come in no order that could be foreseen. The masks are all
/// ones or zero.
#[derive(Clone, Copy)]
struct Kind {
    flags: u32,
    is_child: u32,
    has_rank: u32,
    is_tail: u32,
    is_single: u32,
    is_inner: u32,
}

const KINDS: [Kind; 1 << unit::KIND_BITS] =
    [kind(0), kind(1), kind(2), kind(3), kind(4), kind(5), kind(6), kind(7)];

const fn kind(kind: u8) -> Kind {
    let none = Kind { flags: 0, is_child: 0, has_rank: 0, is_tail: 0, is_single: 0, is_inner: 0 };
    let child = Kind { flags: IS_CHILD, is_child: !0, ..none };
    match kind {
        unit::VALUE => Kind { has_rank: !0, ..none },
        unit::LEAF => Kind { flags: IS_CHILD | LEAF, has_rank: !0, ..child },
        unit::TAIL => Kind { flags: IS_CHILD | TAIL, is_tail: !0, ..child },
        unit::SINGLE => Kind { is_single: !0, ..child },
        unit::INNER => Kind { is_inner: !0, ..child },
        unit::VALUED => Kind { flags: IS_CHILD | HAS_VALUE, is_inner: !0, ..child },
        _ => none,
    }
}

fn units(tables: &Vocabulary) -> Vec<u32> {
    let [rank_low, rank_high] = planes(tables.ranks);
    let [place_low, place_high] = planes(tables.places);
    // The tables have as much of each as is taken here; less would only leave tokens out.
    let byte = |plane: &[u8], at: u32| plane.get(at as usize).copied().unwrap_or(0);
    let mut units = vec![0_u32; tables.units.len()];
    let (mut children, mut ranks, mut tails, mut places) = (0_u32, 0_u32, 0_u32, 0_u32);
    let (mut single, mut inner) = (0_u32, 0_u32);
    for (at, &bits) in tables.units.iter().enumerate() {
        let kind = KINDS.get(usize::from(bits & unit::KIND)).copied().unwrap_or(kind(unit::EMPTY));
        let label = u32::from(byte(tables.labels, children));
        let rank =
            u32::from_le_bytes([byte(rank_low, ranks), byte(rank_high, ranks), bits >> unit::KIND_BITS, 0]);
        let step = i16::from_le_bytes([byte(place_low, places), byte(place_high, places)]) as u32;
        single = single.wrapping_add(step & kind.is_single);
        inner = inner.wrapping_add(step & kind.is_inner);
        // The child is there already, and so is its label.
        let place = single & kind.is_single | inner & kind.is_inner;
        let base = place + (units.get(place as usize).copied().unwrap_or(0) & 0xff);
        let has_place = kind.is_single | kind.is_inner;
        let payload = rank & kind.has_rank | tails & kind.is_tail | base & has_place;
        if let Some(unit) = units.get_mut(at) {
            *unit = kind.flags | label & kind.is_child | payload << PAYLOAD_SHIFT;
        }
        children += kind.is_child & 1;
        ranks += kind.has_rank & 1;
        tails += kind.is_tail & 1;
        places += has_place & 1;
    }
    units
}

fn tails(tables: &Vocabulary) -> Vec<Tail> {
    let [low, middle, high] = planes(tables.tail_ranks);
    let ranks = low.iter().zip(middle).zip(high);
    let mut start = 0;
    tables
        .tail_lengths
        .iter()
        .zip(ranks)
        .map(|(&length, ((&low, &middle), &high))| {
            let rank = u32::from_le_bytes([low, middle, high, 0]);
            let tail = Tail { rank, bytes: start | u32::from(length) << 24 };
            start += u32::from(length);
            tail
        })
        .collect()
}

/// Numbers whose first bytes come first, then their second ones, and so on.
fn planes<const N: usize>(bytes: &[u8]) -> [&[u8]; N] {
    let mut planes = bytes.chunks_exact((bytes.len() / N).max(1));
    std::array::from_fn(|_| planes.next().unwrap_or(&[]))
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
