//! The merges as they are defined: lowest rank first, from the left. Slower for most texts than what
//! `merge` does, but it never goes the wrong way.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::{
    rounds::{self, NONE, Part},
    vocabulary::Vocabulary,
    work,
};

/// Memory used again from text to text.
#[derive(Debug, Default)]
pub struct Ranked {
    parts: Vec<Part>,
    queue: Queue,
    /// Where the parts start that are merged to the same token.
    starts: Vec<u32>,
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
        rounds::fill(&mut self.parts, vocabulary, bytes);
        rounds::run(&mut self.parts, vocabulary);
        self.queue.clear(self.parts.len());
        for (part, at) in self.parts.iter_mut().zip(0_u32..) {
            (part.before, part.after) = (at.wrapping_sub(1), at + 1);
            if part.merged != NONE {
                self.queue.push(part.merged, at);
            }
        }
        while let Some(token) = self.queue.pop(&mut self.starts) {
            self.merge_all(vocabulary, token);
        }
        let mut at = 0;
        std::iter::from_fn(move || {
            let part = self.get(at)?;
            at = part.after;
            Some((part.token, part.length as usize))
        })
    }

    /// Does the merges to one token.
    fn merge_all(&mut self, vocabulary: &Vocabulary, token: u32) {
        let starts = std::mem::take(&mut self.starts);
        let mut rest = starts.as_slice();
        while let Some((&at, others)) = rest.split_first() {
            work::step();
            rest = others;
            let Some(left) = self.get(at).filter(|left| left.merged == token) else { continue };
            let Some(right) = self.get(left.after) else { continue };
            if let Some(gone) = self.parts.get_mut(left.after as usize) {
                gone.merged = NONE;
            }
            if let Some(next) = self.parts.get_mut(right.after as usize) {
                next.before = at;
            }
            if let Some(part) = self.parts.get_mut(at as usize) {
                let length = left.length + right.length;
                *part = Part { token, length, after: right.after, merged: NONE, ..left };
            }
            self.look(vocabulary, left.before);
            // Where the part after it is merged next, it is looked at then.
            let is_next = rest.first() == Some(&right.after)
                && self.get(right.after).is_some_and(|next| next.merged == token)
                && !self.queue.has_before(token);
            if !is_next {
                self.look(vocabulary, at);
            }
            if self.queue.has_before(token) {
                rest.iter().for_each(|&at| self.queue.push(token, at));
                break;
            }
        }
        self.starts = starts;
    }

    #[inline]
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
            self.queue.push(merged, at);
        }
    }
}

/// What can be merged, by the token it would be. A text that goes on and on alike has few of those, so that
/// little is left to be sorted.
#[derive(Debug, Default)]
struct Queue {
    /// The tokens that something can be merged to: the rank above the place in `merges`.
    tokens: BinaryHeap<Reverse<u64>>,
    merges: Vec<Merges>,
    /// One above the place in `merges` per token, open addressing. 0 is free.
    places: Vec<u32>,
    /// Where left parts start, and the next of the same merges.
    starts: Vec<(u32, u32)>,
}

/// The places where parts can be merged to a token.
#[derive(Clone, Copy, Debug)]
struct Merges {
    token: u32,
    /// In `starts`; none while it is not in the queue.
    first: u32,
    last: u32,
    is_sorted: bool,
}

impl Queue {
    /// Empties it for a text of so many parts.
    fn clear(&mut self, parts: usize) {
        self.tokens.clear();
        self.merges.clear();
        self.starts.clear();
        self.places.clear();
        // Less than three merges are pushed per part.
        self.places.resize((parts * 4).next_power_of_two(), 0);
    }

    fn push(&mut self, token: u32, at: u32) {
        let entry = self.starts.len() as u32;
        self.starts.push((at, NONE));
        let index = self.find(token);
        let Some(merges) = self.merges.get_mut(index as usize) else { return };
        if merges.first == NONE {
            *merges = Merges { token, first: entry, last: entry, is_sorted: true };
            self.tokens.push(Reverse(u64::from(token) << 32 | u64::from(index)));
        } else if let Some((before, next)) = self.starts.get_mut(merges.last as usize) {
            merges.is_sorted &= *before < at;
            merges.last = entry;
            *next = entry;
        }
    }

    /// The place of a token in `merges`.
    #[inline]
    fn find(&mut self, token: u32) -> u32 {
        let mask = self.places.len() - 1;
        let mut slot = token.wrapping_mul(0x9e37_79b9) as usize >> 12;
        // There are more slots than tokens.
        while let Some(place) = self.places.get_mut(slot & mask) {
            work::step();
            match place.checked_sub(1) {
                None => {
                    self.merges.push(Merges { token, first: NONE, last: NONE, is_sorted: true });
                    *place = self.merges.len() as u32;
                    return *place - 1;
                }
                Some(index)
                    if self.merges.get(index as usize).is_some_and(|merges| merges.token == token) =>
                {
                    return index;
                }
                Some(_) => slot += 1,
            }
        }
        NONE
    }

    /// Whether something is merged before what is merged to this token. Only where a token's rank is lower than
    /// that of a part of it.
    #[inline]
    fn has_before(&self, token: u32) -> bool {
        self.tokens.peek().is_some_and(|Reverse(first)| first >> 32 < u64::from(token))
    }

    /// Takes out the token of lowest rank and puts the places of its merges into `starts`, from left to right.
    fn pop(&mut self, starts: &mut Vec<u32>) -> Option<u32> {
        let Reverse(first) = self.tokens.pop()?;
        let merges = self.merges.get_mut(first as u32 as usize)?;
        starts.clear();
        let mut entry = std::mem::replace(&mut merges.first, NONE);
        while let Some(&(at, next)) = self.starts.get(entry as usize) {
            starts.push(at);
            entry = next;
        }
        if !merges.is_sorted {
            starts.sort_unstable();
        }
        Some(merges.token)
    }
}
