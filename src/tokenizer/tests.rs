//! The count against tiktoken-rs, and against tiktoken for the vocabularies that are built in by feature.
#![allow(clippy::unwrap_used)]

use std::{ops::Range, thread};

use proptest::prelude::*;

use super::oracles::{Oracle, oracles};
use super::{Encoding, samples, work::steps_of};

impl Oracle {
    #[track_caller]
    fn check(&self, text: &str) {
        let counted = self.encoding.count(text);
        let start = || text.chars().take(500).collect::<String>();
        assert_eq!(counted, (self.count)(text), "{:?} {:?}", self.encoding, start());
    }
}

#[test]
fn published_counts() {
    for (unit, times, cl100k, o200k) in [
        ("", 1, 0, 0),
        ("hello world", 1, 2, 2),
        ("tiktoken is great!", 1, 6, 6),
        ("The quick brown fox jumps over the lazy dog.", 1, 10, 10),
        ("<|endoftext|>", 1, 7, 7),
        ("<|im_start|>", 1, 6, 6),
        ("<|endofprompt|>", 1, 7, 7),
        ("<|return|>", 1, 5, 5),
        ("<|im_start|>system<|im_end|>", 1, 13, 13),
        ("<|start|>system<|message|>x<|end|>", 1, 17, 17),
        ("你好世界", 1, 5, 2),
        ("お誕生日おめでとう", 1, 9, 8),
        ("👨\u{200d}👩\u{200d}👧\u{200d}👦", 1, 18, 11),
        ("héllo 🙂 wörld", 1, 7, 6),
        ("a", 40, 5, 5),
        ("a", 100_000, 12_500, 12_500),
        ("a", 1_000_000, 125_000, 125_000),
        ("A", 100_000, 12_500, 12_500),
        ("aA", 50_000, 100_000, 50_001),
        ("^", 1_000_000, 250_000, 125_000),
        ("'", 100_000, 50_000, 25_000),
        ("/", 100_000, 1_562, 1_563),
        ("0", 100_000, 33_334, 33_334),
        ("1\n", 50_000, 100_000, 100_000),
        (" ", 100_000, 782, 782),
        ("\t", 100_000, 6_250, 6_250),
        ("\n", 100_000, 3_125, 6_250),
        ("\n ", 50_000, 25_001, 25_001),
        ("\u{3000}", 100_000, 50_000, 6_250),
        ("\u{301}", 100_000, 100_000, 100_000),
        ("的", 100_000, 100_000, 100_000),
        ("🙂", 100_000, 200_000, 100_000),
    ] {
        let text = unit.repeat(times);
        assert_eq!(Encoding::Cl100kBase.count(&text), cl100k, "{unit:?} × {times}");
        assert_eq!(Encoding::O200kBase.count(&text), o200k, "{unit:?} × {times}");
    }
}

#[test]
fn every_token_alone_and_beside_the_next() {
    thread::scope(|scope| {
        for oracle in oracles() {
            scope.spawn(move || {
                let mut before = Vec::new();
                for rank in oracle.ranks.clone() {
                    let token = (oracle.token)(rank);
                    // A token is one token, whatever the patterns would make of it.
                    if let Ok(alone) = std::str::from_utf8(&token) {
                        oracle.check(alone);
                    }
                    before.extend(&token);
                    oracle.check(&String::from_utf8_lossy(&before));
                    before = token;
                }
            });
        }
    });
}

/// 5 MB.
#[test]
fn made_up_texts() {
    thread::scope(|scope| {
        for oracle in oracles() {
            scope.spawn(move || {
                let Range { start, end } = oracle.ranks;
                let token = |number: usize| (oracle.token)(start + number as u32 % (end - start));
                let mut checked = 0;
                for seed in 0.. {
                    let length = if seed % 50 == 0 { 20_000 } else { 1 + seed as usize % 997 };
                    let text = samples::text(seed, length, &token);
                    oracle.check(&text);
                    checked += text.len();
                    if checked >= 2_500_000 {
                        break;
                    }
                }
            });
        }
    });
}

proptest! {
    #[test]
    fn any_text(text in any::<String>(), words in "([a-zA-Z']{1,12}[ \t\r\n]{0,3}|[0-9]{1,5}|\\PC){0,60}") {
        for oracle in oracles() {
            oracle.check(&text);
            oracle.check(&words);
        }
    }

    #[test]
    fn units_in_any_order(units in prop::collection::vec(prop::sample::select(samples::UNITS), 0..40)) {
        for oracle in oracles() {
            oracle.check(&units.concat());
        }
    }
}

#[test]
fn what_makes_tiktoken_panic_is_counted() {
    for space in [" ", "\t", "\n", "\u{3000}", "\r\n"] {
        let text = space.repeat(1_200_000 / space.len());
        let counted = Encoding::O200kBase.count(&text);
        assert!((1..=text.len() as u64).contains(&counted));
    }
}

/// Twice the text, twice the work; and never much per byte.
#[test]
fn the_work_is_linear() {
    let letters: String = {
        let mut random = samples::Random::new(7);
        (0..40_000).map(|_| char::from(b'a' + random.below(26) as u8)).collect()
    };
    let near: Vec<String> = ["\t", "a", "\n", "  \t"]
        .iter()
        .flat_map(|odd| {
            [3, 17, 83, 127].map(|run| format!("{}{odd}", " ".repeat(run)).repeat(40_000 / (run + 2)))
        })
        .collect();
    let units = samples::UNITS.iter().map(|unit| unit.repeat(40_000 / unit.len()));
    let made_up = (0..60).map(|seed| samples::text(seed, 40_000, &|_| b" =-=-=-= ".to_vec()));
    for text in units.chain(made_up).chain(near).chain([letters]) {
        let twice = text.repeat(2);
        for &encoding in Encoding::ALL {
            let once = steps_of(|| _ = encoding.count(&text));
            let double = steps_of(|| _ = encoding.count(&twice));
            let start: String = text.chars().take(20).collect();
            assert!(double <= once * 21 / 10 + 40_000, "{start:?}: {once}, then {double}");
            assert!(once <= 40 * text.len() as u64, "{start:?}: {once} for {}", text.len());
        }
    }
}
