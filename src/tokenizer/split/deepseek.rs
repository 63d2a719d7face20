//! The pieces of deepseek_v3:
//!
//! ```text
//! \p{N}{1,3}|[一-龥぀-ゟ゠-ヿ]+|[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+
//! | ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+|[\s\S]
//! ```
//!
//! where for `\S` a number, a kana or an ideograph does not count. As the oracle has it: the model's own tokenizer
//! applies three patterns one after the other, whose pieces differ where kana or ideographs follow on letters.

use tokengate_tables::kind::{
    self, BLANK, CJK_OTHER, CJK_SYMBOL, CJK_WORD, NEWLINE, NUMBER, OTHER, SPACE, SYMBOL, WORD,
};

use super::run::{Next, Phase};
use super::{numbers, space};
use crate::tokenizer::{classes::code_of_long, work};

/// Behind the last character.
const END: u8 = u8::MAX;

/// The kind of the character that starts at `at`, and its length in bytes; `END` and 0 behind the text.
#[inline]
fn kind_at(text: &[u8], at: usize) -> (u8, usize) {
    work::step();
    let Some(&byte) = text.get(at) else { return (END, 0) };
    let (code, length) = if byte < 0x80 { (byte.into(), 1) } else { code_of_long(text, at, byte) };
    let block = kind::INDEX.get(code / 128).copied().unwrap_or(0);
    (kind::BLOCKS.get(usize::from(block) * 128 + code % 128).copied().unwrap_or(OTHER), length)
}

fn is_cjk(kind: u8) -> bool {
    matches!(kind, CJK_WORD | CJK_SYMBOL | CJK_OTHER)
}

fn is_word(kind: u8) -> bool {
    matches!(kind, WORD | CJK_WORD)
}

fn is_symbol(kind: u8) -> bool {
    matches!(kind, SYMBOL | CJK_SYMBOL)
}

/// The first character is a symbol that the ASCII letters after it go with.
fn is_before_letters(text: &[u8], at: usize) -> bool {
    text.get(at).is_some_and(u8::is_ascii_punctuation)
        && text.get(at + 1).is_some_and(u8::is_ascii_alphabetic)
}

/// The end of the piece that starts at `start`.
pub fn piece_end(text: &[u8], start: usize) -> usize {
    let Some((phase, length)) = begin(text, start) else {
        return match kind_at(text, start) {
            (NUMBER, length) => numbers::<3>(text, start + length),
            (_, length) => start + length,
        };
    };
    if matches!(phase, Phase::Blanks | Phase::Lines) {
        return white_space(text, start);
    }
    let (mut phase, mut at) = (phase, start + length);
    while let (Next::Sure(next), length @ 1..) = next(phase, text, at) {
        (phase, at) = (next, at + length);
    }
    at
}

fn white_space(text: &[u8], start: usize) -> usize {
    let run = space(text, start);
    let (after, _) = kind_at(text, run.end);
    match run.newline {
        Some(end) => end,
        None if after == NUMBER || is_cjk(after) => run.end,
        None => run.without_last(start),
    }
}

/// The piece that starts at `at`, and how much of the text is read with that. `None` where the piece cannot be long.
pub fn begin(text: &[u8], at: usize) -> Option<(Phase, usize)> {
    let (first, length) = kind_at(text, at);
    match first {
        NUMBER | END => None,
        WORD => Some((Phase::Letters, length)),
        SYMBOL if is_before_letters(text, at) => Some((Phase::AsciiLetters, length)),
        SYMBOL => Some((Phase::Symbols, length)),
        NEWLINE => Some((Phase::Lines, length)),
        OTHER | SPACE | BLANK => match kind_at(text, at + length) {
            (second, more) if is_word(second) => Some((Phase::Letters, length + more)),
            (second, more) if first == BLANK && is_symbol(second) => Some((Phase::Symbols, length + more)),
            _ if first == OTHER => None,
            _ => Some((Phase::Blanks, length)),
        },
        _ => Some((Phase::Cjk, length)),
    }
}

/// Reads one more character, and says how long it is.
pub fn next(phase: Phase, text: &[u8], at: usize) -> (Next, usize) {
    let (kind, length) = kind_at(text, at);
    let next = match (phase, kind) {
        (Phase::Cjk, _) if is_cjk(kind) => Next::Sure(phase),
        (Phase::Letters, _) if is_word(kind) => Next::Sure(phase),
        (Phase::AsciiLetters, _) if text.get(at).is_some_and(u8::is_ascii_alphabetic) => Next::Sure(phase),
        (Phase::Symbols, _) if is_symbol(kind) => Next::Sure(phase),
        (Phase::Symbols | Phase::Ends, NEWLINE) => Next::Sure(Phase::Ends),
        (Phase::Blanks, BLANK | SPACE) => Next::Sure(phase),
        (Phase::Lines, BLANK | SPACE) => Next::Maybe,
        (Phase::Blanks | Phase::Lines, NEWLINE) => Next::Sure(Phase::Lines),
        (Phase::Blanks | Phase::Lines, NUMBER) => Next::Apart,
        (Phase::Blanks | Phase::Lines, _) if is_cjk(kind) => Next::Apart,
        _ => Next::End,
    };
    (next, length)
}
