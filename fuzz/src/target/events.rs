//! The WHATWG rules for event streams, written down once more: slowly, on whole streams, and apart from the
//! framer that they are compared with.

use std::ops::Range;

#[derive(Debug, PartialEq)]
pub struct Event {
    /// Where its bytes are, the blank line included, a byte order mark not.
    pub raw: Range<usize>,
    pub data: Vec<u8>,
}

/// The length of the byte order mark. One that is cut short is dropped as well; no text begins so.
pub fn mark(stream: &[u8]) -> usize {
    (0..4).rev().find(|&n| stream.starts_with(&b"\xef\xbb\xbf"[..n])).unwrap_or(0)
}

/// Complete events in order, and the data of the unfinished one.
pub fn split(stream: &[u8]) -> (Vec<Event>, Vec<u8>) {
    let start = mark(stream);
    let (mut at, mut begin) = (start, start);
    let (mut events, mut data) = (Vec::new(), None);
    while at < stream.len() {
        let end = (at..stream.len()).find(|&i| matches!(stream[i], b'\r' | b'\n'));
        let line = &stream[at..end.unwrap_or(stream.len())];
        // The last line may be cut; without its colon it is no field yet.
        if line.contains(&b':') || end.is_some() {
            field(line, &mut data);
        }
        let Some(end) = end else { break };
        at = end + if stream[end..].starts_with(b"\r\n") { 2 } else { 1 };
        if line.is_empty() {
            events.push(Event { raw: begin..at, data: data.take().unwrap_or_default() });
            begin = at;
        }
    }
    (events, data.unwrap_or_default())
}

fn field(line: &[u8], data: &mut Option<Vec<u8>>) {
    let (name, value) = match line.iter().position(|byte| *byte == b':') {
        Some(colon) => (&line[..colon], &line[colon + 1..]),
        None => (line, &b""[..]),
    };
    if name != b"data" {
        return;
    }
    let value = value.strip_prefix(b" ").unwrap_or(value);
    match data {
        Some(data) => data.extend([b"\n", value].concat()),
        None => *data = Some(value.to_vec()),
    }
}
