//! Unicode classes of the characters of a text.

use tokengate_tables::class;

use super::work;

pub use tokengate_tables::class::{BLANK, LETTER, LOWER, MARK, NEWLINE, NUMBER, OTHER, SPACE, UPPER};

/// Behind the last character.
pub const END: u8 = 9;
/// Not a class: the byte starts a longer character.
const LONG: u8 = 10;

/// What no text has: the class of a byte, as far as one byte has one.
static BYTES: [u8; 256] = bytes();

const fn bytes() -> [u8; 256] {
    let mut classes = [LONG; 256];
    // The first block is ASCII.
    let (ascii, _) = class::BLOCKS.split_at(128);
    let (first, _) = classes.split_at_mut(128);
    first.copy_from_slice(ascii);
    classes
}

/// The class of the character that starts at `at`, and its length in bytes; `END` and 0 behind the text.
#[inline(always)]
pub fn class_at(text: &[u8], at: usize) -> (u8, usize) {
    work::step();
    let Some(&byte) = text.get(at) else { return (END, 0) };
    match class_of_byte(byte) {
        LONG => class_of_long(text, at, byte),
        class => (class, 1),
    }
}

#[inline(always)]
fn class_of_byte(byte: u8) -> u8 {
    BYTES.get(usize::from(byte)).copied().unwrap_or(LONG)
}

#[inline]
fn class_of_long(text: &[u8], at: usize, first: u8) -> (u8, usize) {
    let (code, length) = code_of_long(text, at, first);
    (class_of(code), length)
}

/// The code point of a character of more than one byte, and its length.
#[inline]
pub fn code_of_long(text: &[u8], at: usize, first: u8) -> (usize, usize) {
    let next = |offset: usize| u32::from(text.get(at + offset).copied().unwrap_or(0) & 0x3f);
    let first = u32::from(first);
    let (code, length) = match first {
        0..0xe0 => ((first & 0x1f) << 6 | next(1), 2),
        0xe0..0xf0 => ((first & 0x0f) << 12 | next(1) << 6 | next(2), 3),
        _ => ((first & 0x07) << 18 | next(1) << 12 | next(2) << 6 | next(3), 4),
    };
    (code as usize, length)
}

#[inline]
fn class_of(code: usize) -> u8 {
    let block = class::INDEX.get(code / 128).copied().unwrap_or(0);
    class::BLOCKS.get(usize::from(block) * 128 + code % 128).copied().unwrap_or(OTHER)
}
