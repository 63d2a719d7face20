//! Event streams: cut anywhere they read the same; what reaches the client is the stream itself, less whole
//! usage events where those are hidden.

use serde_json::Value;
use tokengate::headers::Coding;
use tokengate::json::{elements, members};
use tokengate::sse::{Framer, Piece};
use tokengate::stream::relay::Relay;
use tokengate::tokenizer::Encoding;

use super::chunks::cuts;
use super::events::{self, Event};
use super::{magnitude, signature};

/// An event up to this long is hidden whatever its chunks.
const ALWAYS_HIDDEN: usize = 16 * 1024;

pub fn run(input: &[u8]) -> u64 {
    let (events, tail) = events::split(input);
    let mut whole = None;
    for chunks in cuts(input) {
        let (data, unfinished) = framed(&chunks);
        let expected: Vec<&[u8]> = events.iter().map(|event| event.data.as_slice()).collect();
        assert_eq!(data, expected, "events of {} chunks", chunks.len());
        assert_eq!(unfinished, tail, "unfinished data of {} chunks", chunks.len());

        for ends_apart in [false, true] {
            let (out, seen) = relayed(&chunks, false, ends_apart);
            assert_eq!(out, input, "nothing was to be hidden");
            let (out, seen_hiding) = relayed(&chunks, true, ends_apart);
            for (words, tokens) in [&seen, &seen_hiding] {
                let (expected, counted) = whole.get_or_insert_with(|| seen.clone());
                assert_eq!(words, expected, "{} chunks are read as the whole is", chunks.len());
                assert_eq!(tokens, counted, "tokens");
            }
            hidden(input, &events, &out);
        }
    }
    signature((
        events.len().min(9),
        tail.len().min(3),
        whole.map(|seen| seen.0),
        magnitude(input.len() as u64),
    ))
}

fn framed(chunks: &[&[u8]]) -> (Vec<Vec<u8>>, Vec<u8>) {
    let (mut framer, mut events, mut data) = (Framer::default(), Vec::new(), Vec::new());
    for chunk in chunks {
        let mut last = 0;
        framer.push(chunk, |piece| match piece {
            Piece::Data(range) => data.extend_from_slice(&chunk[range]),
            Piece::NextLine => data.push(b'\n'),
            Piece::End(end) => {
                assert!(last < end && end <= chunk.len(), "an event ends at {end} after {last}");
                last = end;
                events.push(std::mem::take(&mut data));
            }
        });
    }
    (events, data)
}

/// What the client gets, and what was read: in words, in tokens.
pub fn relayed(chunks: &[&[u8]], hide: bool, ends_apart: bool) -> (Vec<u8>, (String, u64)) {
    let mut relay = Relay::new(Encoding::O200kBase, hide, Coding::Identity);
    let mut out = Vec::new();
    let end: &[&[u8]] = if ends_apart { &[b""] } else { &[] };
    let all: Vec<&[u8]> = chunks.iter().chain(end).copied().collect();
    for (i, chunk) in all.iter().enumerate() {
        match relay.chunk(chunk, i + 1 == all.len()) {
            Some(instead) => out.extend(instead),
            None => out.extend_from_slice(chunk),
        }
    }
    relay.finish();
    let answer = relay.answer();
    let seen = format!("{:?} {:?} {}", relay.reading(), answer.usage(), answer.failed_at_once());
    (out, (seen, answer.delivered_tokens()))
}

/// `out` is `input` without some of the events that may be hidden, and without all that must be.
fn hidden(input: &[u8], events: &[Event], out: &[u8]) {
    let is_white = |byte: &u8| b" \t\r\n".contains(byte);
    let is_stream = input.iter().find(|b| !is_white(b)).is_some_and(|b| !b"{[".contains(b));
    let white = input.iter().position(|byte| !is_white(byte)).unwrap_or(input.len());
    // What has come of a byte order mark before the first event stays when that is hidden.
    let mark = events::mark(input);
    let kept = (0..=mark).rev().find(|&n| out.starts_with(&input[..n])).unwrap_or(0);
    // How much of the output may be that of the events so far.
    let mut places = vec![kept];
    for event in events {
        let raw = &input[event.raw.clone()];
        // White space goes out before it is known what the body is; the event it begins cannot be hidden.
        let must = is_stream
            && event.raw.start >= white
            && raw.len() <= ALWAYS_HIDDEN
            && is_usage_chunk(&event.data);
        let may = is_stream && may_be_usage_chunk(&event.data);
        let mut next = Vec::new();
        for at in places {
            let rest = &out[at..];
            if !must && rest.starts_with(raw) {
                next.push(at + raw.len());
            }
            if must || may {
                next.extend(comments(raw).filter(|&length| rest.starts_with(&raw[..length])).map(|n| at + n));
            }
        }
        next.sort_unstable();
        next.dedup();
        assert!(!next.is_empty(), "an event was changed: {:?}", String::from_utf8_lossy(raw));
        places = next;
    }
    let tail = &input[events.last().map_or(mark, |event| event.raw.end)..];
    assert!(
        places.iter().any(|&at| &out[at..] == tail),
        "the rest of the stream: {:?}",
        String::from_utf8_lossy(tail)
    );
}

/// The lengths of the whole comment lines at an event's start, which go out at once; and none of them.
fn comments(raw: &[u8]) -> impl Iterator<Item = usize> {
    let mut in_comment = true;
    let mut at_start = true;
    let ends = (0..raw.len()).filter(move |&i| {
        let is_end = matches!(raw[i], b'\r' | b'\n');
        let is_rest = raw[i] == b'\n' && i > 0 && raw[i - 1] == b'\r';
        if at_start && !is_rest {
            in_comment &= raw[i] == b':';
        }
        at_start = is_end;
        in_comment && is_end
    });
    std::iter::once(0).chain(ends.map(|i| i + 1))
}

/// By a strict reader. A name given twice could be read either way.
fn is_usage_chunk(data: &[u8]) -> bool {
    let Ok(value) = serde_json::from_slice::<Value>(data) else { return false };
    let keys = std::str::from_utf8(data).ok().and_then(|text| members(text).ok()).unwrap_or_default();
    let once = |name: &str| keys.iter().filter(|member| member.key == name).count() == 1;
    once("choices") && once("usage") && value["usage"].is_object() && value["choices"] == Value::Array(vec![])
}

/// By a lenient one: text that is no JSON in some depth, or not UTF-8, may still be taken for a usage chunk.
fn may_be_usage_chunk(data: &[u8]) -> bool {
    let text = String::from_utf8_lossy(data);
    match members(&text) {
        Ok(all) => {
            let some =
                |name: &str, good: &dyn Fn(&str) -> bool| all.iter().any(|m| m.key == name && good(m.raw));
            some("usage", &|raw| raw.starts_with('{'))
                && some("choices", &|raw| elements(raw).is_ok_and(|all| all.is_empty()))
        }
        Err(_) => text.trim_start().starts_with('{'),
    }
}
