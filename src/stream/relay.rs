//! Passes an answer's body on while reading it, and takes out the one chunk that only we asked for.

use crate::dialect::openai::Answer;
use crate::gzip::Inflater;
use crate::headers::Coding;
use crate::json::scan::{Scanner, is_white_space};
use crate::sse::{Framer, Piece, Unfinished};
use crate::tokenizer::Encoding;

/// An unfinished event longer than this is let go: no usage chunk is that long.
const MAX_WAITING: usize = 16 * 1024;

pub struct Relay {
    kind: Kind,
    /// The answer is compressed; what comes out of it is only read.
    inflater: Option<Inflater>,
    scanner: Scanner,
    answer: Answer,
    /// We asked for the usage chunk and the client did not.
    hide: bool,
    /// Bytes of the unfinished event that the client has not got yet.
    waiting: Vec<u8>,
    /// Bytes of the unfinished event went to the client: it cannot be taken out any more.
    let_go: bool,
    /// Bytes of an unfinished event that had to be let go since the stream was to end.
    overtime: usize,
    /// The hidden event ended in a CR: an LF that comes next goes with it.
    hide_line_feed: bool,
}

enum Kind {
    /// Only JSON's white space so far: it is JSON if an object or array follows, else a stream.
    Undecided(Framer),
    Json,
    Events(Framer),
    /// In a coding although we asked for none.
    Unreadable,
}

/// How an answer's body was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// There was none.
    Empty,
    Json {
        complete: bool,
    },
    Events,
    Unreadable,
}

impl Relay {
    pub fn new(encoding: Encoding, hide: bool, coding: Coding) -> Self {
        Self {
            kind: match coding {
                Coding::Identity | Coding::Gzip => Kind::Undecided(Framer::default()),
                Coding::Other => Kind::Unreadable,
            },
            inflater: (coding == Coding::Gzip).then(Inflater::default),
            scanner: Scanner::default(),
            answer: Answer::new(encoding),
            hide: hide && coding == Coding::Identity,
            waiting: Vec::new(),
            let_go: false,
            overtime: 0,
            hide_line_feed: false,
        }
    }

    /// Takes the next bytes of the body; gives what to send instead, where that is something else.
    pub fn chunk(&mut self, chunk: &[u8], is_last: bool) -> Option<Vec<u8>> {
        let Some(mut inflater) = self.inflater.take() else { return self.plain(chunk, is_last) };
        if inflater.push(chunk, |plain| _ = self.plain(plain, false)) {
            self.inflater = Some(inflater);
        } else {
            self.kind = Kind::Unreadable;
        }
        None
    }

    fn plain(&mut self, chunk: &[u8], is_last: bool) -> Option<Vec<u8>> {
        if let Kind::Undecided(framer) = &mut self.kind
            && let Some(first) = chunk.iter().find(|byte| !is_white_space(**byte))
        {
            let framer = std::mem::take(framer);
            self.kind = if matches!(first, b'{' | b'[') { Kind::Json } else { Kind::Events(framer) };
        }
        match &mut self.kind {
            Kind::Unreadable => None,
            Kind::Undecided(framer) => {
                framer.push(chunk, |_| ());
                // What begins with white space that went on already cannot be taken out.
                self.let_go = matches!(framer.unfinished(), Unfinished::Fields | Unfinished::Data);
                None
            }
            Kind::Json => {
                self.scanner.push(chunk, &mut self.answer);
                None
            }
            Kind::Events(_) => self.events(chunk, is_last),
        }
    }

    fn events(&mut self, chunk: &[u8], is_last: bool) -> Option<Vec<u8>> {
        let Self { kind: Kind::Events(framer), scanner, answer, .. } = self else { return None };
        let mut out = Vec::new();
        // Where the bytes begin that are neither in `out` nor hidden.
        let mut from = 0;
        let mut changed = !self.waiting.is_empty();
        // The rest of a CRLF belongs to the event before it.
        let ends_event = framer.awaits_line_feed() && framer.unfinished() == Unfinished::Nothing;
        if ends_event && let Some((b'\n', _)) = chunk.split_first() {
            from = 1;
            if self.hide_line_feed {
                changed = true;
            } else {
                out.push(b'\n');
            }
        }
        if !chunk.is_empty() {
            self.hide_line_feed = false;
        }
        let bytes = |range: std::ops::Range<usize>| chunk.get(range).unwrap_or(&[]);
        framer.push(chunk, |piece| match piece {
            Piece::Data(range) => scanner.push(bytes(range), answer),
            Piece::NextLine => scanner.push(b"\n", answer),
            Piece::End(end) => {
                let is_hidden =
                    self.hide && !self.let_go && scanner.is_done() && answer.event_is_usage_chunk();
                // Of the last event that ended: only its own line feed can still come.
                self.hide_line_feed = is_hidden && bytes(from..end).last() == Some(&b'\r');
                if is_hidden {
                    changed = true;
                } else {
                    out.extend_from_slice(&self.waiting);
                    out.extend_from_slice(bytes(from..end));
                }
                self.waiting.clear();
                self.let_go = false;
                from = end;
                scanner.reset();
                answer.next_event();
            }
        });
        let tail = bytes(from..chunk.len());
        let may_wait = self.hide
            && !self.let_go
            && !is_last
            && self.waiting.len() + tail.len() <= MAX_WAITING
            && match framer.unfinished() {
                Unfinished::Nothing | Unfinished::Comments => false,
                Unfinished::Fields => true,
                Unfinished::Data => may_be_usage_chunk(scanner, answer),
            };
        if may_wait {
            changed |= !tail.is_empty();
            self.waiting.extend_from_slice(tail);
        } else {
            out.append(&mut self.waiting);
            out.extend_from_slice(tail);
            self.let_go |= matches!(framer.unfinished(), Unfinished::Fields | Unfinished::Data);
        }
        changed.then_some(out)
    }

    /// Takes a chunk like [`chunk`](Self::chunk), event by event, and ends the stream with `last` after the first
    /// event at which `must_end` says so, so that no event is cut in two. It is told the bytes that went on since
    /// it was asked before. Gives what to send instead of the chunk, and whether the stream ends with it.
    pub fn chunk_until(
        &mut self,
        chunk: &[u8],
        last: &[u8],
        mut must_end: impl FnMut(usize, &Answer) -> bool,
    ) -> (Option<Vec<u8>>, bool) {
        let Kind::Events(framer) = &self.kind else { return (self.chunk(chunk, false), false) };
        if self.inflater.is_some() {
            let instead = self.chunk(chunk, false);
            // Nothing can be written into what is compressed.
            return if must_end(chunk.len(), &self.answer) {
                (Some(Vec::new()), true)
            } else {
                (instead, false)
            };
        }
        let mut ends = Vec::new();
        framer.clone().push(chunk, |piece| {
            if let Piece::End(at) = piece {
                ends.push(at);
            }
        });
        let (mut out, mut from) = (Vec::new(), 0);
        if !self.let_go && must_end(0, &self.answer) {
            self.waiting.clear();
            return (Some(last.to_vec()), true);
        }
        for end in ends {
            self.pass(chunk.get(from..end).unwrap_or(&[]), &mut out);
            if must_end(end - from, &self.answer) {
                out.extend_from_slice(last);
                return (Some(out), true);
            }
            from = end;
        }
        let rest = chunk.get(from..).unwrap_or(&[]);
        self.pass(rest, &mut out);
        if from > 0 {
            self.overtime = 0;
        } else if must_end(rest.len(), &self.answer) {
            // An event without an end is no way around it.
            self.overtime += rest.len();
            if self.overtime > MAX_WAITING {
                out.extend([b"\n\n", last].concat());
                return (Some(out), true);
            }
        }
        (Some(out), false)
    }

    fn pass(&mut self, part: &[u8], out: &mut Vec<u8>) {
        match self.plain(part, false) {
            Some(instead) => out.extend(instead),
            None => out.extend_from_slice(part),
        }
    }

    /// The body has ended: an event without its blank line is read all the same.
    pub fn finish(&mut self) {
        self.answer.next_event();
    }

    pub fn answer(&self) -> &Answer {
        &self.answer
    }

    pub fn reading(&self) -> Reading {
        match self.kind {
            Kind::Undecided(_) => Reading::Empty,
            Kind::Json => Reading::Json { complete: self.scanner.is_done() },
            Kind::Events(_) => Reading::Events,
            Kind::Unreadable => Reading::Unreadable,
        }
    }
}

fn may_be_usage_chunk(scanner: &Scanner, answer: &Answer) -> bool {
    match (scanner.has_begun(), scanner.is_done()) {
        (false, _) => true,
        (true, true) => answer.event_is_usage_chunk(),
        (true, false) => !scanner.is_broken() && answer.event_may_be_usage_chunk(),
    }
}

#[cfg(test)]
#[path = "relay_tests.rs"]
mod tests;
