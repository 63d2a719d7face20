//! All tokens as a trie, breadth first, and where its nodes lie in a double array; `src/lib.rs` says how.

use std::collections::VecDeque;

/// Room for the children of the last base.
const ALPHABET: usize = 257;
/// Where a place is looked for, counted from the end.
const WINDOW: usize = 2_048;

#[derive(Default)]
pub struct Trie {
    pub labels: Vec<u8>,
    pub counts: Vec<u8>,
    pub values: Vec<u8>,
    /// In halves: the lower bytes, then the higher ones.
    pub bases: Vec<u8>,
    /// In thirds.
    pub ranks: Vec<u8>,
    pub units: usize,
}

pub fn trie(tokens: &[Vec<u8>]) -> Result<Trie, String> {
    let mut sorted: Vec<(&[u8], u32)> = tokens.iter().map(Vec::as_slice).zip(0..).collect();
    sorted.sort_unstable();
    let mut array = Array { taken: vec![true], first_free: 1, bases: Vec::new() };
    let mut trie = Trie::default();
    let (mut bases, mut ranks) = (Vec::new(), Vec::new());
    let (mut last_single, mut last_first) = (0, 0);
    let mut queue = VecDeque::from([(0, sorted.as_slice())]);
    while let Some((depth, range)) = queue.pop_front() {
        let (value, rest) = match range.split_first() {
            Some(((token, rank), rest)) if token.len() == depth => (Some(*rank), rest),
            _ => (None, range),
        };
        ranks.extend(value);
        let label = |(token, _): &(&[u8], u32)| token.get(depth).copied().unwrap_or_default();
        let children: Vec<&[(&[u8], u32)]> = rest.chunk_by(|a, b| label(a) == label(b)).collect();
        let labels: Vec<u8> = children.iter().filter_map(|child| child.first().map(label)).collect();
        // Only the root has 256.
        trie.counts.push(u8::try_from(labels.len()).unwrap_or(u8::MAX));
        if labels.is_empty() {
            continue;
        }
        trie.values.push(value.is_some().into());
        let base = array.place(&labels, value.is_some())?;
        // Nodes that need one unit fill the free ones one after the other: their step is mostly one.
        let last_first =
            if labels.len() == 1 && value.is_none() { &mut last_single } else { &mut last_first };
        let first = base + usize::from(labels.first().copied().unwrap_or_default());
        bases.push(i16::try_from(first as i64 - *last_first).map_err(|error| error.to_string())?);
        *last_first = first as i64;
        trie.labels.extend(&labels);
        queue.extend(children.into_iter().map(|child| (depth + 1, child)));
    }
    trie.bases = planes(&bases, |base: &i16, byte| base.to_le_bytes().get(byte).copied(), 2);
    trie.ranks = planes(&ranks, |rank: &u32, byte| rank.to_le_bytes().get(byte).copied(), 3);
    // The last base's children, there or not, must be inside.
    trie.units = array.taken.len() + ALPHABET;
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

    /// The first base where the value, if any, and all children find their unit free.
    fn place(&mut self, labels: &[u8], has_value: bool) -> Result<usize, String> {
        // Few gaps far behind the end can still be filled; looking there would take longest.
        self.first_free = self.first_free.max(self.taken.len().saturating_sub(WINDOW));
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
        take(&mut self.bases, base);
        if has_value {
            take(&mut self.taken, base);
        }
        for label in labels {
            take(&mut self.taken, base + 1 + usize::from(*label));
        }
        Ok(base)
    }
}

fn take(places: &mut Vec<bool>, at: usize) {
    if places.len() <= at {
        places.resize(at + 1, false);
    }
    if let Some(place) = places.get_mut(at) {
        *place = true;
    }
}
