//! A header map as read once from the host: bytes, for a value need not be UTF-8.

/// The coding of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    Identity,
    Gzip,
    /// Another one, or several.
    Other,
}

#[derive(Clone, Debug, Default)]
pub struct Headers(Vec<(Vec<u8>, Vec<u8>)>);

impl Headers {
    pub fn new(pairs: Vec<(Vec<u8>, Vec<u8>)>) -> Self {
        Self(pairs)
    }

    /// The first value of a header, by its lower-case name.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.all(name).next()
    }

    /// The first value where it is text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(|value| std::str::from_utf8(value).ok())
    }

    pub fn all(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        self.0.iter().filter(move |(key, _)| key == name.as_bytes()).map(|(_, value)| value.as_slice())
    }

    /// The codings of the body, `identity` left out.
    fn codings(&self) -> Vec<&[u8]> {
        self.all("content-encoding")
            .flat_map(|value| value.split(|byte| *byte == b','))
            .map(<[u8]>::trim_ascii)
            .filter(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity"))
            .collect()
    }

    /// The one coding of the body, where it is none or gzip.
    pub fn coding(&self) -> Coding {
        Self::one_coding(&self.codings())
    }

    /// The coding of an answer. What is named and is no coding, such as `utf-8` or `none`, says nothing.
    pub fn answer_coding(&self) -> Coding {
        const CODINGS: [&str; 8] =
            ["gzip", "x-gzip", "deflate", "br", "zstd", "compress", "x-compress", "x-deflate"];
        let mut codings = self.codings();
        codings.retain(|coding| CODINGS.iter().any(|name| coding.eq_ignore_ascii_case(name.as_bytes())));
        Self::one_coding(&codings)
    }

    fn one_coding(codings: &[&[u8]]) -> Coding {
        match codings {
            [] => Coding::Identity,
            [one] if one.eq_ignore_ascii_case(b"gzip") || one.eq_ignore_ascii_case(b"x-gzip") => Coding::Gzip,
            _ => Coding::Other,
        }
    }

    /// Whether the body is vouched for byte by byte, so that it must go on as it came.
    pub fn have_digest(&self) -> bool {
        const DIGESTS: [&str; 5] = ["content-md5", "digest", "content-digest", "repr-digest", "signature"];
        DIGESTS.iter().any(|name| self.get(name).is_some())
    }

    /// Whether a body is said to follow.
    pub fn announce_body(&self) -> bool {
        let is_zero = |value: &[u8]| value.trim_ascii() == b"0";
        self.get("transfer-encoding").is_some() || self.all("content-length").any(|value| !is_zero(value))
    }

    /// Names that begin so, each once.
    pub fn names_with_prefix(&self, prefix: &str) -> Vec<String> {
        let mut names: Vec<String> = self
            .0
            .iter()
            .filter(|(key, _)| key.starts_with(prefix.as_bytes()))
            .map(|(key, _)| String::from_utf8_lossy(key).into_owned())
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

impl<const N: usize> From<[(&str, &str); N]> for Headers {
    fn from(pairs: [(&str, &str); N]) -> Self {
        Self(pairs.map(|(k, v)| (k.as_bytes().to_vec(), v.as_bytes().to_vec())).to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codings_of_a_body() {
        for (value, coding) in [
            ("", Coding::Identity),
            ("Identity", Coding::Identity),
            (" GZIP ", Coding::Gzip),
            ("x-gzip", Coding::Gzip),
            ("identity, gzip", Coding::Gzip),
            ("gzip, gzip", Coding::Other),
            ("gzip,zstd", Coding::Other),
            ("br", Coding::Other),
        ] {
            assert_eq!(Headers::from([("content-encoding", value)]).coding(), coding, "{value}");
        }
        assert_eq!(Headers::default().coding(), Coding::Identity);
    }

    #[test]
    fn only_codings_are_codings_of_an_answer() {
        for (value, coding) in [
            ("", Coding::Identity),
            ("UTF-8", Coding::Identity),
            ("none", Coding::Identity),
            ("chunked", Coding::Identity),
            ("aws-chunked, , none", Coding::Identity),
            (", ,GZIP,", Coding::Gzip),
            ("x-gzip", Coding::Gzip),
            ("utf-8, gzip", Coding::Gzip),
            ("gzip, gzip", Coding::Other),
            ("gzip, br", Coding::Other),
            ("deflate", Coding::Other),
            ("br", Coding::Other),
            ("Zstd", Coding::Other),
            ("compress", Coding::Other),
        ] {
            assert_eq!(Headers::from([("content-encoding", value)]).answer_coding(), coding, "{value}");
        }
    }
}
