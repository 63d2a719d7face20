//! Splits a text into pieces as the encodings' regular expressions do, by hand: each piece is found in one
//! or two passes over it, whatever it holds.
//!
//! A piece is counted by itself, so the patterns decide as much as the vocabulary does.

pub mod cl100k;
#[cfg(feature = "deepseek_v3")]
pub mod deepseek;
pub mod o200k;
pub mod run;

use super::Encoding;
use super::classes::{BLANK, END, MARK, NEWLINE, NUMBER, OTHER, SPACE, class_at};

/// What the words of a pattern are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Words {
    /// `\p{L}+`.
    Letters,
    /// Upper-case letters, then lower-case ones, with the marks.
    Cased,
}

impl Words {
    pub fn of(encoding: Encoding) -> Self {
        match encoding {
            Encoding::O200kBase => Self::Cased,
            #[cfg(feature = "mistral")]
            Encoding::Mistral => Self::Cased,
            _ => Self::Letters,
        }
    }
}

/// `\p{N}{1,DIGITS}`, after its first character.
#[inline]
fn numbers<const DIGITS: usize>(text: &[u8], mut at: usize) -> usize {
    for _ in 1..DIGITS {
        match class_at(text, at) {
            (NUMBER, length) => at += length,
            _ => break,
        }
    }
    at
}

/// The end of `[^\s\p{L}\p{N}]*`.
#[inline]
fn symbols(text: &[u8], mut at: usize) -> usize {
    loop {
        match class_at(text, at) {
            (OTHER | MARK, length) => at += length,
            _ => return at,
        }
    }
}

/// A run of white space.
struct Space {
    end: usize,
    /// Where the last CR or LF ends.
    newline: Option<usize>,
    /// Where the last character starts.
    last: usize,
    is_last_of_text: bool,
}

#[inline]
fn space(text: &[u8], start: usize) -> Space {
    let mut run = Space { end: start, newline: None, last: start, is_last_of_text: false };
    loop {
        let (class, length) = class_at(text, run.end);
        match class {
            NEWLINE => run.newline = Some(run.end + length),
            BLANK | SPACE => {}
            _ => {
                run.is_last_of_text = class == END;
                return run;
            }
        }
        run.last = run.end;
        run.end += length;
    }
}

impl Space {
    /// `\s+(?!\S)`, and where that fails `\s`: the last white space before a word belongs to the word.
    fn without_last(&self, start: usize) -> usize {
        if self.is_last_of_text || self.last == start { self.end } else { self.last }
    }
}

/// The length of `'(?i:s|t|m|d|re|ve|ll)` at `at`, 0 if there is none. The long s is an s in another case.
#[inline]
pub fn contraction(text: &[u8], at: usize) -> usize {
    if text.get(at) != Some(&b'\'') {
        return 0;
    }
    let byte = |offset: usize| text.get(at + offset).copied().unwrap_or(0);
    match (byte(1) | 0x20, byte(2) | 0x20) {
        (b's' | b't' | b'm' | b'd', _) => 2,
        (b'r' | b'v', b'e') | (b'l', b'l') => 3,
        _ if (byte(1), byte(2)) == (0xc5, 0xbf) => 3,
        _ => 0,
    }
}
