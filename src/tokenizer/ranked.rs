//! The merges as they are defined: lowest rank first, from the left. Slower for most texts than what
//! `merge` does, but it never goes the wrong way.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::{vocabulary::Vocabulary, work};

const NONE: u32 = u32::MAX;

/// Memory used again from text to text.
#[derive(Debug, Default)]
pub struct Ranked {
    parts: Vec<Part>,
    /// What can be merged: the token it would be above where the left part starts.
    queue: BinaryHeap<Reverse<u64>>,
}

/// A token so far; one per byte, those merged into the one before them being out of the list.
#[derive(Clone, Copy, Debug)]
struct Part {
    token: u32,
    before: u32,
    after: u32,
    /// What it would be together with the part after it.
    merged: u32,
}

impl Ranked {
    /// The tokens of the bytes, each with its length.
    pub fn tokens(&mut self, vocabulary: &Vocabulary, bytes: &[u8]) -> impl Iterator<Item = (u32, usize)> {
        self.merge(vocabulary, bytes.iter().map(|&byte| vocabulary.trie.byte(byte)))
    }

    /// The same for bytes given as tokens.
    pub fn merge(
        &mut self,
        vocabulary: &Vocabulary,
        bytes: impl IntoIterator<Item = u32>,
    ) -> impl Iterator<Item = (u32, usize)> {
        self.parts.clear();
        self.queue.clear();
        self.parts.extend(bytes.into_iter().zip(0..).map(|(token, at): (_, u32)| Part {
            token,
            before: at.wrapping_sub(1),
            after: at + 1,
            merged: NONE,
        }));
        for at in 0..self.parts.len() as u32 {
            self.look(vocabulary, at);
        }
        while let Some(Reverse(next)) = self.queue.pop() {
            work::step();
            let (merged, at) = ((next >> 32) as u32, next as u32);
            let Some(left) = self.get(at).filter(|left| left.merged == merged) else { continue };
            let Some(right) = self.get(left.after) else { continue };
            if let Some(gone) = self.parts.get_mut(left.after as usize) {
                gone.merged = NONE;
            }
            if let Some(next) = self.parts.get_mut(right.after as usize) {
                next.before = at;
            }
            if let Some(part) = self.parts.get_mut(at as usize) {
                *part = Part { token: merged, after: right.after, ..left };
            }
            self.look(vocabulary, at);
            self.look(vocabulary, left.before);
        }
        let mut at = 0;
        std::iter::from_fn(move || {
            let part = self.get(at)?;
            let length = part.after - at;
            at = part.after;
            Some((part.token, length as usize))
        })
    }

    fn get(&self, at: u32) -> Option<Part> {
        self.parts.get(at as usize).copied()
    }

    /// Finds out what a part would be together with the one after it.
    fn look(&mut self, vocabulary: &Vocabulary, at: u32) {
        let Some(left) = self.get(at) else { return };
        let merged = self.get(left.after).and_then(|right| vocabulary.merged(left.token, right.token));
        if let Some(part) = self.parts.get_mut(at as usize) {
            part.merged = merged.unwrap_or(NONE);
        }
        if let Some(merged) = merged {
            self.queue.push(Reverse(u64::from(merged) << 32 | u64::from(at)));
        }
    }
}
