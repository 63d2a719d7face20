//! Passes an answer's body on while reading it, and takes out the one chunk that only we asked for.

use super::passing::{MAX_WAITING, Passing};
use super::sniff::Sniff;
use crate::dialect::openai::{Answer, UsageChunk};
use crate::gzip::Inflater;
use crate::headers::Coding;
use crate::json::scan::{Scanner, is_white_space};
use crate::sse::{Framer, Piece, Unfinished};
use crate::tokenizer::Encoding;

/// What gzip begins with, and no text.
const GZIP: u8 = 0x1f;

/// A byte order mark may stand before either.
const MARK: [u8; 3] = [0xef, 0xbb, 0xbf];

pub struct Relay {
    kind: Kind,
    coding: Coding,
    /// A byte of the body was seen.
    has_begun: bool,
    /// The answer is compressed; what comes out of it is only read.
    inflater: Option<Inflater>,
    sniff: Sniff,
    scanner: Scanner,
    answer: Answer,
    /// We asked for the usage chunk and the client did not.
    hide: bool,
    passing: Passing,
    place: Place,
    /// The body came to its own end.
    has_ended: bool,
    /// Bytes of an unfinished event that had to be let go since the stream was to end.
    overtime: usize,
}

enum Kind {
    /// Only JSON's white space, or a byte order mark, so far: it is JSON if an object or array follows, else a stream.
    Undecided(Framer),
    Json,
    Events(Framer),
    /// Broken gzip.
    Unreadable,
}

/// Where in a stream its reader is.
#[derive(Default)]
struct Place {
    /// Some event has data.
    has_events: bool,
    /// This event has.
    has_data: bool,
    /// This event's name is one that tells of a failure.
    is_error: bool,
    /// Of the line of data nothing but white space was read.
    is_new_line: bool,
    /// A value was read to its end, and so was its line.
    is_between: bool,
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
    /// It is in a coding that is not read, or it is no text.
    Unreadable,
}

impl Relay {
    pub fn new(encoding: Encoding, hide: bool, coding: Coding) -> Self {
        Self {
            kind: Kind::Undecided(Framer::default()),
            coding,
            has_begun: false,
            inflater: None,
            sniff: Sniff::default(),
            scanner: Scanner::default(),
            answer: Answer::new(encoding),
            hide: hide && coding == Coding::Identity,
            passing: Passing::default(),
            place: Place { is_new_line: true, ..Place::default() },
            has_ended: false,
            overtime: 0,
        }
    }

    /// Takes the next bytes of the body; gives what to send instead, where that is something else.
    pub fn chunk(&mut self, chunk: &[u8], is_last: bool) -> Option<Vec<u8>> {
        self.has_ended |= is_last;
        if let Some(first) = chunk.first().filter(|_| !self.has_begun) {
            self.has_begun = true;
            // Whatever the headers say: what begins so is compressed, and what does not is not.
            self.inflater = (*first == GZIP && self.coding != Coding::Other).then(Inflater::default);
        }
        let Some(mut inflater) = self.inflater.take() else { return self.plain(chunk, is_last) };
        self.hide = false;
        if inflater.push(chunk, |plain| _ = self.plain(plain, false)) {
            self.inflater = Some(inflater);
        } else {
            self.kind = Kind::Unreadable;
        }
        None
    }

    fn plain(&mut self, chunk: &[u8], is_last: bool) -> Option<Vec<u8>> {
        self.sniff.push(chunk);
        if let Kind::Undecided(framer) = &mut self.kind
            && let Some(first) = chunk.iter().find(|byte| !is_white_space(**byte) && !MARK.contains(*byte))
        {
            let framer = std::mem::take(framer);
            self.kind = if matches!(first, b'{' | b'[') { Kind::Json } else { Kind::Events(framer) };
        }
        match &mut self.kind {
            Kind::Unreadable => None,
            Kind::Undecided(framer) => {
                framer.push(chunk, |_| ());
                // What begins with white space that went on already cannot be taken out.
                let is_unfinished = matches!(framer.unfinished(), Unfinished::Fields | Unfinished::Data);
                self.passing.went_unread(is_unfinished);
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
        let Self { kind: Kind::Events(framer), scanner, answer, passing, place, hide, .. } = self else {
            return None;
        };
        let usage_chunk = |scanner: &Scanner, answer: &Answer| match *hide && scanner.is_one_value() {
            true => answer.event_is_usage_chunk(),
            false => UsageChunk::No,
        };
        let has_line_feed = framer.awaits_line_feed() && chunk.first() == Some(&b'\n');
        passing.begin(chunk, has_line_feed);
        // Where the bytes begin that `passing` has not got.
        let mut from = usize::from(has_line_feed);
        let bytes = |range: std::ops::Range<usize>| chunk.get(range).unwrap_or(&[]);
        framer.push(chunk, |piece| match piece {
            Piece::Data(range) => {
                (place.has_data, place.has_events) = (true, true);
                let data = bytes(range);
                if place.is_new_line
                    && let Some(first) = data.iter().find(|byte| !is_white_space(**byte))
                {
                    place.is_new_line = false;
                    let begins_object = matches!(first, b'{' | b'[');
                    // No line of JSON ends inside a string.
                    let is_cut_off = scanner.is_suspect() || scanner.is_in_string();
                    if place.is_between || (begins_object && is_cut_off) {
                        if place.is_between {
                            passing.unit_begins();
                        } else {
                            passing.unit_was_cut_off();
                        }
                        place.is_between = false;
                        scanner.reset();
                        answer.next_event();
                    }
                }
                scanner.push(data, answer);
            }
            Piece::NextLine => {}
            Piece::LineEnd(end) => {
                (place.has_data, place.has_events) = (true, true);
                place.is_new_line = true;
                scanner.push(b"\n", answer);
                if scanner.is_done() {
                    place.is_between = true;
                    passing.unit_ends(bytes(from..end), usage_chunk(scanner, answer));
                    from = end;
                }
            }
            Piece::ErrorName => place.is_error = true,
            Piece::End(end) => {
                passing.event_ends(bytes(from..end));
                from = end;
                place.end_event(answer);
                scanner.reset();
            }
        });
        let mut tail = bytes(from..chunk.len());
        let has_value = scanner.has_begun() && !place.is_between;
        if is_last && passing.is_open() {
            // Between lines that are events each the last one needs no blank line.
            let last = usage_chunk(scanner, answer);
            if has_value && last != UsageChunk::No && !passing.has_let_go() {
                passing.unit_ends(std::mem::take(&mut tail), last);
            }
            passing.unit_begins();
        }
        let may_be_chunk = match framer.unfinished() {
            _ if has_value && scanner.is_done() => usage_chunk(scanner, answer) != UsageChunk::No,
            _ if has_value => !scanner.is_suspect() && answer.event_may_be_usage_chunk(),
            Unfinished::Fields | Unfinished::Data => true,
            Unfinished::Nothing | Unfinished::Comments => {
                passing.has_chunk() || (place.has_data && !place.is_between)
            }
        };
        let is_unfinished = has_value
            || (place.has_data && !place.is_between)
            || matches!(framer.unfinished(), Unfinished::Fields | Unfinished::Data);
        passing.rest(tail, *hide && !is_last && may_be_chunk, is_unfinished);
        passing.take()
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
        let ends = ends(framer, chunk);
        let (mut out, mut from) = (Vec::new(), 0);
        if !self.passing.has_let_go() && must_end(0, &self.answer) {
            self.end_with(last, &mut out);
            return (Some(out), true);
        }
        for end in ends {
            self.pass(chunk.get(from..end).unwrap_or(&[]), &mut out);
            let may_end = !self.passing.has_let_go();
            if must_end(end - from, &self.answer) && may_end {
                self.end_with(last, &mut out);
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

    fn end_with(&mut self, last: &[u8], out: &mut Vec<u8>) {
        self.passing.stop();
        if self.passing.is_open() {
            // A CR and an LF would be one line end.
            let after_cr = matches!(&self.kind, Kind::Events(framer) if framer.awaits_line_feed());
            out.extend_from_slice(if after_cr { b"\n\n" } else { b"\n" });
        }
        out.extend_from_slice(last);
    }

    fn pass(&mut self, part: &[u8], out: &mut Vec<u8>) {
        match self.plain(part, false) {
            Some(instead) => out.extend(instead),
            None => out.extend_from_slice(part),
        }
    }

    /// The body has ended: an event without its blank line is read all the same.
    pub fn finish(&mut self) {
        self.place.end_event(&mut self.answer);
    }

    pub fn answer(&self) -> &Answer {
        &self.answer
    }

    pub fn reading(&self) -> Reading {
        let is_readable = self.coding != Coding::Other;
        match self.kind {
            Kind::Undecided(_) if is_readable => Reading::Empty,
            Kind::Json if is_readable && self.scanner.is_done() => Reading::Json { complete: true },
            Kind::Events(_) if is_readable && self.place.has_events => Reading::Events,
            Kind::Json if is_readable && self.sniff.is_text() => Reading::Json { complete: false },
            Kind::Events(_) if is_readable && self.sniff.is_text() => Reading::Events,
            _ => Reading::Unreadable,
        }
    }

    /// The provider said all that it had to say, its report last. Some servers send no mark at the end.
    pub fn is_whole(&self) -> bool {
        match self.kind {
            Kind::Json => self.scanner.is_done(),
            Kind::Events(_) => {
                self.answer.has_end_mark() || (self.has_ended && !self.answer.has_text_behind_usage())
            }
            Kind::Undecided(_) | Kind::Unreadable => false,
        }
    }
}

impl Place {
    fn end_event(&mut self, answer: &mut Answer) {
        if self.is_error && self.has_data {
            answer.event_is_error();
        }
        answer.next_event();
        let has_events = self.has_events;
        *self = Self { has_events, is_new_line: true, ..Self::default() };
    }
}

/// Where in `chunk` events end, or lines of data that others follow in the same event.
fn ends(framer: &Framer, chunk: &[u8]) -> Vec<usize> {
    let (mut ends, mut line) = (Vec::new(), None);
    framer.clone().push(chunk, |piece| match piece {
        Piece::LineEnd(end) => line = Some(end),
        Piece::NextLine => ends.extend(line.take()),
        Piece::End(end) => {
            line = None;
            ends.push(end);
        }
        Piece::Data(_) | Piece::ErrorName => {}
    });
    ends
}

#[cfg(test)]
#[path = "relay_tests.rs"]
mod tests;
