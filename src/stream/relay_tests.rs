#![allow(clippy::indexing_slicing)]

use super::*;

fn relay(hide: bool, chunks: &[&[u8]]) -> (Vec<u8>, Relay) {
    let (mut relay, mut client) = (Relay::new(Encoding::O200kBase, hide, Coding::Identity), Vec::new());
    for chunk in chunks {
        match relay.chunk(chunk, false) {
            Some(instead) => client.extend(instead),
            None => client.extend_from_slice(chunk),
        }
    }
    let rest = relay.chunk(b"", true);
    client.extend(rest.unwrap_or_default());
    relay.finish();
    (client, relay)
}

fn total(relay: &Relay) -> Option<u64> {
    relay.answer().usage().map(|usage| usage.total())
}

/// Whole, cut at every byte, and byte by byte: always the same usage and the same client bytes.
fn every_cut(hide: bool, stream: &str, client: &str, charge: Option<u64>) {
    let check = |chunks: &[&[u8]], how: &str| {
        let (bytes, relay) = relay(hide, chunks);
        assert_eq!(String::from_utf8_lossy(&bytes), client, "{how}: {stream:?}");
        assert_eq!(total(&relay), charge, "{how}: {stream:?}");
    };
    check(&[stream.as_bytes()], "whole");
    for cut in 0..=stream.len() {
        let (a, b) = stream.as_bytes().split_at(cut);
        check(&[a, b], &format!("cut at {cut}"));
    }
    for size in [1, 2, 3, 7] {
        let chunks: Vec<&[u8]> = stream.as_bytes().chunks(size).collect();
        check(&chunks, &format!("chunks of {size}"));
    }
}

const ROLE: &str =
    r#"data: {"id":"c","choices":[{"index":0,"delta":{"role":"assistant","content":""}}],"usage":null}"#;
const TEXT: &str =
    r#"data: {"id":"c","choices":[{"index":0,"delta":{"content":"价格: \"}{\" é"}}],"usage":null}"#;
const USAGE: &str =
    r#"data: {"id":"c","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11}}"#;

#[test]
fn the_usage_chunk_is_hidden_at_every_cut() {
    for end in ["\n\n", "\r\n\r\n", "\r\r", "\n\r\n"] {
        let stream = format!("{ROLE}{end}{TEXT}{end}{USAGE}{end}data: [DONE]{end}");
        let client = format!("{ROLE}{end}{TEXT}{end}data: [DONE]{end}");
        every_cut(true, &stream, &client, Some(11));
        every_cut(false, &stream, &stream, Some(11));
    }
}

#[test]
fn only_the_usage_chunk_is_hidden() {
    let usage = &USAGE[6..];
    for (stream, client, charge) in [
        (
            // Azure's first chunk, usage beside choices, usage without a space, several lines, an id.
            format!(
                "data: {{\"choices\":[],\"prompt_filter_results\":[]}}\n\n{TEXT}\n\ndata:{usage}\n\n: ping\n\ndata: [DONE]\n\n"
            ),
            format!(
                "data: {{\"choices\":[],\"prompt_filter_results\":[]}}\n\n{TEXT}\n\n: ping\n\ndata: [DONE]\n\n"
            ),
            Some(11),
        ),
        (
            format!("{TEXT}\n\nid: 7\nevent: x\n{USAGE}\n\ndata: [DONE]\n\n"),
            format!("{TEXT}\n\ndata: [DONE]\n\n"),
            Some(11),
        ),
        (
            "data: {\"choices\":[{\"index\":0,\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":6,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n"
                .to_owned(),
            "data: {\"choices\":[{\"index\":0,\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":6,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n"
                .to_owned(),
            Some(8),
        ),
        (
            "data: {\"choices\":[],\ndata: \"usage\":{\"prompt_tokens\":5,\"completion_tokens\":3}}\n\ndata: [DONE]\n\n"
                .to_owned(),
            "data: [DONE]\n\n".to_owned(),
            Some(8),
        ),
        (format!("{USAGE}\n\n"), String::new(), Some(11)),
        ("retry: 3000\n\nid: 7\n\n: ping\n\ndata:\n\n".to_owned(), "retry: 3000\n\nid: 7\n\n: ping\n\ndata:\n\n".to_owned(), None),
        ("data: \"usage\"\n\ndata: {broken\n\nnonsense\n\n".to_owned(), "data: \"usage\"\n\ndata: {broken\n\nnonsense\n\n".to_owned(), None),
    ] {
        every_cut(true, &stream, &client, charge);
    }
}

#[test]
fn an_event_without_its_end_is_read_and_passed_on() {
    for end in ["", "\n", "\r\n"] {
        let stream = format!("{TEXT}\n\n{USAGE}{end}");
        every_cut(true, &stream, &stream, Some(11));
    }
}

#[test]
fn text_goes_on_at_once_and_a_possible_usage_chunk_waits() {
    let mut relay = Relay::new(Encoding::O200kBase, true, Coding::Identity);
    let begun = &TEXT.as_bytes()[..40];
    assert_eq!(relay.chunk(begun, false), None, "choices are there: it cannot be the usage chunk");
    assert_eq!(relay.chunk(&TEXT.as_bytes()[40..], false), None);
    assert_eq!(relay.chunk(b"\n\n", false), None);
    assert_eq!(relay.chunk(b": ping\n", false), None, "a comment keeps the connection alive");
    assert_eq!(relay.chunk(b"\n", false), None);
    assert_eq!(relay.chunk(&USAGE.as_bytes()[..30], false), Some(Vec::new()));
    assert_eq!(relay.chunk(&USAGE.as_bytes()[30..], false), Some(Vec::new()));
    assert_eq!(relay.chunk(b"\n\ndata: ", false), Some(Vec::new()), "another may follow");
    assert_eq!(relay.chunk(b"[DONE]\n\n", false), Some(b"data: [DONE]\n\n".to_vec()));
}

#[test]
fn an_event_that_began_with_white_space_goes_whole() {
    let event = "\ndata:{\"choices\":[],\"usage\":{\"prompt_tokens\":1}}\n\ndata: [DONE]\n\n";
    let (client, _) = relay(true, &[b" ", event.as_bytes()]);
    assert_eq!(String::from_utf8_lossy(&client), format!(" {event}"));
}

/// JSON knows four kinds of white space. What begins with another is no JSON, wherever it is cut.
#[test]
fn a_form_feed_before_an_object() {
    let object = "{\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2}}";
    let (with, without) = (format!("\u{c}{object}"), format!(" \t\r\n{object}"));
    every_cut(false, &with, &with, None);
    every_cut(false, &without, &without, Some(11));
}

#[test]
fn an_endless_event_is_let_go() {
    let mut relay = Relay::new(Encoding::O200kBase, true, Coding::Identity);
    let mut client = relay.chunk(b"data: {\"x\":\"", false).unwrap_or_default();
    for _ in 0..100 {
        let chunk = [b'a'; 1024];
        client.extend(relay.chunk(&chunk, false).unwrap_or_else(|| chunk.to_vec()));
        assert!(relay.waiting.len() <= MAX_WAITING);
    }
    assert_eq!(client.len(), 12 + 100 * 1024);
}

#[test]
fn large_events_do_not_hide_the_usage_behind_them() {
    let large = format!("data: {{\"partial_image\":\"{}\"}}\n\n", "A".repeat(3 << 20));
    let stream = format!("{large}{USAGE}\n\n");
    let chunks: Vec<&[u8]> = stream.as_bytes().chunks(16 * 1024).collect();
    let (client, relay) = relay(true, &chunks);
    assert_eq!(client.len(), large.len());
    assert_eq!(total(&relay), Some(11));
}

#[test]
fn json_is_read_and_never_changed() {
    let body = r#"{"choices":[{"message":{"content":"hello world"}}],"usage":{"prompt_tokens":8,"completion_tokens":2}}"#;
    for cut in 0..body.len() {
        let (a, b) = body.as_bytes().split_at(cut);
        let (client, relay) = relay(true, &[b"\n ", a, b]);
        assert_eq!(client, format!("\n {body}").as_bytes());
        assert_eq!((total(&relay), relay.reading()), (Some(10), Reading::Json { complete: true }));
    }
    let (_, cut) = relay(false, &[&body.as_bytes()[..50]]);
    assert_eq!(cut.reading(), Reading::Json { complete: false });
    assert_eq!(relay(false, &[b"", b"\n"]).1.reading(), Reading::Empty);
}

#[test]
fn coded_answers_pass_untouched() {
    let mut relay = Relay::new(Encoding::O200kBase, true, Coding::Other);
    assert_eq!(relay.chunk(b"\x1f\x8b\x08", true), None);
    assert_eq!(relay.reading(), Reading::Unreadable);
}

#[test]
fn gzip_is_read_along_at_every_cut() {
    let stream = format!("{ROLE}\n\n{TEXT}\n\n{USAGE}\n\ndata: [DONE]\n\n");
    let packed = crate::gzip::deflate(stream.as_bytes()).unwrap_or_default();
    for cut in 0..=packed.len() {
        let mut relay = Relay::new(Encoding::O200kBase, true, Coding::Gzip);
        assert_eq!(relay.chunk(&packed[..cut], false), None);
        assert_eq!(relay.chunk(&packed[cut..], true), None);
        relay.finish();
        assert_eq!((total(&relay), relay.reading()), (Some(11), Reading::Events), "cut at {cut}");
    }
    let mut broken = Relay::new(Encoding::O200kBase, true, Coding::Gzip);
    assert_eq!(broken.chunk(b"data: no gzip at all\n\n", true), None);
    assert_eq!(broken.reading(), Reading::Unreadable);
}

#[test]
fn a_line_feed_goes_only_with_the_event_that_it_ends() {
    // The hidden event ends in a CR, and so does a later one of the same chunk; the LF is the later one's.
    let (bytes, _) = relay(true, &[format!("{USAGE}\r\r: x\r\r").as_bytes(), b"\ndata: [DONE]\n\n"]);
    assert_eq!(String::from_utf8_lossy(&bytes), ": x\r\r\ndata: [DONE]\n\n");
    let (bytes, _) = relay(true, &[format!("{USAGE}\r\r").as_bytes(), b"\ndata: [DONE]\n\n"]);
    assert_eq!(String::from_utf8_lossy(&bytes), "data: [DONE]\n\n");
}

proptest::proptest! {
    #[test]
    fn without_hiding_every_byte_passes(stream: Vec<u8>, size in 1usize..9) {
        let chunks: Vec<&[u8]> = stream.chunks(size).collect();
        proptest::prop_assert_eq!(relay(false, &chunks).0, stream.clone());
    }

    #[test]
    fn chunking_never_changes_what_the_client_gets(
        events in proptest::collection::vec("(data: ?|id: 1\r?\n|: x\n)?[{}\\[\\]a\":,\r\n]{0,12}\n?\n?", 0..6),
        at in 0usize..6,
        size in 1usize..12,
    ) {
        let mut events = events;
        events.insert(at.min(events.len()), format!("\n\n{USAGE}\n\n"));
        let stream = events.concat().into_bytes();
        let chunks: Vec<&[u8]> = stream.chunks(size).collect();
        let (pieces, cut) = relay(true, &chunks);
        let (bytes, whole) = relay(true, &[&stream]);
        proptest::prop_assert_eq!(total(&cut), total(&whole));
        proptest::prop_assert_eq!(String::from_utf8_lossy(&pieces), String::from_utf8_lossy(&bytes));
    }
}
