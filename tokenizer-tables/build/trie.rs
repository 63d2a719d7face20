//! All tokens as a trie in a double array, unit by unit; `src/lib.rs` says how.

use std::{cmp::Reverse, collections::BinaryHeap};

/// Where a place is looked for, counted from the end.
const WINDOW: usize = 2_048;
/// What a base can be; a unit has no more bits for it.
const MAX_UNITS: usize = 1 << 20;
/// Likewise for where a tail starts.
const MAX_TAILS: usize = 1 << 24;

#[derive(Default)]
pub struct Trie {
    pub units: Vec<u8>,
    pub labels: Vec<u8>,
    /// In halves: the lower bytes, then the higher ones.
    pub ranks: Vec<u8>,
    /// In halves.
    pub places: Vec<u8>,
    pub tail_lengths: Vec<u8>,
    /// In thirds.
    pub tail_ranks: Vec<u8>,
    pub tails: Vec<u8>,
}

type Tokens<'a> = &'a [(&'a [u8], u32)];

/// A unit as it is before its place is known as a number from the other end.
#[derive(Clone, Copy)]
enum Unit<'a> {
    Empty,
    Value(u32),
    Leaf(u8, u32),
    Tail(u8, &'a [u8], u32),
    /// The label, the first child's place, and whether it is the only child and no token ends here.
    Inner(u8, usize, bool),
    Valued(u8, usize),
}

pub fn trie(tokens: &[Vec<u8>]) -> Result<Trie, String> {
    let mut sorted: Vec<(&[u8], u32)> = tokens.iter().map(Vec::as_slice).zip(0..).collect();
    sorted.sort_unstable();
    serialize(&lay_out(&sorted)?)
}

/// Every node lies before its children, and the next to find places for its children is always the first in the
/// array, so that places mostly go up as the nodes do.
fn lay_out<'a>(sorted: Tokens<'a>) -> Result<Vec<Unit<'a>>, String> {
    let mut array = Array { taken: vec![true], first_free: 1, bases: Vec::new() };
    let mut units = vec![Unit::Empty];
    let mut queue = BinaryHeap::from([(Reverse(0), 0, 0, sorted)]);
    while let Some((Reverse(at), depth, own_label, range)) = queue.pop() {
        let (value, rest) = match range {
            [(token, rank), rest @ ..] if token.len() == depth => (Some(*rank), rest),
            _ => (None, range),
        };
        let unit = match (value, rest) {
            (Some(rank), []) => Unit::Leaf(own_label, rank),
            (None, [(token, rank)]) => Unit::Tail(own_label, token.get(depth..).unwrap_or(&[]), *rank),
            _ => {
                let label = |(token, _): &(&[u8], u32)| token.get(depth).copied().unwrap_or_default();
                let children: Vec<(u8, Tokens)> = rest
                    .chunk_by(|a, b| label(a) == label(b))
                    .filter_map(|child| Some((label(child.first()?), child)))
                    .collect();
                let labels: Vec<u8> = children.iter().map(|(label, _)| *label).collect();
                let base = array.place(&labels, value.is_some(), at)?;
                let place = |label: u8| base + 1 + usize::from(label);
                queue.extend(
                    children.iter().map(|(label, child)| (Reverse(place(*label)), depth + 1, *label, *child)),
                );
                let first = place(*labels.first().ok_or("no child")?);
                match value {
                    None => Unit::Inner(own_label, first, labels.len() == 1),
                    Some(rank) => {
                        set(&mut units, base, Unit::Value(rank), Unit::Empty);
                        Unit::Valued(own_label, first)
                    }
                }
            }
        };
        set(&mut units, at, unit, Unit::Empty);
    }
    if units.len() > MAX_UNITS {
        return Err(format!("{} units are too many", units.len()));
    }
    Ok(units)
}

/// From the last unit to the first. The numbers are those of `src/lib.rs`.
fn serialize(units: &[Unit]) -> Result<Trie, String> {
    let mut trie = Trie::default();
    let (mut ranks, mut places, mut tail_ranks) = (Vec::new(), Vec::new(), Vec::new());
    let (mut last_single, mut last) = (0, 0);
    for unit in units.iter().rev() {
        let mut rank_bits = |rank: u32| {
            ranks.push(rank);
            u8::try_from(rank >> 16 << 3).map_err(|error| error.to_string())
        };
        let mut step = |last: &mut usize, first: usize| {
            let place = units.len() - 1 - first;
            let step = place as i64 - *last as i64;
            *last = place;
            i16::try_from(step).map(|step| places.push(step)).map_err(|error| error.to_string())
        };
        let (bits, label) = match *unit {
            Unit::Empty => (0, None),
            Unit::Value(rank) => (1 | rank_bits(rank)?, None),
            Unit::Leaf(label, rank) => (2 | rank_bits(rank)?, Some(label)),
            Unit::Tail(label, tail, rank) => {
                trie.tail_lengths.push(u8::try_from(tail.len()).map_err(|error| error.to_string())?);
                trie.tails.extend(tail);
                tail_ranks.push(rank);
                (3, Some(label))
            }
            Unit::Inner(label, first, true) => {
                step(&mut last_single, first)?;
                (4, Some(label))
            }
            Unit::Inner(label, first, false) => {
                step(&mut last, first)?;
                (5, Some(label))
            }
            Unit::Valued(label, first) => {
                step(&mut last, first)?;
                (6, Some(label))
            }
        };
        trie.units.push(bits);
        trie.labels.extend(label);
    }
    if trie.tails.len() >= MAX_TAILS {
        return Err(format!("{} bytes of tails are too many", trie.tails.len()));
    }
    trie.ranks = planes(&ranks, |rank: &u32, byte| rank.to_le_bytes().get(byte).copied(), 2);
    trie.places = planes(&places, |step: &i16, byte| step.to_le_bytes().get(byte).copied(), 2);
    trie.tail_ranks = planes(&tail_ranks, |rank: &u32, byte| rank.to_le_bytes().get(byte).copied(), 3);
    Ok(trie)
}

/// First all lowest bytes, then the next: each compresses better among its like.
fn planes<T>(values: &[T], byte: impl Fn(&T, usize) -> Option<u8>, bytes: usize) -> Vec<u8> {
    (0..bytes)
        .flat_map(|plane| values.iter().filter_map(|value| byte(value, plane)).collect::<Vec<u8>>())
        .collect()
}

struct Array {
    taken: Vec<bool>,
    first_free: usize,
    /// No two nodes have the same base: the label alone then tells whose child a unit is.
    bases: Vec<bool>,
}

impl Array {
    fn is_free(&self, at: usize) -> bool {
        self.taken.get(at) != Some(&true)
    }

    /// The first base where the value, if any, and all children find their unit free, and the children lie after
    /// their parent.
    fn place(&mut self, labels: &[u8], has_value: bool, parent: usize) -> Result<usize, String> {
        // Few gaps far behind the end can still be filled; looking there would take longest.
        self.first_free = self.first_free.max(self.taken.len().saturating_sub(WINDOW)).max(parent + 1);
        while !self.is_free(self.first_free) {
            self.first_free += 1;
        }
        let lowest = if has_value { 0 } else { usize::from(*labels.first().ok_or("no child")?) + 1 };
        let fits = |base: &usize| {
            self.bases.get(*base) != Some(&true)
                && (!has_value || self.is_free(*base))
                && labels.iter().all(|label| self.is_free(base + 1 + usize::from(*label)))
        };
        let base =
            (self.first_free.saturating_sub(lowest)..).find(fits).ok_or_else(|| "no room".to_owned())?;
        set(&mut self.bases, base, true, false);
        if has_value {
            set(&mut self.taken, base, true, false);
        }
        for label in labels {
            set(&mut self.taken, base + 1 + usize::from(*label), true, false);
        }
        Ok(base)
    }
}

fn set<T: Clone>(places: &mut Vec<T>, at: usize, value: T, empty: T) {
    if places.len() <= at {
        places.resize(at + 1, empty);
    }
    if let Some(place) = places.get_mut(at) {
        *place = value;
    }
}
