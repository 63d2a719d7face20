//! How much of a body is counted at a time, and when.

use super::super::abi::{self, Buffer};
use super::Running;
use crate::stream::{Event, SLICE};

/// The most of a body that one callback counts, in bytes: the worker serves nobody meanwhile.
const MAX_COUNTED: usize = 64 * 1024;
/// And about the longest that it does.
const LONGEST_COUNT_MS: u64 = 2;

impl Running {
    /// Counts as much of the body as one callback may; `true` while there is more of it. Needs this stream's
    /// effective context.
    pub fn count_on(&mut self) -> bool {
        if self.waits_for_end {
            self.end_body();
        }
        let (mut counted, began) = (0, abi::now_ms());
        while counted < MAX_COUNTED
            && abi::now_ms().saturating_sub(began) < LONGEST_COUNT_MS
            && let Some(bytes) = self.uncounted()
        {
            self.step(Event::RequestPiece { bytes: &bytes });
            counted += SLICE;
        }
        // What waits for an answer goes on with it.
        let waits = self.waits_for_end && !self.stream.awaits_answer();
        self.is_queued = waits || self.has_uncounted();
        self.is_queued
    }

    /// Goes on with what has come of the body while the stream waited for an answer. Needs this stream's
    /// effective context.
    pub fn catch_up(&mut self) {
        if self.held_bytes > 0 {
            self.step(Event::RequestBody { length: self.held_bytes });
        }
        self.count_along();
    }

    fn has_uncounted(&self) -> bool {
        self.stream.counts_kept() || self.stream.counts_from().is_some_and(|from| from < self.held_bytes)
    }

    /// What the stream needs for counting on.
    fn uncounted(&self) -> Option<Vec<u8>> {
        if self.stream.counts_kept() {
            return Some(Vec::new());
        }
        let from = self.stream.counts_from().filter(|from| *from < self.held_bytes)?;
        let size = (self.held_bytes - from).min(SLICE);
        Some(abi::buffer_from(Buffer::RequestBody, from, size).unwrap_or_default())
    }

    /// Whether this stream keeps a whole body.
    pub fn keeps_body(&self) -> bool {
        self.stream.counts_kept()
    }

    pub fn request_end(&mut self) {
        self.end_body();
        self.count_along();
    }

    /// The body is whole. A second one that must be kept waits for its turn: together they could fill the
    /// memory that all streams share.
    fn end_body(&mut self) {
        self.waits_for_end =
            self.stream.awaits_answer() || (self.stream.will_keep() && !self.shared.may_keep(&self.this));
        if self.stream.wants_body() && !self.waits_for_end {
            let body = abi::buffer(Buffer::RequestBody, self.held_bytes).unwrap_or_default();
            self.step(Event::RequestEnd { body: &body });
        }
    }

    /// Counts in a callback of the stream's own, and leaves the rest to the root context.
    pub fn count_along(&mut self) {
        if !self.is_queued && self.count_on() {
            self.shared.count_later(self.stream.caller(), self.this.clone());
        }
    }
}
