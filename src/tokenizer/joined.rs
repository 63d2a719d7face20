//! The token count of a text that arrives in parts. Adding the counts of the parts would be wrong: `qu`
//! and `ick` are two tokens, `quick` is one.

use std::borrow::Cow;

use super::breaks::last_safe_break;
use super::long::Long;
use super::merge::{Scratch, count_piece};
use super::split::run::is_decided;
use super::vocabulary::Vocabulary;
use super::{Encoding, count_pieces, piece_end};

/// Text joined so far, counted as far as it need not be kept.
#[derive(Clone, Debug, Default)]
pub struct Joined {
    counted: u64,
    /// The piece before what is pending, where it has become too long to be kept.
    long: Option<Long>,
    pending: Vec<u8>,
}

impl Joined {
    pub fn push(&mut self, part: &[u8]) {
        self.pending.extend_from_slice(part);
    }

    /// Bytes kept that wait to be counted.
    pub fn kept(&self) -> usize {
        self.pending.len()
    }

    /// Counts so much that at most `keep` bytes, or about a hundred where that is less, wait to be counted. The
    /// count stays exact.
    pub fn compact(&mut self, encoding: Encoding, keep: usize) {
        self.make_valid();
        loop {
            if let Some(long) = &mut self.long {
                let Some(tokens) = long.read(&mut self.pending) else { return };
                self.count(tokens);
                self.long = None;
            }
            if let Some(end) = last_safe_break(&self.pending) {
                self.count(count_pieces(encoding, self.pending.get(..end).unwrap_or(&[])));
                self.pending.drain(..end.min(self.pending.len()));
            }
            if self.pending.len() > keep.max(LEAST_KEPT) {
                self.count_decided(encoding);
            }
            if self.pending.len() <= keep.max(LEAST_KEPT) {
                return;
            }
            self.long = Long::start(encoding, &mut self.pending);
            if self.long.is_none() {
                return;
            }
        }
    }

    /// Counts pieces up to the first that may end elsewhere when more text comes.
    fn count_decided(&mut self, encoding: Encoding) {
        let vocabulary = Vocabulary::of(encoding);
        let mut scratch = Scratch::default();
        let text = self.pending.get(..whole_characters(&self.pending)).unwrap_or(&[]);
        let (mut at, mut tokens) = (0, 0);
        while at < text.len() {
            let end = piece_end(encoding, text, at);
            if !is_decided(text, end) {
                break;
            }
            tokens += count_piece(vocabulary, text.get(at..end).unwrap_or(&[]), &mut scratch);
            at = end;
        }
        self.count(tokens);
        self.pending.drain(..at);
    }

    fn count(&mut self, tokens: u64) {
        self.counted = self.counted.saturating_add(tokens);
    }

    /// Puts U+FFFD for what is no UTF-8. What may be the start of a character stays.
    fn make_valid(&mut self) {
        let whole = whole_characters(&self.pending);
        let text = String::from_utf8_lossy(self.pending.get(..whole).unwrap_or(&[]));
        if let Cow::Owned(mut valid) = text {
            let rest = self.pending.split_off(whole);
            self.pending = std::mem::take(&mut valid).into_bytes();
            self.pending.extend(rest);
        }
    }

    /// Tokens of the whole text.
    pub fn total(&self, encoding: Encoding) -> u64 {
        let mut rest = String::from_utf8_lossy(&self.pending).into_owned().into_bytes();
        let long = self.long.clone().map_or(0, |long| long.finish(&mut rest));
        [long, count_pieces(encoding, &rest)].into_iter().fold(self.counted, u64::saturating_add)
    }
}

/// With less there might be nothing whose piece is sure.
const LEAST_KEPT: usize = 64;

/// The length without a character that is cut at the end.
fn whole_characters(bytes: &[u8]) -> usize {
    let Some(back) = bytes.iter().rev().take(4).position(|byte| byte & 0xc0 != 0x80) else {
        return bytes.len();
    };
    let start = bytes.len() - 1 - back;
    let length = match bytes.get(start) {
        Some(0xc0..0xe0) => 2,
        Some(0xe0..0xf0) => 3,
        Some(0xf0..) => 4,
        _ => 1,
    };
    if start + length > bytes.len() { start } else { bytes.len() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing)]
    use super::*;
    use crate::tokenizer::samples;

    #[test]
    fn parts_are_counted_joined() {
        let mut joined = Joined::default();
        for part in ["The", " qu", "ick", " bro", "wn", " fo", "x"] {
            joined.push(part.as_bytes());
        }
        assert_eq!(joined.total(Encoding::O200kBase), 4);
    }

    /// Counts a text that arrives in parts of this size, with as little kept as can be.
    fn count_parts(encoding: Encoding, text: &str, size: usize, keep: usize) -> u64 {
        let mut joined = Joined::default();
        for part in text.as_bytes().chunks(size) {
            joined.push(part);
            if joined.kept() > 2 * keep {
                joined.compact(encoding, keep);
                assert!(joined.kept() <= keep.max(LEAST_KEPT), "{} kept", joined.kept());
            }
        }
        joined.total(encoding)
    }

    #[track_caller]
    fn check(text: &str) {
        for &encoding in Encoding::ALL {
            let whole = encoding.count(text);
            for (size, keep) in [if text.len() < 2_000 { (7, 0) } else { (900, 64) }, (30_000, 5_000)] {
                let counted = count_parts(encoding, text, size, keep);
                let start: String = text.chars().take(300).collect();
                assert_eq!(counted, whole, "{encoding:?}, {size} bytes at a time: {start:?}");
            }
        }
    }

    #[test]
    fn compacting_keeps_the_count() {
        check(&"Words of 价格 and 🙂 with numbers 12345, again. ".repeat(300));
        for unit in samples::UNITS {
            for end in ["", "x", " x", "'s", "A", "\n", "  ", "!"] {
                check(&format!("{}{end}", unit.repeat(12_000 / unit.len())));
            }
        }
    }

    #[test]
    fn what_may_be_the_pieces_or_not() {
        for (start, run) in
            [("的", "A"), ("\n", " "), ("\r\n", "\u{3000}"), ("A", "Ab"), ("\n\n", "\t"), ("!\n", " ")]
        {
            for end in
                ["", "a", "A", "的", "'s", "'re x", "\n", "\n\n", " ", "!", " !", "1", "\u{301}", "/", "\n/"]
            {
                for times in [90, 7_000] {
                    let run = run.repeat(times);
                    check(&format!("{start}{run}{end}"));
                    check(&format!("{start}{run}{end}{start}{run}{run}{end}{end}"));
                }
            }
        }
    }

    #[test]
    fn made_up_texts() {
        for seed in 0..80 {
            check(&samples::text(seed, 20_000, &|number| format!("word{}", number % 1_000).into_bytes()));
        }
    }

    #[test]
    fn little_is_kept_of_a_long_piece() {
        for text in ["a", " ", "的", "\n ", "!"].map(|unit| unit.repeat(500_000)) {
            let mut joined = Joined::default();
            for part in text.as_bytes().chunks(8_000) {
                joined.push(part);
                joined.compact(Encoding::O200kBase, 8_000);
                let long = joined.long.as_ref().map_or(0, Long::kept);
                assert!(
                    joined.pending.capacity() + long < 60_000,
                    "{} and {long}",
                    joined.pending.capacity()
                );
            }
        }
    }

    #[test]
    fn what_is_no_text_is_replaced() {
        let mut joined = Joined::default();
        for part in [b"a\xff".repeat(100), b"\xf0\x9f".to_vec(), "价".repeat(100).as_bytes()[..298].to_vec()]
        {
            joined.push(&part);
            joined.compact(Encoding::O200kBase, 0);
        }
        let text = format!("{}\u{fffd}{}\u{fffd}", "a\u{fffd}".repeat(100), "价".repeat(99));
        assert_eq!(joined.total(Encoding::O200kBase), Encoding::O200kBase.count(&text));
    }

    proptest::proptest! {
        #[test]
        fn parts_of_any_text(
            units in proptest::collection::vec((proptest::sample::select(samples::UNITS), 1..60usize), 0..12),
            size in 1..300usize,
            keep in 0..300usize,
        ) {
            let text: String = units.iter().map(|(unit, times)| unit.repeat(*times)).collect();
            for &encoding in Encoding::ALL {
                proptest::prop_assert_eq!(count_parts(encoding, &text, size, keep), encoding.count(&text), "{:?}", text);
            }
        }
    }
}
