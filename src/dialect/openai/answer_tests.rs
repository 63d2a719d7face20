#![allow(clippy::indexing_slicing)]

use super::*;
use crate::json::scan::Scanner;

/// Reads events, each cut in two at every place; gives the last reading after checking that all agree.
fn read(events: &[&str]) -> (Option<u64>, u64, bool) {
    let at_cut = |cut: usize| {
        let mut answer = Answer::new(Encoding::O200kBase);
        for event in events {
            let mut scanner = Scanner::default();
            let (a, b) = event.as_bytes().split_at(cut.min(event.len()));
            scanner.push(a, &mut answer);
            scanner.push(b, &mut answer);
            answer.next_event();
        }
        (answer.usage().map(|usage| usage.total()), answer.delivered_tokens(), answer.only_failed())
    };
    let longest = events.iter().map(|event| event.len()).max().unwrap_or(0);
    let whole = at_cut(0);
    for cut in 1..longest {
        assert_eq!(at_cut(cut), whole, "cut at {cut}");
    }
    whole
}

fn delta(text: &str) -> String {
    format!(r#"{{"choices":[{{"index":0,"delta":{{"content":"{text}"}}}}],"usage":null}}"#)
}

#[test]
fn the_last_usable_report_wins() {
    let report = |prompt, completion| {
        format!(
            r#"{{"choices":[],"usage":{{"prompt_tokens":{prompt},"completion_tokens":{completion},"total_tokens":{}}}}}"#,
            prompt + completion
        )
    };
    for (events, charge) in [
        (vec![report(8, 4)], Some(12)),
        (vec![delta("a"), r#"{"choices":[],"usage":{}}"#.to_owned(), report(0, 0), report(20, 10)], Some(30)),
        (vec![report(10, 1), report(10, 2), report(10, 3), report(10, 4)], Some(14)),
        (vec![report(5, 5), report(0, 0), delta("x")], Some(10)),
        (vec![report(5, 5), r#"{"choices":[],"x_cost":0.01}"#.to_owned()], Some(10)),
        (vec![delta("a")], None),
        (vec![r#"{"usage":"none"}"#.to_owned(), "[1]".to_owned(), "{".to_owned()], None),
    ] {
        let events: Vec<&str> = events.iter().map(String::as_str).collect();
        assert_eq!(read(&events).0, charge, "{events:?}");
    }
}

#[test]
fn each_number_is_tolerated_by_itself() {
    for (usage, charge) in [
        (
            r#"{"prompt_tokens":12,"completion_tokens":3,"total_tokens":15,"prompt_tokens_details":{"cached_tokens":null,
            "cache_write_tokens":null},"completion_tokens_details":null,"cost":"0.01"}"#,
            Some(15),
        ),
        (r#"{"prompt_tokens":12.0,"completion_tokens":"3","total_tokens":null}"#, Some(15)),
        (r#"{"prompt_tokens":6,"total_tokens":9}"#, Some(9)),
        (r#"{"completion_tokens":6,"total_tokens":9}"#, Some(9)),
        (r#"{"total_tokens":9}"#, Some(9)),
        (r#"{"prompt_tokens":12,"completion_tokens":1e40}"#, None),
        (r#"{"prompt_tokens":100000000,"completion_tokens":1}"#, Some(100_000_001)),
        (r#"{"prompt_tokens":100000001,"completion_tokens":1}"#, None),
        (
            r#"{"prompt_tokens":1,"completion_tokens":1,"completion_tokens_details":{"reasoning_tokens":1e9}}"#,
            None,
        ),
        (r#"{"prompt_tokens":NaN,"completion_tokens":3}"#, Some(3)),
        (r#"{"prompt_tokens":12,"completion_tokens":3,"cost":Infinity}"#, Some(15)),
        (r#"{"input_tokens":12,"output_tokens":3}"#, Some(15)),
        (r#"{"prompt_tokens":0,"completion_tokens":0,"input_tokens":12,"output_tokens":3}"#, Some(15)),
        (r#"{"prompt_tokens":9000000000000000,"completion_tokens":1}"#, None),
        (r#"{"prompt_tokens":-5,"completion_tokens":{}}"#, None),
        (
            r#"{"prompt_tokens":1000,"completion_tokens":10,"prompt_tokens_details":{"cached_tokens":900}}"#,
            Some(1010),
        ),
        (
            r#"{"prompt_tokens":10,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":99}}"#,
            Some(12),
        ),
    ] {
        let event = format!(r#"{{"usage":{usage}}}"#);
        assert_eq!(read(&[&event]).0, charge, "{usage}");
    }
}

#[test]
fn classes_are_disjoint() {
    let mut answer = Answer::new(Encoding::O200kBase);
    let body = br#"{"usage":{"prompt_tokens":100,"completion_tokens":50,
        "prompt_tokens_details":{"cached_tokens":60,"cache_write_tokens":10},
        "completion_tokens_details":{"reasoning_tokens":20}}}"#;
    Scanner::default().push(body, &mut answer);
    let expected = Usage { input: 30, cache_read: 60, cache_write: 10, output: 30, reasoning: 20 };
    assert_eq!(answer.usage(), Some(expected));
}

#[test]
fn delivered_text_is_joined_per_choice_and_channel() {
    let count = |text| Encoding::O200kBase.count(text);
    let pieces: Vec<String> = ["inter", "national", "iza", "tion"].map(delta).to_vec();
    let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
    assert_eq!(read(&pieces).1, count("internationalization"));
    let events = [
        r#"{"choices":[{"delta":{"content":"qu","reasoning_content":"Let"},"index":1},{"index":0,"delta":{"content":"a"}}]}"#,
        r#"{"choices":[{"delta":{"content":"ick","reasoning_content":" me"},"index":1}]}"#,
        r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"function":{"name":"f","arguments":"{\"a\":"}}]}}]}"#,
        r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"function":{"arguments":"1}"}}]}}]}"#,
    ];
    let expected = count("quick") + count("Let me") + count("a") + count("f") + count(r#"{"a":1}"#);
    assert_eq!(read(&events).1, expected);
    let message =
        r#"{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":"hello world"}}]}"#;
    assert_eq!(read(&[message]).1, 2);
}

#[test]
fn usage_is_found_where_servers_put_it() {
    const USAGE: &str = r#""usage":{"prompt_tokens":9,"completion_tokens":2}"#;
    for (event, charge) in [
        (format!("{{{USAGE}}}"), Some(11)),
        (format!("[{{{USAGE}}}]"), Some(11)),
        (format!(r#"{{"x_groq":{{"id":"x",{USAGE}}}}}"#), Some(11)),
        (format!(r#"{{"choices":[{{"index":0,"delta":{{}},{USAGE}}}]}}"#), Some(11)),
        (format!(r#"{{"choices":[{{"index":0,"delta":{{{USAGE}}}}}]}}"#), Some(11)),
        (format!(r#"{{"message":{{{USAGE}}}}}"#), Some(11)),
        (format!(r#"{{"response":{{{USAGE}}}}}"#), Some(11)),
        (format!(r#"{{"choices":[{{"logprobs":{{"x":[NaN,-Infinity]}}}}],{USAGE}}}"#), Some(11)),
        (format!(r#"{{"x":{}1{},{USAGE}}}"#, "[".repeat(5_000), "]".repeat(5_000)), Some(11)),
        (format!(r#"{{"x":{{{USAGE}}}}}"#), None),
        (
            format!(
                r#"{{"choices":[{{"message":{{"tool_calls":[{{"function":{{"arguments":{{{USAGE}}}}}}}]}}}}]}}"#
            ),
            None,
        ),
    ] {
        let mut answer = Answer::new(Encoding::O200kBase);
        Scanner::default().push(event.as_bytes(), &mut answer);
        let start: String = event.chars().take(60).collect();
        assert_eq!(answer.usage().map(|usage| usage.total()), charge, "{start}");
    }
}

#[test]
fn a_later_report_replaces_only_what_it_says() {
    let read = |reports: &[&str]| {
        let mut answer = Answer::new(Encoding::O200kBase);
        for report in reports {
            Scanner::default().push(format!(r#"{{"usage":{report}}}"#).as_bytes(), &mut answer);
            answer.next_event();
        }
        let usage = answer.usage().unwrap_or_default();
        (usage.input, usage.cache_read, usage.output, usage.reasoning)
    };
    for (reports, expected) in [
        (vec![r#"{"prompt_tokens":9}"#, r#"{"completion_tokens":2}"#], (9, 0, 2, 0)),
        (
            vec![
                r#"{"prompt_tokens":9,"completion_tokens":2}"#,
                r#"{"prompt_tokens":0,"completion_tokens":0}"#,
            ],
            (9, 0, 2, 0),
        ),
        (
            vec![
                r#"{"prompt_tokens":9,"total_tokens":9}"#,
                r#"{"prompt_tokens":0,"completion_tokens":2,"total_tokens":2}"#,
            ],
            (9, 0, 2, 0),
        ),
        (
            vec![
                r#"{"prompt_tokens":9,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":4}}"#,
                r#"{"prompt_tokens":9,"completion_tokens":5}"#,
            ],
            (5, 4, 5, 0),
        ),
        (
            vec![
                r#"{"prompt_tokens":9,"completion_tokens":5,"completion_tokens_details":{"reasoning_tokens":3}}"#,
                r#"{"prompt_tokens":9,"completion_tokens":6,"completion_tokens_details":null}"#,
            ],
            (9, 0, 3, 3),
        ),
        (
            vec![
                r#"{"prompt_tokens":9,"completion_tokens":2,"total_tokens":31}"#,
                r#"{"prompt_tokens":9,"completion_tokens":2,"total_tokens":0}"#,
            ],
            (9, 0, 2, 20),
        ),
        (
            vec![
                r#"{"prompt_tokens":9,"completion_tokens":2}"#,
                r#"{"prompt_tokens_details":{"cached_tokens":4}}"#,
            ],
            (5, 4, 2, 0),
        ),
        // The sum of the first report is not that of the second.
        (
            vec![
                r#"{"prompt_tokens":9,"completion_tokens":1,"total_tokens":30}"#,
                r#"{"prompt_tokens":9,"completion_tokens":5}"#,
            ],
            (9, 0, 5, 0),
        ),
        (
            vec![
                r#"{"prompt_tokens":9,"completion_tokens":2}"#,
                r#"{"prompt_tokens":1099511627776,"completion_tokens":1}"#,
            ],
            (9, 0, 2, 0),
        ),
    ] {
        assert_eq!(read(&reports), expected, "{reports:?}");
    }
}

/// Tokens counted, and whether there was more that cannot be.
fn delivered(members: &str) -> (u64, bool) {
    let event = format!(r#"{{"choices":[{{"index":0,{members}}}]}}"#);
    let counts = |cut: usize| {
        let mut answer = Answer::new(Encoding::O200kBase);
        let mut scanner = Scanner::default();
        scanner.push(&event.as_bytes()[..cut], &mut answer);
        scanner.push(&event.as_bytes()[cut..], &mut answer);
        answer.next_event();
        (answer.delivered_tokens(), answer.has_uncounted())
    };
    let whole = counts(0);
    for cut in 1..event.len() {
        assert_eq!(counts(cut), whole, "{event} cut at {cut}");
    }
    whole
}

#[test]
fn every_text_counts_and_nothing_else() {
    let words = "one two three four five six seven eight nine ten";
    let count = Encoding::O200kBase.count(words);
    let base64 = "QUJD".repeat(100);
    for (members, times, has_more) in [
        (format!(r#""delta":{{"content":"{words}"}}"#), 1, false),
        (format!(r#""delta":{{"content":[{{"type":"text","text":"{words}"}}]}}"#), 1, false),
        (
            format!(
                r#""delta":{{"content":[{{"type":"thinking","thinking":"{words}","signature":"{base64}"}}]}}"#
            ),
            1,
            false,
        ),
        (
            format!(
                r#""message":{{"content":[{{"type":"thinking","thinking":[{{"type":"text","text":"{words}"}}]}},{{"type":"text","text":"{words}"}}]}}"#
            ),
            2,
            false,
        ),
        (format!(r#""delta":{{"thinking":"{words}"}}"#), 1, false),
        (format!(r#""delta":{{"reasoning":"{words}","reasoning_content":"{words}"}}"#), 1, false),
        (
            format!(
                r#""delta":{{"reasoning":"{words}","reasoning_details":[{{"type":"reasoning.text","text":"{words}","format":"x","id":"y"}}]}}"#
            ),
            1,
            false,
        ),
        (
            format!(
                r#""delta":{{"reasoning_details":[{{"type":"reasoning.summary","summary":"{words}"}}]}}"#
            ),
            1,
            false,
        ),
        (format!(r#""delta":{{"reasoning_content":"{words}","content":"{words}"}}"#), 2, false),
        (format!(r#""delta":{{"refusal":"{words}"}}"#), 1, false),
        (
            format!(
                r#""delta":{{"tool_calls":[{{"id":"call_1","type":"custom","custom":{{"input":"{words}"}}}}]}}"#
            ),
            1,
            false,
        ),
        (format!(r#""message":{{"function_call":{{"arguments":"{words}"}}}}"#), 1, false),
        (format!(r#""delta":{{"content":"{words}"}},"message":{{"content":"{words}"}}"#), 1, false),
        (format!(r#""text":"{words}""#), 1, false),
        (
            format!(
                r#""delta":{{"role":"assistant","annotations":[{{"url_citation":{{"title":"{words}"}}}}]}}"#
            ),
            0,
            false,
        ),
        (format!(r#""delta":{{"content":"{words}","x":"{words}"}}"#), 2, true),
        (r#""delta":{"x":[1,2,3]}"#.to_owned(), 0, true),
        (r#""delta":{"content":null,"x":null,"y":{},"z":[],"v":"","audio":null,"n":1}"#.to_owned(), 0, false),
        (format!(r#""delta":{{"audio":{{"id":"a","data":"{base64}"}}}}"#), 0, true),
        (format!(r#""delta":{{"audio":{{"transcript":"{words}"}}}}"#), 1, true),
        (
            format!(
                r#""message":{{"images":[{{"type":"image_url","image_url":{{"url":"data:image/png;base64,{base64}"}}}}]}}"#
            ),
            0,
            true,
        ),
        (
            format!(
                r#""delta":{{"reasoning_details":[{{"type":"reasoning.encrypted","data":"{base64}"}}]}}"#
            ),
            0,
            true,
        ),
    ] {
        assert_eq!(delivered(&members), (times * count, has_more), "{members}");
    }
    let arguments = r#"{"city": "Ghent", "days": [1, 2]}"#;
    let call = format!(r#""delta":{{"tool_calls":[{{"function":{{"name":"f","arguments":{arguments}}}}}]}}"#);
    let expected = Encoding::O200kBase.count("f") + Encoding::O200kBase.count(arguments);
    assert_eq!(delivered(&call), (expected, false));
}

#[test]
fn text_so_far_beside_a_delta_counts_once() {
    let events = ["one", "one two", "one two three"].map(|so_far| {
        let delta = so_far.rsplit_once(' ').map_or("one".to_owned(), |(_, last)| format!(" {last}"));
        format!(
            r#"{{"choices":[{{"index":0,"message":{{"role":"assistant","content":"{so_far}"}},"delta":{{"content":"{delta}"}}}}]}}"#
        )
    });
    let events: Vec<&str> = events.iter().map(String::as_str).collect();
    assert_eq!(read(&events).1, 3);
}

#[test]
fn an_error_is_known_wherever_it_is() {
    let error = r#"{"error":{"message":"backend lost","type":"server_error","code":500}}"#;
    for (events, only_failed) in [
        (vec![error], true),
        (vec![r#"{"error":"lost"}"#], true),
        (vec![r#"[{"error":{"code":400}}]"#], true),
        (
            vec![r#"{"choices":[{"index":0,"error":{"code":502,"message":"x"},"finish_reason":"error"}]}"#],
            true,
        ),
        (
            vec![
                r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":"error"}]}"#,
            ],
            true,
        ),
        (vec![r#"{"choices":[{"delta":{"error":{"message":"x"}}}]}"#], true),
        (vec![r#"{"choices":null,"error_type":"overloaded","error_message":"x"}"#], true),
        (vec![r#"{"id":"","errorMessage":"x"}"#], true),
        (vec![r#"{"object":"error","message":"x","code":400}"#], true),
        (vec![r#"{"type":"error","message":"x"}"#], true),
        (vec![r#"{"detail":"Not Found"}"#], true),
        (vec![r#"{"choices":null,"base_resp":{"status_code":1004,"status_msg":"x"}}"#], true),
        (vec![r#"{"error":null,"choices":[]}"#], false),
        (
            vec![
                r#"{"error":""}"#,
                r#"{"error":{}}"#,
                r#"{"error":[]}"#,
                r#"{"error":false}"#,
                r#"{"error":0}"#,
            ],
            false,
        ),
        (vec![r#"{"error":{"message":"","code":null,"details":[]}}"#], false),
        (vec![r#"{"choices":null,"base_resp":{"status_code":0,"status_msg":"success"}}"#], false),
        (vec![r#"{"choices":[{"message":{"content":""}}],"error_count":1}"#], false),
        (vec![r#"{"choices":[]}"#], false),
    ] {
        assert_eq!(read(&events).2, only_failed, "{events:?}");
        let text = delta("Hel");
        assert!(!read(&[&[text.as_str()], &events[..]].concat()).2, "text, then {events:?}");
        assert!(!read(&[&events[..], &[text.as_str()]].concat()).2, "{events:?}, then text");
        let audio = r#"{"choices":[{"delta":{"audio":{"data":"QUJD"}}}]}"#;
        assert!(!read(&[&events[..], &[audio]].concat()).2, "{events:?}, then audio");
    }
}

#[test]
fn the_model_and_the_tier_that_answered() {
    for (events, model, tier) in [
        (
            vec![r#"{"model":" GPT-4o-mini ","service_tier":"Priority"}"#],
            Some("gpt-4o-mini"),
            Some("priority"),
        ),
        (
            vec![r#"{"model":"a","service_tier":"flex"}"#, r#"{"model":"","service_tier":null}"#],
            Some("a"),
            Some("flex"),
        ),
        (vec![r#"{"model":"a"}"#, r#"{"model":"b"}"#], Some("b"), None),
        (vec![r#"{"model":7,"service_tier":"two words"}"#], None, None),
        (vec!["{\"model\":\"a\\nb\"}"], None, None),
    ] {
        let mut answer = Answer::new(Encoding::O200kBase);
        for event in &events {
            Scanner::default().push(event.as_bytes(), &mut answer);
            answer.next_event();
        }
        assert_eq!(
            (answer.model().as_deref(), answer.service_tier().as_deref()),
            (model, tier),
            "{events:?}"
        );
    }
    let mut answer = Answer::new(Encoding::O200kBase);
    Scanner::default().push(format!(r#"{{"model":"{}"}}"#, "m".repeat(100_000)).as_bytes(), &mut answer);
    assert_eq!(answer.model(), None);
}

#[test]
fn only_the_usage_chunk_is_one() {
    let whole = r#"{"id":"x","object":"o","created":1,"model":"m","system_fingerprint":"f","service_tier":"t",
        "obfuscation":"b","choices":[],"usage":{"prompt_tokens":1}}"#;
    for (event, is_usage_chunk) in [
        (r#"{"id":"x","choices":[],"usage":{"prompt_tokens":1}}"#, true),
        (whole, true),
        (r#"{"usage":{},"choices":[],"x":null}"#, true),
        (r#"{"choices":"x","usage":{"prompt_tokens":1}}"#, false),
        (r#"{"choices":{"x":1},"usage":{"prompt_tokens":1}}"#, false),
        (r#"{"choices":[],"usage":null}"#, false),
        (r#"{"choices":[],"prompt_filter_results":[{"prompt_index":0}]}"#, false),
        (r#"{"choices":[{"index":0}],"usage":{"prompt_tokens":1}}"#, false),
        (r#"{"choices":[null],"usage":{"prompt_tokens":1}}"#, false),
        (r#"{"choices":["x"],"usage":{"prompt_tokens":1}}"#, false),
        (r#"{"choices":null,"usage":{"prompt_tokens":1}}"#, true),
        (r#"{"usage":{"prompt_tokens":1}}"#, true),
        (r#"[{"choices":[],"usage":{}}]"#, false),
        (&format!(r#"{{"choices":[{}],"usage":{{}}}}"#, "1".repeat(65)), false),
    ] {
        let mut answer = Answer::new(Encoding::O200kBase);
        Scanner::default().push(event.as_bytes(), &mut answer);
        let expected = if is_usage_chunk { UsageChunk::Only } else { UsageChunk::No };
        assert_eq!(answer.event_is_usage_chunk(), expected, "{event}");
        answer.next_event();
        assert_eq!(answer.event_is_usage_chunk(), UsageChunk::No);
    }
    for member in [r#""citations":["x"]"#, r#""timings":{}"#, r#""error":{"message":"x"}"#, r#""x_groq":{}"#]
    {
        let mut answer = Answer::new(Encoding::O200kBase);
        let event = format!(r#"{{"choices":[],{member},"usage":{{"prompt_tokens":1}}}}"#);
        Scanner::default().push(event.as_bytes(), &mut answer);
        assert_eq!(answer.event_is_usage_chunk(), UsageChunk::WithMore, "{event}");
    }
}
