//! Where a text can be cut so that its parts can be counted one by one.

use super::classes::{BLANK, LETTER, LOWER, MARK, NEWLINE, NUMBER, OTHER, SPACE, UPPER, class_at};

/// The last place where both encodings always split, whatever stands around it: after a letter or a number,
/// before what neither goes on with it nor looks back at it. White space, a symbol that is no apostrophe,
/// a number after a letter and a letter after a number are such.
pub fn last_safe_break(bytes: &[u8]) -> Option<usize> {
    let mut end = bytes.len();
    let mut after = None;
    loop {
        let start = last_start(bytes, end)?;
        let character = bytes.get(start..end).unwrap_or(&[]);
        // A character that is not whole, or no UTF-8, is nothing to cut at.
        let before = std::str::from_utf8(character).ok().map(|_| class_at(character, 0).0);
        if let (Some(before), Some(after)) = (before, after)
            && is_break(before, after, bytes.get(end))
        {
            return Some(end);
        }
        (after, end) = (before, start);
    }
}

fn last_start(bytes: &[u8], end: usize) -> Option<usize> {
    bytes.get(..end)?.iter().rposition(|byte| byte & 0xc0 != 0x80)
}

fn is_break(before: u8, after: u8, after_byte: Option<&u8>) -> bool {
    match (before, after) {
        (UPPER | LOWER | LETTER | NUMBER, BLANK | SPACE | NEWLINE) => true,
        // deepseek_v3 does not split before U+30FB and others that begin with this byte.
        (_, OTHER) if cfg!(feature = "deepseek_v3") && after_byte == Some(&0xe3) => false,
        (UPPER | LOWER | LETTER | NUMBER, OTHER) => after_byte != Some(&b'\''),
        (UPPER | LOWER | LETTER, NUMBER) | (NUMBER, UPPER | LOWER | LETTER | MARK) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::tokenizer::{Encoding, samples};

    #[test]
    fn a_safe_break_never_changes_the_count() {
        let prose = "It's 3 o'clock\nin  Paris 2024\r\n\r\n\tand\tthe `code`:\n    let x1 = y2 ;\n mixedCase HTML 12345 \n";
        let made_up = (0..400).map(|seed| samples::text(seed, 300, &|_| b"x'y ".to_vec()));
        let mut breaks = 0;
        for text in std::iter::once(prose.to_owned()).chain(made_up) {
            for &encoding in Encoding::ALL {
                let whole = encoding.count(&text);
                let mut end = text.len();
                while let Some(at) = last_safe_break(text.as_bytes().get(..end).unwrap()) {
                    let (a, b) = text.split_at(at);
                    assert_eq!(encoding.count(a) + encoding.count(b), whole, "{a:?} | {b:?}");
                    (end, breaks) = (at, breaks + 1);
                }
            }
        }
        assert!(breaks > 1_000);
    }

    #[test]
    fn half_a_character_is_nothing_to_cut_at() {
        assert_eq!(last_safe_break("a价".as_bytes().get(..3).unwrap()), None);
        assert_eq!(last_safe_break(b"a\xff b c\xff"), Some(4));
        assert_eq!(last_safe_break("价，a'".as_bytes()), Some(3));
        assert_eq!(last_safe_break(b""), None);
    }
}
