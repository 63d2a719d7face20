#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use super::*;

/// Writes the value down again, with texts joined.
#[derive(Default, PartialEq, Debug)]
struct Record {
    events: Vec<String>,
    text: Vec<u8>,
}

fn show(path: &[Frame]) -> String {
    let frame = |f: &Frame| match f {
        Frame::Item => "[]".to_owned(),
        Frame::Member(name) => format!("{name:?}"),
    };
    path.iter().map(frame).collect::<Vec<_>>().join(".")
}

impl Visitor for Record {
    fn open(&mut self, path: &[Frame], container: Container) {
        self.events.push(format!("{} open {container:?}", show(path)));
    }
    fn close(&mut self, path: &[Frame], container: Container) {
        self.events.push(format!("{} close {container:?}", show(path)));
    }
    fn text(&mut self, _: &[Frame], piece: &[u8]) {
        self.text.extend_from_slice(piece);
    }
    fn text_end(&mut self, path: &[Frame]) {
        let text = String::from_utf8_lossy(&std::mem::take(&mut self.text)).into_owned();
        self.events.push(format!("{} text {text}", show(path)));
    }
    fn scalar(&mut self, path: &[Frame], literal: &[u8]) {
        self.events.push(format!("{} scalar {}", show(path), String::from_utf8_lossy(literal)));
    }
}

fn scan(pieces: &[&[u8]]) -> (Record, bool, bool) {
    let (mut scanner, mut record) = (Scanner::default(), Record::default());
    for piece in pieces {
        scanner.push(piece, &mut record);
    }
    (record, scanner.is_done(), scanner.is_suspect())
}

const SAMPLE: &str = r#" {"usage": {"prompt_tokens":12,"x":[1.5e3,true,null,-0.1]}, "ch\u006fices":[{"index":0,
 "delta":{"content":"a\"\\\/\b\f\n\r\t\u4ef7\ud83d\ude00价\ud83d x \ud83d\n\udc00\ud83d\ud83d\ude00"}},[],{}],"error":null}
"#;

#[test]
fn reads_paths_texts_and_scalars() {
    let (record, done, suspect) = scan(&[SAMPLE.as_bytes()]);
    assert!(done && !suspect);
    let text = "a\"\\/\u{8}\u{c}\n\r\t价😀价\u{fffd} x \u{fffd}\n\u{fffd}\u{fffd}😀";
    for expected in [
        "Usage.PromptTokens scalar 12".to_owned(),
        "Usage.Other.[] scalar 1.5e3".to_owned(),
        "Choices.[].Index scalar 0".to_owned(),
        format!("Choices.[].Delta.Content text {text}"),
        "Error scalar null".to_owned(),
        " close Object".to_owned(),
    ] {
        assert!(record.events.contains(&expected), "{expected} not in {:#?}", record.events);
    }
}

/// It is there, and no number.
#[test]
fn a_scalar_that_is_too_long_has_no_text() {
    for (digits, text) in [(64, "1".repeat(64)), (65, String::new()), (1_000, String::new())] {
        let json = format!("[{}]", "1".repeat(digits));
        for cut in [1, 40, 65] {
            let (a, b) = json.as_bytes().split_at(cut.min(json.len()));
            assert_eq!(scan(&[a, b]).0.events[1], format!("[] scalar {text}"), "{digits} digits");
        }
    }
}

#[test]
fn every_cut_and_one_byte_at_a_time_give_the_same() {
    let whole = scan(&[SAMPLE.as_bytes()]);
    for cut in 0..=SAMPLE.len() {
        let (a, b) = SAMPLE.as_bytes().split_at(cut);
        assert_eq!(scan(&[a, b]), whole, "cut at {cut}");
    }
    let bytes: Vec<&[u8]> = SAMPLE.as_bytes().chunks(1).collect();
    assert_eq!(scan(&bytes), whole);
}

#[test]
fn what_is_no_json_hides_nothing_behind_it() {
    let deep = format!("{}{}", "[{\"a\":".repeat(3_000), "1}]".repeat(3_000));
    let texts_within = format!("{}\"]}}\\\"\"{}", "[".repeat(100), "]".repeat(100));
    for value in [
        "NaN",
        "Infinity",
        "-Infinity",
        "undefined",
        "None",
        "+1",
        ".5",
        "0x1f",
        "'single'",
        "1 2",
        "\"\\x\"",
        "\"\\u12g4\"",
        "\"\\u12\"",
        "\"\\ud800\\u12\"",
        "",
        "[1,]",
        "[,]",
        "[1 2]",
        "[\"a\" \"b\"]",
        "{,}",
        "{\"a\":1,}",
        "{\"a\" 1}",
        "{\"a\"}",
        "{a:1}",
        "{\"a\":1 \"b\":2}",
        "{\"a\"::1}",
        "{{}}",
        "[1}",
        "{\"a\":[1}",
        "<html>",
        &deep,
        &texts_within,
    ] {
        let json = format!("{{\"x\":{value},\"usage\":{{\"prompt_tokens\":7}}}}");
        let whole = scan(&[json.as_bytes()]);
        let start: String = json.chars().take(60).collect();
        assert!(whole.0.events.contains(&"Usage.PromptTokens scalar 7".to_owned()), "{start}");
        assert!(whole.1, "{start} is not done");
        assert!(whole.2 || value == deep || value == texts_within, "{start} is not suspect");
        for cut in 0..json.len().min(100) {
            let (a, b) = json.as_bytes().split_at(cut);
            assert_eq!(scan(&[a, b]), whole, "{start} cut at {cut}");
        }
    }
}

#[test]
fn json_behind_json_is_read() {
    for between in ["", "\n", " data: ", "\u{1e}", "]", "},"] {
        let json = format!("{{\"usage\":1}}{between}{{\"usage\":2}}");
        let (record, done, _) = scan(&[json.as_bytes()]);
        assert!(done && record.events.contains(&"Usage scalar 2".to_owned()), "{json}");
    }
    for (json, is_one) in [("{}", true), (" {} \n", true), ("{}{}", false), ("{} x", false), ("{}]", false)] {
        let mut scanner = Scanner::default();
        scanner.push(json.as_bytes(), &mut Record::default());
        assert_eq!((scanner.is_done(), scanner.is_one_value()), (true, is_one), "{json}");
    }
}

/// Arguments are wanted as they are written.
#[derive(Default)]
struct Raw(Vec<u8>);

impl Visitor for Raw {
    fn open(&mut self, _: &[Frame], _: Container) {}
    fn close(&mut self, _: &[Frame], _: Container) {}
    fn text(&mut self, path: &[Frame], _: &[u8]) {
        assert_eq!(path, [Frame::Member(Name::Content)], "nothing within is visited");
    }
    fn text_end(&mut self, _: &[Frame]) {}
    fn scalar(&mut self, _: &[Frame], _: &[u8]) {
        unreachable!()
    }
    fn wants_raw(&self, path: &[Frame]) -> bool {
        path == [Frame::Member(Name::Arguments)]
    }
    fn raw(&mut self, path: &[Frame], piece: &[u8]) {
        assert_eq!(path, [Frame::Member(Name::Arguments)]);
        self.0.extend_from_slice(piece);
    }
}

#[test]
fn a_value_is_handed_on_as_it_is_written() {
    for value in [r#"{"a": [1, "b\"}", {"c":null}], "d":NaN }"#, "[]", "{}", &"[".repeat(100)] {
        let closing = if value.starts_with("[[") { "]".repeat(100) } else { String::new() };
        let json = format!("{{\"content\":\"x\",\"arguments\": {value}{closing} ,\"content\":\"y\"}}");
        for cut in 0..json.len() {
            let (mut scanner, mut raw) = (Scanner::default(), Raw::default());
            scanner.push(&json.as_bytes()[..cut], &mut raw);
            scanner.push(&json.as_bytes()[cut..], &mut raw);
            assert_eq!(String::from_utf8_lossy(&raw.0), format!("{value}{closing}"), "cut at {cut}");
            assert!(scanner.is_done());
        }
    }
}

#[test]
fn an_unfinished_value_is_not_done() {
    for open in ["", " ", "{", "{\"a", "{\"a\\", "{\"a\":", "[1", "[\"\\ud83d"] {
        let (_, done, suspect) = scan(&[open.as_bytes()]);
        assert!(!done && !suspect, "{open}");
    }
}

#[test]
fn huge_keys_and_numbers_do_not_grow_it() {
    let text = format!("{{\"{}\":{},\"usage\":1}}", "k".repeat(100_000), "9".repeat(100_000));
    let (mut scanner, mut record) = (Scanner::default(), Record::default());
    for piece in text.as_bytes().chunks(7) {
        scanner.push(piece, &mut record);
    }
    assert!(scanner.is_done());
    assert!(scanner.token.capacity() <= 2 * MAX_SCALAR);
    assert!(record.events.contains(&"Usage scalar 1".to_owned()), "{:?}", record.events);
}

proptest::proptest! {
    #[test]
    fn never_panics(bytes: Vec<u8>) {
        scan(&[&bytes]);
    }
}
