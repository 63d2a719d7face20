//! Items in the order in which they came, at most so many; the oldest gives way.

use std::collections::VecDeque;

use crate::callers::CallerId;

/// An item that has waited this long is dropped: the service no longer knows whether it was charged.
const MAX_AGE_MS: u64 = 300_000;
/// Room for so many items stays when a queue has become short.
const ROOM_KEPT: usize = 64;

pub struct Entry<T> {
    pub item: T,
    pub reserved_at: u64,
    pub queued_at: u64,
    pub was_sent: bool,
    /// Whose next request may wait for it.
    pub frees: Option<CallerId>,
}

pub struct Queue<T> {
    waiting: VecDeque<Entry<T>>,
    in_flight: usize,
    max_items: usize,
    dropped: u64,
}

impl<T> Queue<T> {
    pub fn new(max_items: usize) -> Self {
        Self { waiting: VecDeque::new(), in_flight: 0, max_items, dropped: 0 }
    }

    /// Items that wait or are under way.
    pub fn len(&self) -> usize {
        self.waiting.len() + self.in_flight
    }

    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Items that were given up.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    pub fn push(&mut self, entry: Entry<T>) {
        if self.len() >= self.max_items && self.waiting.pop_front().is_some() {
            self.dropped += 1;
        }
        self.waiting.push_back(entry);
    }

    pub fn drop_old(&mut self, now: u64) {
        let before = self.waiting.len();
        self.waiting.retain(|entry| now.saturating_sub(entry.queued_at) < MAX_AGE_MS);
        self.dropped += (before - self.waiting.len()) as u64;
    }

    /// Takes the oldest, which are under way until [`back`](Self::back) or [`done`](Self::done).
    pub fn take(&mut self, count: usize) -> Vec<Entry<T>> {
        let taken: Vec<_> = self.waiting.drain(..count.min(self.waiting.len())).collect();
        self.in_flight += taken.len();
        // What a flood needed is given back when it is over.
        if self.waiting.capacity() > self.waiting.len().saturating_mul(4).max(ROOM_KEPT) {
            self.waiting.shrink_to(self.waiting.len().saturating_mul(2).max(ROOM_KEPT));
        }
        taken
    }

    /// Items that were under way wait again, in front.
    pub fn back(&mut self, entries: Vec<Entry<T>>) {
        self.in_flight = self.in_flight.saturating_sub(entries.len());
        for entry in entries.into_iter().rev() {
            self.waiting.push_front(entry);
        }
    }

    pub fn done(&mut self, count: usize) {
        self.in_flight = self.in_flight.saturating_sub(count);
    }

    pub fn give_up(&mut self, count: usize) {
        self.done(count);
        self.dropped += count as u64;
    }

    #[cfg(test)]
    pub fn room(&self) -> usize {
        self.waiting.capacity()
    }
}
