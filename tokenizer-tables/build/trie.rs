//! All tokens as a trie in a double array; `src/lib.rs` says what a unit holds.

use std::collections::VecDeque;

const LEAF: u32 = 1 << 9;
const HAS_VALUE: u32 = 1 << 10;
const PAYLOAD_SHIFT: u32 = 11;
/// No byte has these labels.
const EMPTY: u32 = 256;
const VALUE: u32 = 257;
/// Room for the children of the last base.
const ALPHABET: usize = 257;
/// Where a place is looked for, counted from the end.
const WINDOW: usize = 2_048;

/// The units' bytes, little endian.
pub fn units(tokens: &[Vec<u8>]) -> Result<Vec<u8>, String> {
    let mut sorted: Vec<(&[u8], u32)> = tokens.iter().map(Vec::as_slice).zip(0..).collect();
    sorted.sort_unstable();
    let mut array = Array { units: vec![EMPTY; ALPHABET], first_free: 1, bases: Vec::new() };
    // Unit 0 is the root. Breadth first, so that the units of short prefixes are neighbours.
    let mut queue = VecDeque::from([(0, 0, sorted.as_slice())]);
    while let Some((unit, depth, range)) = queue.pop_front() {
        let (value, rest) = match range.split_first() {
            Some(((token, rank), rest)) if token.len() == depth => (Some(*rank), rest),
            _ => (None, range),
        };
        if let (Some(rank), []) = (value, rest) {
            array.or(unit, LEAF | rank << PAYLOAD_SHIFT)?;
            continue;
        }
        let label = |(token, _): &(&[u8], u32)| token.get(depth).copied().unwrap_or_default();
        let children: Vec<&[(&[u8], u32)]> = rest.chunk_by(|a, b| label(a) == label(b)).collect();
        let labels: Vec<u8> = children.iter().filter_map(|child| child.first().map(label)).collect();
        let base = array.place(&labels, value.is_some())?;
        let flag = if value.is_some() { HAS_VALUE } else { 0 };
        array.or(unit, flag | u32::try_from(base).map_err(|error| error.to_string())? << PAYLOAD_SHIFT)?;
        if let Some(rank) = value {
            array.set(base, VALUE | rank << PAYLOAD_SHIFT)?;
        }
        for (label, child) in labels.iter().zip(children) {
            let at = base + 1 + usize::from(*label);
            array.set(at, u32::from(*label))?;
            queue.push_back((at, depth + 1, child));
        }
    }
    array.set(0, array.get(0) & !0x1ff | VALUE)?;
    Ok(array.units.iter().flat_map(|unit| unit.to_le_bytes()).collect())
}

struct Array {
    units: Vec<u32>,
    first_free: usize,
    /// No two nodes have the same base: the label alone then tells whose child a unit is.
    bases: Vec<bool>,
}

impl Array {
    fn get(&self, at: usize) -> u32 {
        self.units.get(at).copied().unwrap_or(EMPTY)
    }

    fn is_free(&self, at: usize) -> bool {
        at > 0 && self.get(at) == EMPTY
    }

    fn set(&mut self, at: usize, unit: u32) -> Result<(), String> {
        // The last base's children, there or not, must be inside.
        if self.units.len() < at + ALPHABET {
            self.units.resize(at + ALPHABET, EMPTY);
        }
        *self.units.get_mut(at).ok_or("no such unit")? = unit;
        Ok(())
    }

    fn or(&mut self, at: usize, bits: u32) -> Result<(), String> {
        self.set(at, self.get(at) | bits)
    }

    /// The first base where the value, if any, and all children find their unit free.
    fn place(&mut self, labels: &[u8], has_value: bool) -> Result<usize, String> {
        // Few gaps far behind the end can still be filled; looking there would take longest.
        self.first_free = self.first_free.max(self.units.len().saturating_sub(ALPHABET + WINDOW));
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
        if self.bases.len() <= base {
            self.bases.resize(base + 1, false);
        }
        *self.bases.get_mut(base).ok_or("no such base")? = true;
        Ok(base)
    }
}
