//! The pieces of o200k_base:
//!
//! ```text
//! [^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//! |[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//! |\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
//! ```
//!
//! and of those whose patterns differ from it in little.

use super::{contraction, numbers, space, symbols};
use crate::tokenizer::classes::{BLANK, LETTER, LOWER, MARK, NUMBER, OTHER, SPACE, UPPER, class_at};

/// The end of the piece that starts at `start`. A number has up to `DIGITS` digits; a word's contraction is the
/// word's if `CONTRACTS`.
#[inline]
pub fn piece_end<const DIGITS: usize, const CONTRACTS: bool>(text: &[u8], start: usize) -> usize {
    let (class, length) = class_at(text, start);
    let next = start + length;
    match class {
        // A mark may be the character before the letters or one of them: the piece is the same.
        UPPER | LOWER | LETTER | MARK => word::<CONTRACTS>(text, start, class),
        NUMBER => numbers::<DIGITS>(text, next),
        BLANK | SPACE | OTHER => match (class, class_at(text, next).0) {
            (_, second @ (UPPER | LOWER | LETTER | MARK)) => word::<CONTRACTS>(text, next, second),
            (OTHER, _) | (BLANK, OTHER) => symbols_and_ends(text, next),
            _ => white_space(text, start),
        },
        _ => white_space(text, start),
    }
}

/// The first two alternatives from their first letter or mark on.
#[inline]
fn word<const CONTRACTS: bool>(text: &[u8], start: usize, mut class: u8) -> usize {
    let mut at = start;
    // Where the last character ends that both sets have: there the first alternative can stop when no
    // lower-case letter follows.
    let mut last_of_both = None;
    if class != LOWER {
        loop {
            let length;
            (class, length) = class_at(text, at);
            match class {
                UPPER => at += length,
                LETTER | MARK => {
                    at += length;
                    last_of_both = Some(at);
                }
                _ => break,
            }
        }
    }
    let end = if class == LOWER { lower(text, at) } else { last_of_both.unwrap_or(at) };
    if CONTRACTS { end + contraction(text, end) } else { end }
}

/// The end of `[\p{Ll}\p{Lm}\p{Lo}\p{M}]*`.
#[inline]
fn lower(text: &[u8], mut at: usize) -> usize {
    loop {
        match class_at(text, at) {
            (LOWER | LETTER | MARK, length) => at += length,
            _ => return at,
        }
    }
}

fn symbols_and_ends(text: &[u8], at: usize) -> usize {
    let rest = text.get(symbols(text, at)..).unwrap_or(&[]);
    let ends = rest.iter().take_while(|byte| matches!(byte, b'\r' | b'\n' | b'/')).count();
    text.len() - rest.len() + ends
}

fn white_space(text: &[u8], start: usize) -> usize {
    let run = space(text, start);
    run.newline.unwrap_or_else(|| run.without_last(start))
}
