//! Splits a stream of server-sent events by the WHATWG rules, however its bytes are cut.
//!
//! It copies nothing: the caller gets the places of data and of event ends in the chunk it pushed.

use std::ops::Range;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Bytes of the current event's data.
    Data(Range<usize>),
    /// The event goes on with another `data` line: its data has a line feed here.
    NextLine,
    /// A `data` line ended; its bytes go up to this place.
    LineEnd(usize),
    /// The event's name is one that tells of a failure.
    ErrorName,
    /// The event ended; its bytes go up to this place.
    End(usize),
}

/// What the bytes since the end of the last event, or of its last `data` line, can still become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfinished {
    /// No byte has come.
    Nothing,
    /// Whole comment lines: they mean nothing to the event.
    Comments,
    /// Something else, or part of a line; data may follow.
    Fields,
    /// A line of data has begun.
    Data,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    /// At the start of a line or inside a field name, which the first bytes of `name` are.
    Name {
        length: usize,
    },
    /// After the colon of `data`: one space is not part of the value.
    DataSpace,
    Data,
    /// In the value of `event`, of which so many bytes are those of [`ERROR`].
    EventName {
        length: usize,
    },
    Ignored,
}

#[derive(Clone, Debug)]
pub struct Framer {
    line: Line,
    name: [u8; 5],
    /// Since the last end there are bytes; lines that are no comments.
    begun: bool,
    has_fields: bool,
    /// The event has data.
    has_data: bool,
    /// The last byte was CR: a following LF belongs to the same line end.
    after_cr: bool,
    /// Bytes of a byte order mark seen at the start of the stream.
    bom: usize,
    started: bool,
}

/// What the name of an event begins with that tells of a failure.
const ERROR: &[u8] = b"error";
const BOM: [u8; 3] = [0xef, 0xbb, 0xbf];

impl Default for Framer {
    fn default() -> Self {
        Self {
            line: Line::Name { length: 0 },
            name: [0; 5],
            begun: false,
            has_fields: false,
            has_data: false,
            after_cr: false,
            bom: 0,
            started: false,
        }
    }
}

impl Framer {
    pub fn unfinished(&self) -> Unfinished {
        match self {
            Self { begun: false, .. } => Unfinished::Nothing,
            Self { line: Line::DataSpace | Line::Data, .. } => Unfinished::Data,
            Self { has_fields: false, line: Line::Name { length: 0 }, .. } => Unfinished::Comments,
            _ => Unfinished::Fields,
        }
    }

    /// The last line end was a CR at the end of a chunk; an LF that comes next belongs to it.
    pub fn awaits_line_feed(&self) -> bool {
        self.after_cr
    }

    pub fn push(&mut self, chunk: &[u8], mut found: impl FnMut(Piece)) {
        let mut at = 0;
        while let Some(&byte) = chunk.get(at) {
            if std::mem::take(&mut self.after_cr) && byte == b'\n' {
                at += 1;
                continue;
            }
            if !self.started {
                if BOM.get(self.bom) == Some(&byte) {
                    self.bom += 1;
                    at += 1;
                    continue;
                }
                self.started = true;
            }
            if matches!(byte, b'\r' | b'\n') {
                at += 1;
                if byte == b'\r' {
                    if chunk.get(at) == Some(&b'\n') {
                        at += 1;
                    } else {
                        self.after_cr = at == chunk.len();
                    }
                }
                self.line_end(at, &mut found);
                continue;
            }
            if self.line == Line::Data {
                let rest = chunk.get(at..).unwrap_or(&[]);
                let length = memchr::memchr2(b'\r', b'\n', rest).unwrap_or(rest.len());
                found(Piece::Data(at..at + length));
                at += length;
                continue;
            }
            at += self.field(byte, &mut found);
        }
    }

    /// Takes one byte outside of data; gives how many it used.
    fn field(&mut self, byte: u8, found: &mut impl FnMut(Piece)) -> usize {
        self.begun = true;
        match self.line {
            Line::Name { length: 0 } if byte == b':' => self.line = Line::Ignored,
            Line::Name { length } if byte == b':' => {
                self.line = match self.name.get(..length) {
                    Some(b"data") => {
                        self.begin_data(found);
                        Line::DataSpace
                    }
                    Some(b"event") => Line::EventName { length: 0 },
                    _ => Line::Ignored,
                };
            }
            Line::Name { length } => {
                self.has_fields = true;
                self.line = match self.name.get_mut(length) {
                    Some(slot) => {
                        *slot = byte;
                        Line::Name { length: length + 1 }
                    }
                    // Longer than any name we know.
                    None => Line::Ignored,
                };
            }
            Line::DataSpace => {
                self.line = Line::Data;
                return usize::from(byte == b' ');
            }
            Line::EventName { length: 0 } if byte == b' ' => {}
            Line::EventName { length } if ERROR.get(length) == Some(&byte) => {
                self.line = Line::EventName { length: length + 1 };
                if length + 1 == ERROR.len() {
                    found(Piece::ErrorName);
                }
            }
            Line::EventName { .. } => self.line = Line::Ignored,
            Line::Data | Line::Ignored => {}
        }
        1
    }

    fn line_end(&mut self, end: usize, found: &mut impl FnMut(Piece)) {
        let line = std::mem::replace(&mut self.line, Line::Name { length: 0 });
        let mut is_data = matches!(line, Line::DataSpace | Line::Data);
        match line {
            Line::Name { length: 0 } => {
                (self.begun, self.has_fields) = (false, false);
                self.has_data = false;
                found(Piece::End(end));
            }
            // A `data` line without a colon has an empty value.
            Line::Name { length } if self.name.get(..length) == Some(b"data".as_slice()) => {
                self.begin_data(found);
                is_data = true;
            }
            _ => {}
        }
        if is_data {
            (self.begun, self.has_fields) = (false, false);
            found(Piece::LineEnd(end));
        }
    }

    fn begin_data(&mut self, found: &mut impl FnMut(Piece)) {
        if self.has_data {
            found(Piece::NextLine);
        }
        self.has_data = true;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing)]
    use super::*;

    /// The data of every event, read from `chunks`, and of the unfinished one.
    fn events(chunks: &[&[u8]]) -> Vec<String> {
        let (mut framer, mut events, mut data) = (Framer::default(), Vec::new(), Vec::new());
        for chunk in chunks {
            framer.push(chunk, |piece| match piece {
                Piece::Data(range) => data.extend_from_slice(&chunk[range]),
                Piece::NextLine => data.push(b'\n'),
                Piece::End(_) => {
                    events.push(String::from_utf8_lossy(&data).into_owned());
                    data.clear();
                }
                Piece::LineEnd(_) | Piece::ErrorName => {}
            });
        }
        if !data.is_empty() {
            events.push(String::from_utf8_lossy(&data).into_owned());
        }
        events.retain(|data| !data.is_empty());
        events
    }

    #[test]
    fn framing_by_the_rules() {
        let table: [(&str, &[&str]); 14] = [
            ("data:x\n\n", &["x"]),
            ("data:  x\n\n", &[" x"]),
            ("data: a\r\n\r\ndata: b\r\n\r\n", &["a", "b"]),
            ("data: a\r\rdata: b\r\r", &["a", "b"]),
            ("data: a\n\r\ndata: b\n\r\n", &["a", "b"]),
            ("data: a\ndata: b\n\n", &["a\nb"]),
            ("data\ndata: b\n\n", &["\nb"]),
            ("retry: 3\n\nid: 7\n\n: ping\n\ndata:\n\ndata: x\n\n", &["x"]),
            (": working\ndata: x\n\n", &["x"]),
            ("datax: y\n\ndat: z\n\n data: q\n\ndata: x\n\n", &["x"]),
            ("data: key: value: more\n\n", &["key: value: more"]),
            ("\u{feff}data: x\n\n", &["x"]),
            ("data: x", &["x"]),
            ("event: a\nid: 1\ndata: 价格\nretry: 1\n\n", &["价格"]),
        ];
        for (stream, expected) in table {
            assert_eq!(events(&[stream.as_bytes()]), expected, "{stream:?}");
            for cut in 0..=stream.len() {
                let (a, b) = stream.as_bytes().split_at(cut);
                assert_eq!(events(&[a, b]), expected, "{stream:?} cut at {cut}");
            }
            let bytes: Vec<&[u8]> = stream.as_bytes().chunks(1).collect();
            assert_eq!(events(&bytes), expected, "{stream:?} byte by byte");
        }
    }

    #[test]
    fn an_end_covers_its_line_feed() {
        let mut ends = Vec::new();
        let mut framer = Framer::default();
        framer.push(b"data: a\r\n\r\nda", |p| ends.extend(matches!(p, Piece::End(_)).then_some(p)));
        assert_eq!(ends, [Piece::End(11)]);
        assert_eq!(framer.unfinished(), Unfinished::Fields);
    }

    #[test]
    fn lines_of_data_and_the_name_of_an_error() {
        let stream =
            "event: error\r\ndata: a\r\nid: 1\ndata\n\nevent:errors\n\nevent: err\nevents: error\n\n";
        let of_chunks = |chunks: &[&[u8]]| {
            let (mut framer, mut pieces, mut start) = (Framer::default(), Vec::new(), 0);
            for chunk in chunks {
                framer.push(chunk, |piece| match piece {
                    Piece::LineEnd(at) => pieces.push(("line", stream[..start + at].trim_end().len())),
                    Piece::End(at) => pieces.push(("end", stream[..start + at].trim_end().len())),
                    Piece::ErrorName => pieces.push(("error", 0)),
                    Piece::Data(_) | Piece::NextLine => {}
                });
                start += chunk.len();
            }
            pieces
        };
        let kinds = of_chunks(&[stream.as_bytes()]);
        let names: Vec<&str> = kinds.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(names, ["error", "line", "line", "end", "error", "end", "end"]);
        assert_eq!(kinds[1], ("line", "event: error\r\ndata: a".len()));
        for cut in 0..stream.len() {
            let (a, b) = stream.as_bytes().split_at(cut);
            assert_eq!(of_chunks(&[a, b]), kinds, "cut at {cut}");
        }
    }

    #[test]
    fn what_an_unfinished_event_can_become() {
        for (tail, expected) in [
            ("", Unfinished::Nothing),
            ("d", Unfinished::Fields),
            ("data", Unfinished::Fields),
            ("event: x\ni", Unfinished::Fields),
            ("data:", Unfinished::Data),
            ("data: x\n", Unfinished::Nothing),
            ("data: x\nda", Unfinished::Fields),
            ("data: x\n: ping\n", Unfinished::Comments),
            ("data: x\ndata: ", Unfinished::Data),
            ("id: 4\ndata: {", Unfinished::Data),
            (": pin", Unfinished::Fields),
            (": ping\n:\n", Unfinished::Comments),
            (": ping\nda", Unfinished::Fields),
            (": ping\ndata: {", Unfinished::Data),
            ("retry: 3\ndata: {", Unfinished::Data),
            ("dax: 1\n", Unfinished::Fields),
        ] {
            let mut framer = Framer::default();
            framer.push(format!("data: x\n\n{tail}").as_bytes(), |_| ());
            assert_eq!(framer.unfinished(), expected, "{tail:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn chunking_does_not_matter(stream in "[dat:ei \r\n{}x]{0,60}", size in 1usize..9) {
            let chunks: Vec<&[u8]> = stream.as_bytes().chunks(size).collect();
            proptest::prop_assert_eq!(events(&chunks), events(&[stream.as_bytes()]));
        }
    }
}
