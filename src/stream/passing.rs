//! What of an event stream goes on to the client, and when: all but the usage chunk that only we asked for.
//!
//! By the letter an event ends with a blank line. Servers that put one line end between their `data` lines mean
//! an event by each, so what is taken out is a *unit*: whole lines of data that are one JSON value.

use crate::dialect::openai::UsageChunk;
use crate::json::members;
use crate::sse::{Framer, Piece};

/// An unfinished unit longer than this is let go: no usage chunk is that long.
pub const MAX_WAITING: usize = 16 * 1024;

#[derive(Default)]
pub struct Passing {
    /// Bytes that the client has not got yet: of the unit, and of the lines between it and the next one.
    waiting: Vec<u8>,
    /// So many of them are a whole usage chunk.
    chunk: Option<(usize, UsageChunk)>,
    /// Bytes of the unit went to the client: it cannot be taken out any more.
    let_go: bool,
    /// The client has lines of the event, so that it must get the event's end.
    is_open: bool,
    /// What was taken out last ended in a CR: an LF that comes next goes with it.
    hides_line_feed: bool,
    /// What goes on of the bytes being read, and whether that is something else.
    out: Vec<u8>,
    changed: bool,
}

impl Passing {
    /// More bytes are read. `has_line_feed`: the first one belongs to the line end before it.
    pub fn begin(&mut self, chunk: &[u8], has_line_feed: bool) {
        self.changed = !self.waiting.is_empty();
        if has_line_feed {
            if let Some((length, _)) = self.chunk.as_mut().filter(|(length, _)| *length == self.waiting.len())
            {
                *length += 1;
            }
            match (self.waiting.is_empty(), self.hides_line_feed) {
                (false, _) => self.waiting.push(b'\n'),
                (true, true) => self.changed = true,
                (true, false) => self.out.push(b'\n'),
            }
        }
        self.hides_line_feed &= chunk.is_empty();
    }

    /// A unit ends with `bytes`, the end of its line.
    pub fn unit_ends(&mut self, bytes: &[u8], chunk: UsageChunk) {
        if chunk == UsageChunk::No || self.let_go {
            self.pass(bytes);
            self.is_open = true;
        } else {
            self.waiting.extend_from_slice(bytes);
            self.chunk = Some((self.waiting.len(), chunk));
        }
        self.let_go = false;
    }

    /// Another unit begins in the same event; what waits before it are that one's lines.
    pub fn unit_begins(&mut self) {
        let Some((length, chunk)) = self.chunk.take() else { return };
        let rest = self.waiting.split_off(length.min(self.waiting.len()));
        let unit = std::mem::replace(&mut self.waiting, rest);
        self.changed = true;
        let kept = match chunk {
            UsageChunk::Only => Vec::new(),
            UsageChunk::WithMore => without_usage(&unit).unwrap_or(unit),
            UsageChunk::No => unit,
        };
        self.is_open |= !kept.is_empty();
        self.out.extend(kept);
    }

    /// Another unit begins, and what came before is none: it goes on, and so does the new one, of which the
    /// client may have the beginning.
    pub fn unit_was_cut_off(&mut self) {
        self.pass(&[]);
        (self.let_go, self.is_open) = (true, true);
    }

    /// The event ends with `bytes`.
    pub fn event_ends(&mut self, bytes: &[u8]) {
        let is_taken_out = self.chunk.is_some();
        self.unit_begins();
        if is_taken_out && !self.is_open {
            // Nothing is left of the event.
            self.hides_line_feed = bytes.last() == Some(&b'\r');
            self.waiting.clear();
        } else {
            self.hides_line_feed = false;
            self.pass(bytes);
        }
        (self.let_go, self.is_open) = (false, false);
    }

    /// Of the bytes that are read these are left, inside an event.
    pub fn rest(&mut self, bytes: &[u8], may_wait: bool, is_unfinished: bool) {
        if may_wait && !self.let_go && self.waiting.len() + bytes.len() <= MAX_WAITING {
            self.waiting.extend_from_slice(bytes);
        } else {
            self.is_open |= self.chunk.take().is_some();
            self.pass(bytes);
            self.let_go |= is_unfinished;
        }
    }

    /// What goes on, where that is not what was read.
    pub fn take(&mut self) -> Option<Vec<u8>> {
        let out = std::mem::take(&mut self.out);
        (self.changed || !self.waiting.is_empty()).then_some(out)
    }

    /// What waits is a whole unit that is to be taken out.
    pub fn has_chunk(&self) -> bool {
        self.chunk.is_some()
    }

    /// The client has an event without its end.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    pub fn has_let_go(&self) -> bool {
        self.let_go
    }

    /// Bytes went to the client without having been read; the unit that they begin is unfinished or not.
    pub fn went_unread(&mut self, is_unfinished: bool) {
        self.let_go = is_unfinished;
    }

    /// Nothing more of the stream goes on.
    pub fn stop(&mut self) {
        self.waiting.clear();
    }

    #[cfg(test)]
    pub fn waiting_bytes(&self) -> usize {
        self.waiting.len()
    }

    fn pass(&mut self, bytes: &[u8]) {
        self.out.append(&mut self.waiting);
        self.out.extend_from_slice(bytes);
    }
}

/// The lines of a unit without its `usage` members; `None` where they cannot be told for sure.
fn without_usage(unit: &[u8]) -> Option<Vec<u8>> {
    // Where the parts of the data are in the unit, and in the data.
    let (mut parts, mut data) = (Vec::new(), Vec::new());
    Framer::default().push(unit, |piece| match piece {
        Piece::Data(range) => {
            parts.push((range.start, data.len()));
            data.extend_from_slice(unit.get(range).unwrap_or(&[]));
        }
        Piece::NextLine => data.push(b'\n'),
        _ => {}
    });
    let text = std::str::from_utf8(&data).ok()?;
    let mut removed = Vec::new();
    // The end of the last member that stays, or of the opening brace.
    let mut kept_to = text.find('{')? + 1;
    let mut is_first = true;
    for member in members(text).ok()? {
        let end = member.offset + member.raw.len();
        if member.key != "usage" {
            (kept_to, is_first) = (end, false);
        } else if is_first {
            // With the comma behind it.
            let comma = end + text.get(end..)?.find(',')? + 1;
            removed.push(kept_to..comma);
            kept_to = comma;
        } else {
            removed.push(kept_to..end);
            kept_to = end;
        }
    }
    let mut removed = removed.into_iter().peekable();
    let mut is_removed = |at: usize| {
        while removed.next_if(|range| range.end <= at).is_some() {}
        removed.peek().is_some_and(|range| range.contains(&at))
    };
    let mut out = Vec::with_capacity(unit.len());
    let mut parts = parts.into_iter().peekable();
    let mut part = None;
    for (at, byte) in unit.iter().enumerate() {
        if let Some(next) = parts.next_if(|(start, _)| *start == at) {
            part = Some(next);
        }
        // A part goes on to the end of its line.
        part = part.filter(|_| !matches!(byte, b'\r' | b'\n'));
        let place = part.map(|(start, place)| place + (at - start));
        if !place.is_some_and(&mut is_removed) {
            out.push(*byte);
        }
    }
    Some(out)
}
