//! Event streams: cut anywhere they read the same; what reaches the client is the stream itself, less whole
//! usage events where those are hidden.

use serde_json::Value;
use tokengate::dialect::openai::{Answer, UsageChunk};
use tokengate::headers::Coding;
use tokengate::json::members;
use tokengate::json::scan::Scanner;
use tokengate::sse::{Framer, Piece};
use tokengate::stream::relay::Relay;
use tokengate::tokenizer::Encoding;

use super::chunks::cuts;
use super::events::{self, Event};
use super::{magnitude, signature};

/// An event up to this long is hidden whatever its chunks.
const ALWAYS_HIDDEN: usize = 16 * 1024;
/// Lines times bytes of an input for which it is checked what was hidden: that takes as long as their product.
const MOST_CHECKED: usize = 1 << 18;

pub fn run(input: &[u8]) -> u64 {
    let (events, tail) = events::split(input);
    let is_checked = lines(input).count().saturating_mul(input.len()) <= MOST_CHECKED;
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
            assert!(out.len() <= input.len(), "nothing is added");
            if is_checked {
                hidden(input, &events, &out);
            }
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
            Piece::LineEnd(_) | Piece::ErrorName => {}
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
    let seen = format!("{:?} {:?} {}", relay.reading(), answer.usage(), answer.only_failed());
    (out, (seen, answer.delivered_tokens()))
}

/// `out` is `input` without some of what may be hidden, and without all that must be.
fn hidden(input: &[u8], events: &[Event], out: &[u8]) {
    let is_white = |byte: &u8| b" \t\r\n".contains(byte);
    let is_before = |byte: &u8| is_white(byte) || b"\xef\xbb\xbf".contains(byte);
    // What begins like gzip is read as gzip, and goes on as it is.
    let is_stream = input.first() != Some(&0x1f)
        && input.iter().find(|b| !is_before(b)).is_some_and(|b| !b"{[".contains(b));
    let white = input.iter().position(|byte| !is_before(byte)).unwrap_or(input.len());
    // What has come of a byte order mark before the first event stays when that is hidden.
    let mark = events::mark(input);
    let kept = (0..=mark).rev().find(|&n| out.starts_with(&input[..n])).unwrap_or(0);
    // How much of the output may be that of the events so far.
    let mut places = vec![kept];
    for event in events {
        let raw = &input[event.raw.clone()];
        // White space, and bytes as of a byte order mark, go out before it is known what the body is; the event that
        // they begin cannot be hidden.
        let must = is_stream
            && event.raw.start >= white
            && raw.len() <= ALWAYS_HIDDEN
            && usage_chunk(&event.data) == Some(UsageChunk::Only);
        let mut next = Vec::new();
        for at in places {
            let rest = &out[at..];
            if !must && rest.starts_with(raw) {
                next.push(at + raw.len());
            }
            if must {
                next.extend(comments(raw).filter(|&length| rest.starts_with(&raw[..length])).map(|n| at + n));
            } else if is_stream && may_change(&event.data) {
                next.extend(without_lines(raw, out, at));
            }
        }
        next.sort_unstable();
        next.dedup();
        assert!(!next.is_empty(), "an event was changed: {:?}", String::from_utf8_lossy(raw));
        places = next;
    }
    let tail = &input[events.last().map_or(mark, |event| event.raw.end)..];
    let ends =
        |at: usize| &out[at..] == tail || (is_stream && without_lines(tail, out, at).contains(&out.len()));
    assert!(places.iter().any(|&at| ends(at)), "the rest of the stream: {:?}", String::from_utf8_lossy(tail));
}

/// Where `out`, from `at`, may be when of `raw` some lines are left out or have lost their usage. None of them
/// has text.
fn without_lines(raw: &[u8], out: &[u8], at: usize) -> Vec<usize> {
    let mut places = vec![at];
    for line in lines(raw) {
        let data = line.strip_prefix(b"data:");
        let may_go = data.is_none_or(|data| {
            let mut answer = Answer::new(Encoding::O200kBase);
            Scanner::default().push(data, &mut answer);
            answer.next_event();
            answer.delivered_tokens() == 0
        });
        let mut next = Vec::new();
        for at in places {
            let rest = &out[at..];
            if rest.starts_with(line) {
                next.push(at + line.len());
            }
            if may_go {
                next.push(at);
            }
            if data.is_some() && rest.starts_with(b"data:") {
                next.extend(lines(rest).next().map(|edited| at + edited.len()));
            }
        }
        next.sort_unstable();
        next.dedup();
        places = next;
    }
    places
}

/// Lines with their ends.
fn lines(raw: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = raw;
    std::iter::from_fn(move || {
        let at = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n')).unwrap_or(rest.len());
        let end = if rest[at..].starts_with(b"\r\n") { at + 2 } else { rest.len().min(at + 1) };
        let (line, after) = rest.split_at(end);
        rest = after;
        (!line.is_empty()).then_some(line)
    })
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
fn usage_chunk(data: &[u8]) -> Option<UsageChunk> {
    const OWN: [&str; 9] = [
        "id",
        "object",
        "created",
        "model",
        "system_fingerprint",
        "service_tier",
        "obfuscation",
        "choices",
        "usage",
    ];
    let value: Value = serde_json::from_slice(data).ok()?;
    let keys = std::str::from_utf8(data).ok().and_then(|text| members(text).ok()).unwrap_or_default();
    let count = |name: &str| keys.iter().filter(|member| member.key == name).count();
    if count("choices") > 1 || count("usage") != 1 || !value["usage"].is_object() {
        return None;
    }
    let is_empty = value["choices"].is_null() || value["choices"] == Value::Array(vec![]);
    let has_more =
        value.as_object()?.iter().any(|(key, value)| !value.is_null() && !OWN.contains(&key.as_str()));
    is_empty.then_some(if has_more { UsageChunk::WithMore } else { UsageChunk::Only })
}

/// By a lenient one: text that is no JSON in some depth, or not UTF-8, may still be taken for a usage chunk, and so
/// may a line among several.
fn may_change(data: &[u8]) -> bool {
    let text = String::from_utf8_lossy(data);
    match members(&text) {
        Ok(all) => all.iter().any(|member| member.key == "usage" && member.raw.starts_with('{')),
        Err(_) => text.contains('\n') || text.trim_start().starts_with('{'),
    }
}
