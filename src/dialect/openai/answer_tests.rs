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
        (answer.usage().map(|usage| usage.total()), answer.delivered_tokens(), answer.failed_at_once())
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
        (r#"{"prompt_tokens":12,"completion_tokens":1e40}"#, Some(12)),
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
fn an_error_before_any_text_is_known() {
    let error = r#"{"error":{"message":"backend lost","type":"server_error","code":500}}"#;
    assert!(read(&[error]).2);
    assert!(!read(&[&delta("Hel"), error]).2);
    assert!(!read(&[r#"{"error":null,"choices":[]}"#]).2);
}

#[test]
fn only_the_usage_chunk_is_one() {
    for (event, is_usage_chunk) in [
        (r#"{"id":"x","choices":[],"usage":{"prompt_tokens":1}}"#, true),
        (r#"{"usage":{},"choices":[]}"#, true),
        (r#"{"choices":[],"usage":null}"#, false),
        (r#"{"choices":[],"prompt_filter_results":[{"prompt_index":0}]}"#, false),
        (r#"{"choices":[{"index":0}],"usage":{"prompt_tokens":1}}"#, false),
        (r#"{"choices":[null],"usage":{"prompt_tokens":1}}"#, false),
        (r#"{"choices":["x"],"usage":{"prompt_tokens":1}}"#, false),
        (r#"{"choices":null,"usage":{"prompt_tokens":1}}"#, false),
        (r#"{"usage":{"prompt_tokens":1}}"#, false),
        (r#"[{"choices":[],"usage":{}}]"#, false),
        (&format!(r#"{{"choices":[{}],"usage":{{}}}}"#, "1".repeat(65)), false),
    ] {
        let mut answer = Answer::new(Encoding::O200kBase);
        Scanner::default().push(event.as_bytes(), &mut answer);
        assert_eq!(answer.event_is_usage_chunk(), is_usage_chunk, "{event}");
        answer.next_event();
        assert!(!answer.event_is_usage_chunk());
    }
}
