//! Answers that are one JSON text: however it arrives, packed or not, the same usage is read.

use serde_json::Value;
use tokengate::dialect::openai::{Answer, UsageChunk};
use tokengate::gzip;
use tokengate::headers::Coding;
use tokengate::json::scan::Scanner;
use tokengate::stream::relay::Relay;
use tokengate::tokenizer::Encoding;

use super::chunks::cuts;
use super::{magnitude, signature};

/// Above it a number of tokens is not believed.
const MOST: u64 = 100_000_000;

/// What begins so is taken for gzip.
const GZIP: [u8; 1] = [0x1f];

pub fn run(input: &[u8]) -> u64 {
    let whole = read(&[input]);
    for chunks in cuts(input) {
        assert_eq!(read(&chunks), whole, "{} chunks are read as the whole is", chunks.len());
    }
    through_relay(input);
    if let Ok(value) = serde_json::from_slice::<Value>(input) {
        // A number or literal ends with what follows it.
        // Only what is nested deeper than it looks can it not know to be JSON.
        let is_value = value.is_object() || value.is_array();
        assert!(whole.is_done || !is_value, "JSON is taken");
        assert!(!whole.is_suspect, "nothing of it is suspect");
        if let Some(total) = usage(&value, input) {
            assert_eq!(whole.total, Some(total), "usage as another reader sees it");
        }
    }
    signature((
        whole.total.map(magnitude),
        magnitude(whole.delivered),
        whole.is_done,
        whole.is_suspect,
        whole.failed,
        whole.has_uncounted,
    ))
}

#[derive(Debug, PartialEq)]
struct Seen {
    total: Option<u64>,
    usage: String,
    delivered: u64,
    failed: bool,
    has_uncounted: bool,
    usage_chunk: UsageChunk,
    named: (Option<String>, Option<String>),
    is_done: bool,
    is_suspect: bool,
}

fn read(chunks: &[&[u8]]) -> Seen {
    let (mut scanner, mut answer) = (Scanner::default(), Answer::new(Encoding::O200kBase));
    for chunk in chunks {
        scanner.push(chunk, &mut answer);
    }
    let usage_chunk = answer.event_is_usage_chunk();
    assert!(usage_chunk == UsageChunk::No || answer.event_may_be_usage_chunk(), "is, so may be");
    answer.next_event();
    if let Some(usage) = answer.usage() {
        assert!(usage.total() > 0 && usage.total() <= 4 * MOST, "{usage:?}");
    }
    Seen {
        total: answer.usage().map(|usage| usage.total()),
        usage: format!("{:?}", answer.usage()),
        delivered: answer.delivered_tokens(),
        failed: answer.only_failed(),
        has_uncounted: answer.has_uncounted(),
        usage_chunk,
        named: (answer.model(), answer.service_tier()),
        is_done: scanner.is_done(),
        is_suspect: scanner.is_suspect(),
    }
}

/// What the relay reads is the same in gzip as in clear, and it changes neither.
fn through_relay(input: &[u8]) {
    let Some(packed) = gzip::deflate(input).filter(|_| !input.starts_with(&GZIP)) else { return };
    let seen = |relay: &Relay| {
        let answer = relay.answer();
        format!("{:?} {:?} {}", relay.reading(), answer.usage(), answer.only_failed())
    };
    let tokens = |relay: &Relay| relay.answer().delivered_tokens();
    let mut clear = Relay::new(Encoding::O200kBase, false, Coding::Identity);
    assert_eq!(clear.chunk(input, true), None, "nothing is changed");
    clear.finish();
    for chunks in cuts(&packed).iter().step_by(3) {
        let mut relay = Relay::new(Encoding::O200kBase, true, Coding::Gzip);
        for chunk in chunks {
            assert_eq!(relay.chunk(chunk, false), None, "nothing is changed");
        }
        relay.finish();
        assert_eq!(seen(&relay), seen(&clear), "in gzip, {} chunks", chunks.len());
        assert_eq!(tokens(&relay), tokens(&clear), "text in gzip, {} chunks", chunks.len());
    }
    // The input taken for gzip: most often it is none.
    let mut relay = Relay::new(Encoding::O200kBase, false, Coding::Gzip);
    assert_eq!(relay.chunk(input, true), None);
    relay.finish();
}

/// The sum of a plain report. Names given twice, escaped or of other servers are left to the chunk comparison.
fn usage(value: &Value, input: &[u8]) -> Option<u64> {
    let count = |name: &str| input.windows(name.len()).filter(|window| *window == name.as_bytes()).count();
    let once = |name: &str| count(name) == 1;
    let plain = ["\"usage\"", "\"prompt_tokens\"", "\"completion_tokens\""].into_iter().all(once);
    // Details, and what other servers say, would have to be known.
    let others = ["_tokens", "total_tokens"].map(count);
    if !plain || others[0] != 2 + others[1] || others[1] > 1 || input.contains(&b'\\') {
        return None;
    }
    let number = |name: &str| value["usage"][name].as_u64().filter(|n| *n <= MOST);
    let total = if others[1] == 1 { number("total_tokens")? } else { 0 };
    let parts = [number("prompt_tokens")?, number("completion_tokens")?];
    parts.iter().all(|part| *part > 0).then(|| total.max(parts[0] + parts[1]))
}
