//! Members of a JSON object with the place of their values, so that one value can be replaced and all
//! else stays byte for byte.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// One member of an object, as it stands in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member<'a> {
    /// Unescaped; a lone surrogate is U+FFFD.
    pub key: String,
    /// The value's text without white space around it.
    pub raw: &'a str,
    /// Where `raw` begins, in bytes from the start of the text that was parsed.
    pub offset: usize,
}

impl Member<'_> {
    pub fn is_null(&self) -> bool {
        self.raw == "null"
    }
}

/// The members of the object that is the whole text, in order, duplicates included.
pub fn members(text: &str) -> Result<Vec<Member<'_>>, serde_json::Error> {
    let mut json = serde_json::Deserializer::from_str(text);
    let pairs = json.deserialize_map(Pairs)?;
    json.end()?;
    let start = text.as_ptr() as usize;
    let place = |raw: &str| (raw.as_ptr() as usize).saturating_sub(start);
    Ok(pairs.into_iter().map(|(key, raw)| Member { key, raw: raw.get(), offset: place(raw.get()) }).collect())
}

/// The raw values of the array that is the whole text.
pub fn elements(text: &str) -> Result<Vec<&str>, serde_json::Error> {
    struct Elements;
    impl<'de> Visitor<'de> for Elements {
        type Value = Vec<&'de str>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an array")
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
            let mut all = Vec::new();
            while let Some(raw) = seq.next_element::<&'de RawValue>()? {
                all.push(raw.get());
            }
            Ok(all)
        }
    }
    let mut json = serde_json::Deserializer::from_str(text);
    let all = json.deserialize_seq(Elements)?;
    json.end()?;
    Ok(all)
}

/// The text of a JSON string, or `None` when the value is none. Lone surrogates become U+FFFD.
pub fn text(raw: &str) -> Option<String> {
    if !raw.starts_with('"') {
        return None;
    }
    Text.deserialize(&mut serde_json::Deserializer::from_str(raw)).ok()
}

/// A JSON number that is a whole number from 0 to 2^64 - 1, `100.0` included.
pub fn number(raw: &str) -> Option<u64> {
    let number: serde_json::Number = serde_json::from_str(raw).ok()?;
    if let Some(whole) = number.as_u64() {
        return Some(whole);
    }
    let float = number.as_f64()?;
    // 2^64 is the first float that does not fit.
    (float.fract() == 0.0 && (0.0..18_446_744_073_709_551_616.0).contains(&float)).then_some(float as u64)
}

struct Pairs;

impl<'de> Visitor<'de> for Pairs {
    type Value = Vec<(String, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut pairs = Vec::new();
        while let Some(key) = map.next_key_seed(Text)? {
            pairs.push((key, map.next_value()?));
        }
        Ok(pairs)
    }
}

/// A string read as bytes, the one way in which serde_json accepts lone surrogates: it gives them in the
/// three-byte form that UTF-8 forbids.
struct Text;

impl<'de> DeserializeSeed<'de> for Text {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_bytes(self)
    }
}

impl Visitor<'_> for Text {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<String, E> {
        if let Ok(text) = std::str::from_utf8(bytes) {
            return Ok(text.to_owned());
        }
        let mut fixed = bytes.to_vec();
        for at in 0..fixed.len().saturating_sub(2) {
            if let Some(unit @ [0xed, 0xa0..=0xbf, _]) = fixed.get_mut(at..at + 3) {
                unit.copy_from_slice("\u{fffd}".as_bytes());
            }
        }
        Ok(String::from_utf8_lossy(&fixed).into_owned())
    }

    fn visit_str<E>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    #[test]
    fn members_know_their_place() {
        let body = "\n{ \"a\" : [1, 2] ,\"\\u0061\":\"x\\\"y\", \"\\ud800b\": null}";
        let all = members(body).unwrap();
        let keys: Vec<&str> = all.iter().map(|m| m.key.as_str()).collect();
        assert_eq!(keys, ["a", "a", "\u{fffd}b"]);
        for member in &all {
            assert!(body[member.offset..].starts_with(member.raw));
        }
        assert_eq!(all[0].raw, "[1, 2]");
        assert!(all[2].is_null());
    }

    #[test]
    fn only_a_whole_object_is_one() {
        for bad in ["", "[]", "{} x", "\u{feff}{}", "{\"a\":}", "{\"a\":\"\u{1}\"}", "{a:1}", "null"] {
            assert!(members(bad).is_err(), "{bad:?}");
        }
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(10_000), "]".repeat(10_000));
        assert_eq!(members(&deep).unwrap()[0].raw.len(), 20_000);
    }

    #[test]
    fn texts_with_lone_surrogates() {
        assert_eq!(text(r#""a\ud83d\ude00\ud800z\udc00""#).as_deref(), Some("a😀\u{fffd}z\u{fffd}"));
        assert_eq!(text("1"), None);
    }

    #[test]
    fn whole_numbers_only() {
        for (raw, value) in [
            ("0", Some(0)),
            ("100.0", Some(100)),
            ("1e3", Some(1000)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("1e400", None),
            ("-1", None),
            ("-0", Some(0)),
            ("100.5", None),
            ("\"100\"", None),
            ("true", None),
            ("[]", None),
            ("null", None),
        ] {
            assert_eq!(number(raw), value, "{raw}");
        }
    }
}
