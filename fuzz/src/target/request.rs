//! Request bodies: what is accepted can be edited, and reads afterwards as it must.

use serde_json::Value;
use tokengate::dialect::openai::{ChatRequest, parse};
use tokengate::edits::Edits;
use tokengate::json::{Member, members};

use super::{magnitude, signature};

/// The members that edits may touch.
const EDITED: [&str; 8] = [
    "stream_options",
    "max_tokens",
    "max_completion_tokens",
    "n_predict",
    "num_predict",
    "max_new_tokens",
    "max_output_tokens",
    "min_tokens",
];
const ACTED_ON: [&str; 8] =
    ["model", "messages", "stream", "n", "n_cmpl", "models", "fallbacks", "input_ids"];

pub fn run(input: &[u8]) -> u64 {
    let request = match parse(input) {
        Ok(request) => request,
        Err(error) => {
            assert!(error.message.len() < 200, "a long message: {}", error.message);
            return signature(error.message.split_once(" (line").map_or(error.message.as_str(), |(m, _)| m));
        }
    };
    let text = std::str::from_utf8(input).expect("accepted, so it is UTF-8");
    let before = members(text).expect("accepted, so it is an object");
    for name in ACTED_ON.iter().chain(&EDITED) {
        let meant = before.iter().filter(|member| member.key.eq_ignore_ascii_case(name));
        assert!(
            meant.clone().count() <= 1 && meant.clone().all(|member| member.key == *name),
            "{name} twice"
        );
    }
    let largest = request.max_output_tokens().unwrap_or(0);
    for cap in [1, 7, 100, (largest / 2).max(1), largest.max(1), u64::MAX] {
        edited(&request, text, &before, cap);
    }
    let keys: Vec<&str> =
        before.iter().map(|member| member.key.as_str()).filter(|key| key.len() < 8).collect();
    signature((request.stream, magnitude(largest), request.include_usage().is_some(), keys))
}

fn edited(request: &ChatRequest, text: &str, before: &[Member<'_>], cap: u64) {
    let mut edits = Edits::default();
    request.output_limits().keep_to(cap, false, &mut edits);
    let is_given = |name: &str| before.iter().any(|m| m.key == name && !m.is_null());
    let inserts = [
        (!["max_tokens", "max_completion_tokens"].iter().any(|name| is_given(name))
            && !before.iter().any(|m| m.key == "max_tokens"))
        .then_some("max_tokens"),
        (request.include_usage().is_some() && !before.iter().any(|m| m.key == "stream_options"))
            .then_some("stream_options"),
    ];
    if let Some(edit) = request.include_usage() {
        edits.push(edit);
    }
    let out = edits.apply(text.as_bytes()).expect("the edits are within the body");
    assert_eq!(out.len(), edits.new_length(text.len()), "announced length");
    let (prefix, rest) = text.as_bytes().split_at(edits.end());
    let of_prefix = edits.apply(prefix).expect("the edits are within their own end");
    assert_eq!([&of_prefix, rest].concat(), out, "only the beginning need be written again");
    if edits.is_empty() {
        assert_eq!(out, text.as_bytes());
    }

    let again = parse(&out).expect("an edited body is read again");
    assert!(again.max_output_tokens().is_some_and(|limit| limit <= cap), "a limit above {cap}");
    assert_eq!(again.include_usage(), None, "usage is asked for");
    assert_eq!(
        (&request.model, request.stream, request.choices),
        (&again.model, again.stream, again.choices),
        "what was not edited"
    );
    let out = std::str::from_utf8(&out).expect("still UTF-8");
    let after = members(out).expect("still an object");
    assert_eq!(
        skeleton(out, &after, [None; 2]),
        skeleton(text, before, inserts),
        "bytes outside of the edits"
    );
    // Some bodies that we take are more than this reader takes: depth, lone surrogates, huge numbers.
    if let Ok(value) = serde_json::from_str::<Value>(out) {
        if request.stream {
            assert_eq!(value["stream_options"]["include_usage"], Value::Bool(true));
        }
        // A number beyond 64 bits is the largest of them, so that nothing lowers it to that.
        for name in EDITED[1..7].iter().filter(|_| cap < u64::MAX) {
            assert!(value[*name].as_f64().is_none_or(|limit| limit <= cap as f64), "{name} above {cap}");
        }
    }
}

/// The text without the values that may be edited; `inserts` puts in the names that edits add.
fn skeleton(text: &str, members: &[Member<'_>], inserts: [Option<&str>; 2]) -> String {
    let (mut out, mut from) = (String::new(), 0);
    for member in members.iter().filter(|member| EDITED.contains(&member.key.as_str())) {
        out.push_str(&text[from..member.offset]);
        from = member.offset + member.raw.len();
    }
    out.push_str(&text[from..]);
    for name in inserts.into_iter().flatten().collect::<Vec<_>>().into_iter().rev() {
        out = out.replacen('{', &format!("{{\"{name}\":,"), 1);
    }
    out
}
