//! Answers that are one JSON text: however it arrives, packed or not, the same usage is read.

use serde_json::Value;
use tokengate::dialect::openai::Answer;
use tokengate::gzip;
use tokengate::headers::Coding;
use tokengate::json::scan::Scanner;
use tokengate::stream::relay::{Reading, Relay};
use tokengate::tokenizer::Encoding;

use super::chunks::cuts;
use super::{magnitude, signature};

/// Above it a number of tokens is not believed.
const ABSURD: u64 = 1 << 40;

pub fn run(input: &[u8]) -> u64 {
    let whole = read(&[input]);
    for chunks in cuts(input) {
        assert_eq!(read(&chunks), whole, "{} chunks are read as the whole is", chunks.len());
    }
    through_relay(input);
    if let Ok(value) = serde_json::from_slice::<Value>(input) {
        // A number or literal ends with what follows it.
        assert!(
            !whole.is_broken && (whole.is_done || !(value.is_object() || value.is_array())),
            "JSON is taken"
        );
        if let Some((prompt, completion)) = usage(&value, input) {
            assert_eq!(whole.total, Some(prompt + completion), "usage as another reader sees it");
        }
    }
    signature((
        whole.total.map(magnitude),
        magnitude(whole.delivered),
        whole.is_done,
        whole.is_broken,
        whole.failed,
    ))
}

#[derive(Debug, PartialEq)]
struct Seen {
    total: Option<u64>,
    usage: String,
    delivered: u64,
    failed: bool,
    is_usage_chunk: bool,
    is_done: bool,
    is_broken: bool,
}

fn read(chunks: &[&[u8]]) -> Seen {
    let (mut scanner, mut answer) = (Scanner::default(), Answer::new(Encoding::O200kBase));
    for chunk in chunks {
        scanner.push(chunk, &mut answer);
    }
    let is_usage_chunk = answer.event_is_usage_chunk();
    assert!(!is_usage_chunk || answer.event_may_be_usage_chunk(), "is, so may be");
    answer.next_event();
    if let Some(usage) = answer.usage() {
        assert!(usage.total() > 0 && usage.total() <= 2 * ABSURD, "{usage:?}");
    }
    Seen {
        total: answer.usage().map(|usage| usage.total()),
        usage: format!("{:?}", answer.usage()),
        delivered: answer.delivered_tokens(),
        failed: answer.failed_at_once(),
        is_usage_chunk,
        is_done: scanner.is_done(),
        is_broken: scanner.is_broken(),
    }
}

/// What the relay reads is the same in gzip as in clear, and it changes neither.
fn through_relay(input: &[u8]) {
    let Some(packed) = gzip::deflate(input) else { return };
    let seen = |relay: &Relay| {
        let answer = relay.answer();
        format!("{:?} {:?} {}", relay.reading(), answer.usage(), answer.failed_at_once())
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
        assert_ne!(relay.reading(), Reading::Unreadable);
        assert_eq!(seen(&relay), seen(&clear), "in gzip, {} chunks", chunks.len());
        assert_eq!(tokens(&relay), tokens(&clear), "text in gzip, {} chunks", chunks.len());
    }
    // The input taken for gzip: most often it is none.
    let mut relay = Relay::new(Encoding::O200kBase, false, Coding::Gzip);
    assert_eq!(relay.chunk(input, true), None);
    relay.finish();
}

/// The numbers of a plain report. Names given twice, or escaped, are left to the chunk comparison.
fn usage(value: &Value, input: &[u8]) -> Option<(u64, u64)> {
    let once =
        |name: &str| input.windows(name.len()).filter(|window| *window == name.as_bytes()).count() == 1;
    let plain = ["\"usage\"", "\"prompt_tokens\"", "\"completion_tokens\""].into_iter().all(once);
    if !plain || input.contains(&b'\\') {
        return None;
    }
    let number = |name: &str| value["usage"][name].as_u64().filter(|n| (1..=ABSURD).contains(n));
    Some((number("prompt_tokens")?, number("completion_tokens")?))
}
