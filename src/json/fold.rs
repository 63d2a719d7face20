//! Names of members, as a strict reader and as a lenient one take them.
//!
//! Many servers bind members without regard to case, and to the letters that Unicode takes for another case of
//! an ASCII letter. To them `Model` and `model` are one member, of which the last counts.

/// A longer name is none of ours.
const LONGEST: usize = 64;

/// How a key is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meant<'n> {
    /// Exactly one of the names.
    Is(&'n str),
    /// None of the names, but one of them to a reader that does not look at the case.
    Resembles(&'n str),
}

impl<'n> Meant<'n> {
    pub fn name(self) -> &'n str {
        match self {
            Self::Is(name) | Self::Resembles(name) => name,
        }
    }
}

/// Which of the names, all in lower case, a key means. It is unescaped, and need not be UTF-8.
pub fn meant<'n>(key: &[u8], names: impl IntoIterator<Item = &'n str>) -> Option<Meant<'n>> {
    let mut folded = [0; LONGEST];
    let folded = fold(key, &mut folded)?;
    let name = names.into_iter().find(|name| name.as_bytes() == folded)?;
    Some(if name.as_bytes() == key { Meant::Is(name) } else { Meant::Resembles(name) })
}

/// The key in lower-case ASCII; `None` where it has a letter that is no case of an ASCII one, or is too long.
fn fold<'o>(key: &[u8], out: &'o mut [u8; LONGEST]) -> Option<&'o [u8]> {
    let mut rest = key;
    let mut length = 0;
    while let Some(&byte) = rest.first() {
        let (letter, width) = match rest {
            // The long s, the Kelvin sign, and the Turkish i with and without its dot.
            [0xc5, 0xbf, ..] => (b's', 2),
            [0xe2, 0x84, 0xaa, ..] => (b'k', 3),
            [0xc4, 0xb0 | 0xb1, ..] => (b'i', 2),
            _ if byte.is_ascii() => (byte.to_ascii_lowercase(), 1),
            _ => return None,
        };
        *out.get_mut(length)? = letter;
        length += 1;
        rest = rest.get(width..)?;
    }
    out.get(..length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_a_lenient_reader_takes_for_ours() {
        let names = ["max_tokens", "stream", "stop", "min_tokens"];
        for (key, expected) in [
            ("max_tokens", Some(Meant::Is("max_tokens"))),
            ("Max_Tokens", Some(Meant::Resembles("max_tokens"))),
            ("MAX_TOKENS", Some(Meant::Resembles("max_tokens"))),
            ("max_to\u{212a}ens", Some(Meant::Resembles("max_tokens"))),
            ("\u{17f}tream", Some(Meant::Resembles("stream"))),
            ("max_to\u{212a}en\u{17f}", Some(Meant::Resembles("max_tokens"))),
            ("m\u{131}n_tokens", Some(Meant::Resembles("min_tokens"))),
            ("M\u{130}N_TOKENS", Some(Meant::Resembles("min_tokens"))),
            ("max-tokens", None),
            ("maxTokens", None),
            (" stream", None),
            ("stream ", None),
            ("stream\0", None),
            ("ｓtream", None),
            ("streäm", None),
            ("strea", None),
            ("streams", None),
            ("", None),
        ] {
            assert_eq!(meant(key.as_bytes(), names), expected, "{key:?}");
        }
        assert_eq!(meant(&[b'a'; 1_000], names), None);
        assert_eq!(meant(b"\xed\xa0\x80stop", names), None);
        assert_eq!(meant(b"stop\xe2\x84", names), None);
    }
}
