//! The pieces of cl100k_base:
//!
//! ```text
//! '(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+
//! |\s++$|\s*[\r\n]|\s+(?!\S)|\s
//! ```
//!
//! and of those whose patterns differ from it in little.

use super::{contraction, numbers, space, symbols};
use crate::tokenizer::classes::{BLANK, LETTER, LOWER, MARK, NUMBER, OTHER, SPACE, UPPER, class_at};

/// The end of the piece that starts at `start`. A number has up to `DIGITS` digits. White space that ends the text
/// is one piece if `END_IS_ONE`, else it ends with its last CR or LF as any other does.
#[inline]
pub fn piece_end<const DIGITS: usize, const END_IS_ONE: bool>(text: &[u8], start: usize) -> usize {
    let (class, length) = class_at(text, start);
    let next = start + length;
    match class {
        UPPER | LOWER | LETTER => letters(text, next),
        NUMBER => numbers::<DIGITS>(text, next),
        BLANK | SPACE | OTHER | MARK => {
            let contracted = contraction(text, start);
            if contracted > 0 {
                return start + contracted;
            }
            match (class, class_at(text, next).0) {
                (_, UPPER | LOWER | LETTER) => letters(text, next),
                (OTHER | MARK, _) | (BLANK, OTHER | MARK) => symbols_and_ends(text, next),
                _ => white_space::<END_IS_ONE>(text, start),
            }
        }
        _ => white_space::<END_IS_ONE>(text, start),
    }
}

/// The end of `\p{L}*`.
#[inline]
fn letters(text: &[u8], mut at: usize) -> usize {
    loop {
        match class_at(text, at) {
            (UPPER | LOWER | LETTER, length) => at += length,
            _ => return at,
        }
    }
}

fn symbols_and_ends(text: &[u8], at: usize) -> usize {
    let rest = text.get(symbols(text, at)..).unwrap_or(&[]);
    let ends = rest.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    text.len() - rest.len() + ends
}

fn white_space<const END_IS_ONE: bool>(text: &[u8], start: usize) -> usize {
    let run = space(text, start);
    match run.newline {
        Some(end) if !(END_IS_ONE && run.is_last_of_text) => end,
        _ => run.without_last(start),
    }
}
