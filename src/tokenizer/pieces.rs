//! Cuts a text into pieces that can be counted one by one.
//!
//! Two reasons: the regular expressions behind the counts give up on some runs of about 1 MB, and text
//! that arrives in parts must be counted without being kept whole.

/// A piece is at most this many bytes long.
pub const MAX_PIECE: usize = 32 * 1024;

/// The text in pieces of at most [`MAX_PIECE`] bytes, cut at safe breaks. Where there is none, at the last
/// character that fits: the sum of the counts may then be one off.
pub fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (piece, after) = match rest.len() {
            0..=MAX_PIECE => (rest, ""),
            _ => rest.split_at_checked(cut(rest)).unwrap_or((rest, "")),
        };
        rest = after;
        Some(piece)
    })
}

/// Where to cut a text that is longer than [`MAX_PIECE`].
fn cut(text: &str) -> usize {
    last_safe_break(text.as_bytes().get(..MAX_PIECE).unwrap_or(&[]))
        .unwrap_or_else(|| text.floor_char_boundary(MAX_PIECE))
}

/// The last place where both encodings always split, whatever stands around it: after an ASCII letter or
/// digit and before ASCII white space. No alternative of their patterns goes on over it, and none looks
/// back.
pub fn last_safe_break(bytes: &[u8]) -> Option<usize> {
    let is_safe = |pair: &[u8]| match pair {
        [before, after] => before.is_ascii_alphanumeric() && matches!(after, b' ' | b'\n' | b'\r' | b'\t'),
        _ => false,
    };
    bytes.windows(2).rposition(is_safe).map(|at| at + 1)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn nothing_is_lost_and_no_piece_is_too_long() {
        for unit in ["word ", "价", "a", "🙂\n", "  ", "x\u{301}"] {
            let text = unit.repeat(100_000 / unit.len() + 3);
            let all: Vec<&str> = pieces(&text).collect();
            assert_eq!(all.concat(), text);
            assert!(all.iter().all(|piece| !piece.is_empty() && piece.len() <= MAX_PIECE));
        }
        assert_eq!(pieces("").count(), 0);
    }

    #[test]
    fn a_safe_break_never_changes_the_count() {
        let text = "It's 3 o'clock\nin  Paris 2024\r\n\r\n\tand\tthe `code`:\n    let x1 = y2 ;\n mixedCase HTML 12345 \n";
        for encoding in [tiktoken_rs::o200k_base_singleton(), tiktoken_rs::cl100k_base_singleton()] {
            let whole = encoding.count_ordinary(text);
            let mut end = text.len();
            let mut breaks = 0;
            while let Some(at) = last_safe_break(text.as_bytes().get(..end).unwrap()) {
                let (a, b) = text.split_at(at);
                let sum = encoding.count_ordinary(a) + encoding.count_ordinary(b);
                assert_eq!(sum, whole, "{a:?} | {b:?}");
                (end, breaks) = (at, breaks + 1);
            }
            assert!(breaks > 10);
        }
    }

    #[test]
    fn long_prose_is_exact() {
        let text: String = (0..40_000).map(|n| format!("word{n} and, so. ")).collect();
        let exact = tiktoken_rs::o200k_base_singleton().count_ordinary(&text);
        let sum: usize = pieces(&text).map(|p| tiktoken_rs::o200k_base_singleton().count_ordinary(p)).sum();
        assert_eq!(sum, exact);
    }
}
