//! Short fixed names for things that appear in keys: nothing a client or an operator writes reaches a key.

use std::fmt;

use sha2::{Digest, Sha256};
use tokengate_api::model_name;

/// The first 64 bits of a SHA-256, shown as 16 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tag(pub [u8; 8]);

impl Tag {
    /// Hash of `parts` under `domain`. Each part carries its length, so that ("ab", "c") is not ("a", "bc"),
    /// and an absent part is not an empty one.
    pub fn of<'a>(domain: &str, parts: impl IntoIterator<Item = Option<&'a str>>) -> Self {
        let mut hash = Sha256::new();
        hash.update((domain.len() as u64).to_be_bytes());
        hash.update(domain.as_bytes());
        for part in parts {
            match part {
                None => hash.update([0]),
                Some(text) => {
                    hash.update([1]);
                    hash.update((text.len() as u64).to_be_bytes());
                    hash.update(text.as_bytes());
                }
            }
        }
        let mut first = [0; 8];
        for (to, from) in first.iter_mut().zip(hash.finalize()) {
            *to = from;
        }
        Self(first)
    }

    /// The account of a tenant: routes a settle to the keys of its reserve.
    pub fn account(tenant: &str) -> Self {
        Self::of("account", [Some(tenant)])
    }

    /// Where the buckets of a limit live that all tenants share.
    pub fn shared(limit: Self) -> Self {
        Self::of("shared", [Some(limit.to_string().as_str())])
    }

    /// A model by its canonical name, or requests without a model.
    pub fn model(name: Option<&str>) -> Self {
        Self::of("model", [name])
    }

    /// A model's name as clients and providers write it, normalised; none where that cannot be a name.
    pub fn named(raw: &str) -> Option<Self> {
        let name = model_name::spellings(raw).into_iter().next()?;
        Some(Self::of("named", [Some(name.as_str())]))
    }

    /// A service tier by its name.
    pub fn tier(name: &str) -> Self {
        Self::of("tier", [Some(name)])
    }

    /// A plan by its name.
    pub fn plan(name: &str) -> Self {
        Self::of("plan", [Some(name)])
    }

    /// Reads 16 lower-case hex digits; anything else is nothing.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.as_bytes();
        let mut tag = [0; 8];
        if text.len() != 16 {
            return None;
        }
        for (to, pair) in tag.iter_mut().zip(text.chunks_exact(2)) {
            let [high, low] = pair else { return None };
            *to = nibble(*high)? << 4 | nibble(*low)?;
        }
        Some(Self(tag))
    }
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_run_into_each_other() {
        let tag = |parts: &[Option<&str>]| Tag::of("t", parts.iter().copied());
        assert_ne!(tag(&[Some("a"), Some("bc")]), tag(&[Some("ab"), Some("c")]));
        assert_ne!(tag(&[Some("")]), tag(&[None]));
        assert_ne!(tag(&[Some("-")]), tag(&[None]));
        assert_ne!(tag(&[Some("a\0b")]), tag(&[Some("a"), Some("b")]));
        assert_ne!(Tag::of("a", [Some("x")]), Tag::of("b", [Some("x")]));
    }

    #[test]
    fn reads_what_it_shows_and_nothing_else() {
        let tag = Tag::account("a}{b\0");
        assert_eq!(Tag::parse(&tag.to_string()), Some(tag));
        for bad in ["", "0123456789abcde", "0123456789ABCDEF", "0123456789abcdefa", "{123456789abcdef"] {
            assert_eq!(Tag::parse(bad), None, "{bad}");
        }
    }
}
