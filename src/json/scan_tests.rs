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
    (record, scanner.is_done(), scanner.is_broken())
}

const SAMPLE: &str = r#" {"usage": {"prompt_tokens":12,"x":[1.5e3,true,null,-0.1]}, "ch\u006fices":[{"index":0,
 "delta":{"content":"a\"\\\/\b\f\n\r\t\u4ef7\ud83d\ude00价\ud83d x \ud83d\n\udc00\ud83d\ud83d\ude00"}},[],{}],"error":null}
"#;

#[test]
fn reads_paths_texts_and_scalars() {
    let (record, done, broken) = scan(&[SAMPLE.as_bytes()]);
    assert!(done && !broken);
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
fn what_is_not_json_breaks_it() {
    for bad in [
        "[1}",
        "{1}",
        "{\"a\" 1}",
        "{\"a\":1,}",
        "]",
        "[\"\\x\"]",
        "[\"\\u12g4\"]",
        "{}{}",
        "data",
        "{,}",
        "[,]",
        "{\"a\":1]",
    ] {
        let (_, done, broken) = scan(&[bad.as_bytes()]);
        assert!(broken && !done, "{bad}");
    }
    let deep = "[".repeat(10_000);
    assert!(scan(&[deep.as_bytes()]).2);
}

#[test]
fn an_unfinished_value_is_neither_done_nor_broken() {
    for open in ["", " ", "{", "{\"a", "{\"a\\", "{\"a\":", "[1", "[\"\\ud83d"] {
        let (_, done, broken) = scan(&[open.as_bytes()]);
        assert!(!done && !broken, "{open}");
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
