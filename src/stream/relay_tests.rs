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
        assert!(relay.passing.waiting_bytes() <= MAX_WAITING);
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
        let (client, relay) = self::relay(true, &[b"\xef", b"\xbb\xbf", a, b]);
        assert_eq!(client, format!("\u{feff}{body}").as_bytes());
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
    assert_eq!(broken.chunk(b"\x1f\x8b no gzip at all\n\n", true), None);
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

#[test]
fn the_first_bytes_decide_what_a_coding_leaves_open() {
    let stream = format!("{ROLE}\n\n{TEXT}\n\n{USAGE}\n\ndata: [DONE]\n\n");
    let packed = crate::gzip::deflate(stream.as_bytes()).unwrap_or_default();
    for (coding, body, total_read, reading) in [
        // Gzip without a word, and no gzip where it is promised.
        (Coding::Identity, packed.as_slice(), Some(11), Reading::Events),
        (Coding::Gzip, stream.as_bytes(), Some(11), Reading::Events),
        (Coding::Other, packed.as_slice(), None, Reading::Unreadable),
        (Coding::Other, stream.as_bytes(), Some(11), Reading::Unreadable),
        // Compressed in another way; some begins as JSON does.
        (Coding::Identity, b"\x28\xb5\x2f\xfd\x24\x05\x29\x00\x00", None, Reading::Unreadable),
        (Coding::Identity, b"\x78\x9c\x4b\x2c\x01\x00", None, Reading::Unreadable),
        (Coding::Identity, b"[\x08\x00\xa4\xb0\xb2\x6a", None, Reading::Unreadable),
        (Coding::Identity, b"{\x00\x80\xaa\x1d\x47", None, Reading::Unreadable),
        (Coding::Identity, b"<html>busy</html>", None, Reading::Events),
        // Text of another encoding in events that are events.
        (Coding::Identity, b"data: caf\xe9\n\n", None, Reading::Events),
    ] {
        for size in [1, 1_000] {
            let mut relay = Relay::new(Encoding::O200kBase, coding != Coding::Identity, coding);
            for chunk in body.chunks(size) {
                assert_eq!(relay.chunk(chunk, false), None, "nothing is changed");
            }
            relay.chunk(b"", true);
            relay.finish();
            assert_eq!((total(&relay), relay.reading()), (total_read, reading), "{coding:?} {body:?}");
        }
    }
}

/// Servers that put one line end between their lines of data.
#[test]
fn lines_that_are_events_each() {
    for end in ["\n", "\r\n", "\r"] {
        let lines = |lines: &[&str]| lines.join(end);
        for (stream, client, charge) in [
            (
                lines(&[ROLE, TEXT, USAGE, "data: [DONE]", "", ""]),
                lines(&[ROLE, TEXT, "data: [DONE]", "", ""]),
                Some(11),
            ),
            (lines(&[TEXT, USAGE, "", ""]), lines(&[TEXT, "", ""]), Some(11)),
            (lines(&[USAGE, TEXT, "", ""]), lines(&[TEXT, "", ""]), Some(11)),
            (lines(&[USAGE, USAGE, "", ": x", ""]), lines(&[": x", ""]), Some(11)),
            (lines(&[TEXT, USAGE]), lines(&[TEXT, ""]), Some(11)),
            (lines(&[TEXT, USAGE, ""]), lines(&[TEXT, ""]), Some(11)),
            (lines(&[TEXT, USAGE, "data:", "", ""]), lines(&[TEXT, "", ""]), Some(11)),
            (
                lines(&["id: 1", TEXT, "id: 2", USAGE, "id: 3", "data: [DONE]", "", ""]),
                lines(&["id: 1", TEXT, "id: 3", "data: [DONE]", "", ""]),
                Some(11),
            ),
            // One value over several lines, behind one that is whole.
            (
                lines(&[
                    TEXT,
                    "data: {\"choices\":[],",
                    "data: \"usage\":{\"prompt_tokens\":5,\"completion_tokens\":3}}",
                    "data: [DONE]",
                    "",
                    "",
                ]),
                lines(&[TEXT, "data: [DONE]", "", ""]),
                Some(8),
            ),
        ] {
            every_cut(true, &stream, &client, charge);
            every_cut(false, &stream, &stream, charge);
        }
    }
}

#[test]
fn a_line_that_is_cut_off_hides_none_behind_it() {
    let usage = &USAGE[6..];
    for broken in
        ["data: {nonsense", "data: {\"choices\":[{\"delta\":{\"content\":\"Hel", "data: {\"a\":NaN,,"]
    {
        let stream = format!("{broken}\ndata: {usage}\n\n");
        every_cut(false, &stream, &stream, Some(11));
        every_cut(true, &stream, &stream, Some(11));
    }
    // Twice in a line: read, and not taken out.
    for line in [format!("data: data: {usage}"), format!("data: {{}}{usage}"), format!("data: {usage}{{}}")] {
        let stream = format!("{line}\n\ndata: [DONE]\n\n");
        every_cut(true, &stream, &stream, Some(11));
    }
}

#[test]
fn text_of_lines_is_counted_by_events() {
    let line = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word\"}}]}\n";
    let stream = line.repeat(40);
    let (_, relay) = relay(false, &[stream.as_bytes()]);
    assert_eq!(relay.answer().delivered_tokens(), 40);
}

#[test]
fn only_usage_is_taken_out_of_a_chunk_with_more() {
    const U: &str = r#""usage":{"prompt_tokens":9,"completion_tokens":2}"#;
    for (chunk, left) in [
        (
            format!(r#"data: {{"choices":[],{U},"citations":["x"]}}"#),
            r#"data: {"choices":[],"citations":["x"]}"#,
        ),
        (
            format!(r#"data: {{"choices":[],"citations":["x"] , {U} }}"#),
            r#"data: {"choices":[],"citations":["x"] }"#,
        ),
        (format!(r#"data:{{{U},"choices":null,"timings":{{}}}}"#), r#"data:{"choices":null,"timings":{}}"#),
        (
            format!(r#"data: {{ {U} , {U},"timings":{{"{U_IN_TEXT}":1}}}}"#),
            r#"data: {"timings":{"usage":1}}"#,
        ),
        (format!(r#"data: {{"x":1,{U},{U}}}"#), r#"data: {"x":1}"#),
        (
            "data: {\"choices\":[],\"us\\u0061ge\":{\"prompt_tokens\":9,\"completion_tokens\":2},\"x\":1}"
                .to_owned(),
            r#"data: {"choices":[],"x":1}"#,
        ),
        (
            format!("id: 4\ndata: {{\"x\":1,\ndata: {U}\n: ping\ndata: ,\"y\":2}}"),
            "id: 4\ndata: {\"x\":1\ndata: \n: ping\ndata: ,\"y\":2}",
        ),
    ] {
        let stream = format!("{TEXT}\n\n{chunk}\n\ndata: [DONE]\n\n");
        let client = format!("{TEXT}\n\n{left}\n\ndata: [DONE]\n\n");
        every_cut(true, &stream, &client, Some(11));
        every_cut(false, &stream, &stream, Some(11));
        let run = format!("{TEXT}\n{chunk}\ndata: [DONE]\n\n");
        every_cut(true, &run, &format!("{TEXT}\n{left}\ndata: [DONE]\n\n"), Some(11));
    }
    // What cannot be told for sure goes on as it is.
    let stream = format!("data: {{\"choices\":[],\"x\":NaN,{U}}}\n\n");
    every_cut(true, &stream, &stream, Some(11));
}

const U_IN_TEXT: &str = "usage";

#[test]
fn usage_chunks_whose_choices_are_null_or_absent() {
    for members in ["\"choices\":null,", "", "\"id\":\"x\",\"choices\":[],\"x\":null,"] {
        let usage = format!("data: {{{members}\"usage\":{{\"prompt_tokens\":9,\"completion_tokens\":2}}}}");
        let stream = format!("{TEXT}\n\n{usage}\n\ndata: [DONE]\n\n");
        every_cut(true, &stream, &format!("{TEXT}\n\ndata: [DONE]\n\n"), Some(11));
    }
}

#[test]
fn json_with_something_behind_it_is_whole() {
    let body = r#"{"choices":[{"message":{"content":"hello"}}]}"#;
    let usage = r#"{"usage":{"prompt_tokens":9,"completion_tokens":2}}"#;
    for (body, complete, charge) in [
        (format!("{body}\ndata: [DONE]\n\n"), true, None),
        (format!("{body}\n{usage}\n"), true, Some(11)),
        (format!("{body}{usage}\n{{\"choi"), false, Some(11)),
        (format!("{body} and more"), true, None),
    ] {
        for cut in 0..body.len() {
            let (a, b) = body.as_bytes().split_at(cut);
            let (client, relay) = relay(true, &[a, b]);
            assert_eq!(client, body.as_bytes());
            assert_eq!((total(&relay), relay.reading()), (charge, Reading::Json { complete }), "{body}");
            assert_eq!(relay.answer().delivered_tokens(), 1);
        }
    }
}

#[test]
fn an_event_named_error_is_one() {
    for (stream, only_failed) in [
        ("event: error\ndata: {\"message\":\"overloaded\"}\n\n", true),
        ("event:error\ndata: overloaded\n\n", true),
        ("data: {\"message\":\"overloaded\"}\nevent: error\n\n", true),
        ("event: error\n\ndata: [DONE]\n\n", false),
        ("event: message\ndata: {\"message\":\"overloaded\"}\n\n", false),
        ("event: error\ndata: {}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n", false),
    ] {
        for cut in 0..stream.len() {
            let (a, b) = stream.as_bytes().split_at(cut);
            assert_eq!(relay(false, &[a, b]).1.answer().only_failed(), only_failed, "{stream:?} at {cut}");
        }
    }
}

#[test]
fn a_stream_that_must_end_ends_between_lines() {
    let line = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word\"}}]}";
    for end in ["\n", "\r\n", "\r"] {
        let stream = format!("{line}{end}").repeat(5);
        let mut relay = Relay::new(Encoding::O200kBase, true, Coding::Identity);
        assert_eq!(relay.chunk(b": begins\n\n", false), None);
        let must_end = |_, answer: &Answer| answer.delivered_tokens() >= 3;
        let (out, is_ended) = relay.chunk_until(stream.as_bytes(), b"data: last\n\n", must_end);
        let out = String::from_utf8(out.unwrap_or_default()).unwrap_or_default();
        let blank = if end == "\r" { "\n\n" } else { "\n" };
        assert!(is_ended);
        assert_eq!(out, format!("{}{blank}data: last\n\n", format!("{line}{end}").repeat(3)), "{end:?}");
    }
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
