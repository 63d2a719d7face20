//! The pieces that can be of any length, read on from wherever they were left: for a text that arrives in parts.

use super::super::Encoding;
use super::super::classes::{BLANK, LETTER, LOWER, MARK, NEWLINE, NUMBER, OTHER, SPACE, UPPER, class_at};
use super::Words;

/// How far the pattern of such a piece is matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// `\p{L}+`; deepseek_v3: `[\p{L}\p{M}]+`.
    Letters,
    /// deepseek_v3: `[A-Za-z]+` after a symbol.
    #[cfg(feature = "deepseek_v3")]
    AsciiLetters,
    /// deepseek_v3: kana and ideographs.
    #[cfg(feature = "deepseek_v3")]
    Cjk,
    /// Symbols, and then the ends of lines.
    Symbols,
    Ends,
    /// A word of upper-case letters alone; with some that both sets have, the last of them being
    /// where the piece ends if no lower-case letter comes; with lower-case letters.
    Uppers,
    Both,
    Lowers,
    /// White space without the end of a line; with one, the last being where the piece ends.
    Blanks,
    Lines,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The character is the piece's, and so is all before it.
    Sure(Phase),
    /// It is the piece's if a sure one comes.
    Maybe,
    /// It is not the piece's.
    End,
    /// It is not the piece's, and the white space before it is, all of it.
    #[cfg(feature = "deepseek_v3")]
    Apart,
}

impl Phase {
    /// The piece that a text starts with, and how much of the text is read with that. `None` where the piece
    /// cannot be long.
    pub fn start(encoding: Encoding, text: &[u8]) -> Option<(Self, usize)> {
        #[cfg(feature = "deepseek_v3")]
        if encoding == Encoding::DeepSeekV3 {
            return super::deepseek::begin(text, 0);
        }
        let (first, length) = class_at(text, 0);
        let (second, more) = class_at(text, length);
        let is_cased = Words::of(encoding) == Words::Cased;
        let word = |class| match class {
            UPPER | LOWER | LETTER if !is_cased => Some(Self::Letters),
            UPPER => Some(Self::Uppers),
            LETTER | MARK if is_cased => Some(Self::Both),
            LOWER => Some(Self::Lowers),
            _ => None,
        };
        let is_symbol = |class| class == OTHER || (class == MARK && !is_cased);
        if let Some(phase) = word(first) {
            return Some((phase, length));
        }
        match first {
            NEWLINE => Some((Self::Lines, length)),
            NUMBER => None,
            _ => match word(second) {
                Some(phase) => Some((phase, length + more)),
                None if is_symbol(first) => Some((Self::Symbols, length)),
                None if first == BLANK && is_symbol(second) => Some((Self::Symbols, length + more)),
                None => Some((Self::Blanks, length)),
            },
        }
    }

    /// Reads the character at `at`, and says how long it is.
    #[inline]
    pub fn next(self, encoding: Encoding, text: &[u8], at: usize) -> (Next, usize) {
        #[cfg(feature = "deepseek_v3")]
        if encoding == Encoding::DeepSeekV3 {
            return super::deepseek::next(self, text, at);
        }
        let (class, length) = class_at(text, at);
        let next = match (self, class) {
            (Self::Letters, UPPER | LOWER | LETTER) => Next::Sure(Self::Letters),
            (Self::Symbols, OTHER | MARK) => Next::Sure(Self::Symbols),
            (Self::Symbols | Self::Ends, NEWLINE) => Next::Sure(Self::Ends),
            (Self::Ends, _) if text.get(at) == Some(&b'/') && Words::of(encoding) == Words::Cased => {
                Next::Sure(Self::Ends)
            }
            (Self::Uppers, UPPER) => Next::Sure(Self::Uppers),
            (Self::Uppers | Self::Both, LETTER | MARK) => Next::Sure(Self::Both),
            (Self::Both, UPPER) => Next::Maybe,
            (Self::Uppers | Self::Both, LOWER) => Next::Sure(Self::Lowers),
            (Self::Lowers, LOWER | LETTER | MARK) => Next::Sure(Self::Lowers),
            (Self::Blanks, BLANK | SPACE) => Next::Sure(Self::Blanks),
            (Self::Lines, BLANK | SPACE) => Next::Maybe,
            (Self::Blanks | Self::Lines, NEWLINE) => Next::Sure(Self::Lines),
            _ => Next::End,
        };
        (next, length)
    }
}

/// Whether a piece that ends at `end` ends there whatever follows the text.
pub fn is_decided(text: &[u8], end: usize) -> bool {
    /// More than a contraction and the character before a word.
    const MARGIN: usize = 16;
    if text.len().saturating_sub(end) < MARGIN {
        return false;
    }
    let last = (0..end).rev().find(|&at| text.get(at).is_some_and(|byte| byte & 0xc0 != 0x80));
    let is_open = |class: u8| match last.map(|at| class_at(text, at).0) {
        Some(LETTER | MARK) => class == UPPER,
        Some(NEWLINE) => matches!(class, BLANK | SPACE),
        _ => false,
    };
    let mut at = end;
    while at < text.len() {
        let (class, length) = class_at(text, at);
        if !is_open(class) {
            return true;
        }
        at += length;
    }
    false
}
