//! Members of a JSON object with the place of their values, so that one value can be replaced and all
//! else stays byte for byte.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::fold::{Meant, meant};

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

/// The members of some names of an object.
#[derive(Debug, Default)]
pub struct Named<'a> {
    members: Vec<(&'static str, &'a str, usize)>,
    /// The first member that makes the object ambiguous.
    pub fault: Option<Fault>,
}

/// Why two servers can read two things in one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A member of this name is there more than once.
    Twice(&'static str),
    /// A member is named like this, in another case.
    Resembles(&'static str),
}

impl Fault {
    pub fn name(self) -> &'static str {
        match self {
            Self::Twice(name) | Self::Resembles(name) => name,
        }
    }
}

impl<'a> Named<'a> {
    pub fn get(&self, name: &str) -> Option<Member<'a>> {
        let &(name, raw, offset) = self.members.iter().find(|(of, ..)| *of == name)?;
        Some(Member { key: name.to_owned(), raw, offset })
    }
}

/// The members of these names of the object that is the whole text, the first of each. What a hostile object
/// has besides takes no memory.
pub fn members_named<'a>(text: &'a str, names: &[&'static str]) -> Result<Named<'a>, serde_json::Error> {
    let mut json = serde_json::Deserializer::from_str(text);
    let named = json.deserialize_map(ByName(names))?;
    json.end()?;
    let start = text.as_ptr() as usize;
    let place = |raw: &str| (raw.as_ptr() as usize).saturating_sub(start);
    let member = |(name, raw): (_, &'a RawValue)| (name, raw.get(), place(raw.get()));
    Ok(Named { members: named.0.into_iter().map(member).collect(), fault: named.1 })
}

/// Whether the text, which is JSON, is an array of nothing but objects; `None` where it is no array.
pub fn is_array_of_objects(text: &str) -> Option<bool> {
    struct Objects;
    impl<'de> Visitor<'de> for Objects {
        type Value = bool;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an array")
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
            let mut are_objects = true;
            while let Some(raw) = seq.next_element::<&'de RawValue>()? {
                are_objects &= raw.get().starts_with('{');
            }
            Ok(are_objects)
        }
    }
    serde_json::Deserializer::from_str(text).deserialize_seq(Objects).ok()
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

/// The first raw values, at most so many, of the array that is the whole text, and whether there are more.
pub fn first_elements(text: &str, most: usize) -> Option<(Vec<&str>, bool)> {
    struct First(usize);
    impl<'de> Visitor<'de> for First {
        type Value = (Vec<&'de str>, bool);
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an array")
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
            let mut first = Vec::new();
            while first.len() < self.0 {
                match seq.next_element::<&'de RawValue>()? {
                    Some(raw) => first.push(raw.get()),
                    None => return Ok((first, false)),
                }
            }
            let mut has_more = false;
            while seq.next_element::<IgnoredAny>()?.is_some() {
                has_more = true;
            }
            Ok((first, has_more))
        }
    }
    serde_json::Deserializer::from_str(text).deserialize_seq(First(most)).ok()
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

struct ByName<'n>(&'n [&'static str]);

impl<'de> Visitor<'de> for ByName<'_> {
    type Value = (Vec<(&'static str, &'de RawValue)>, Option<Fault>);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut found, mut fault): Self::Value = Default::default();
        while let Some(meant) = map.next_key_seed(OneOf(self.0))? {
            let is_found = |name: &str| found.iter().any(|(of, _)| *of == name);
            match meant {
                Some(Meant::Is(name)) if !is_found(name) => {
                    found.push((name, map.next_value()?));
                    continue;
                }
                Some(Meant::Is(name)) => fault = fault.or(Some(Fault::Twice(name))),
                Some(Meant::Resembles(name)) => fault = fault.or(Some(Fault::Resembles(name))),
                None => {}
            }
            map.next_value::<IgnoredAny>()?;
        }
        Ok((found, fault))
    }
}

/// The one of these names that a key means.
struct OneOf<'n>(&'n [&'static str]);

impl<'de> DeserializeSeed<'de> for OneOf<'_> {
    type Value = Option<Meant<'static>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_bytes(self)
    }
}

impl Visitor<'_> for OneOf<'_> {
    type Value = Option<Meant<'static>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Self::Value, E> {
        Ok(meant(bytes, self.0.iter().copied()))
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
    fn members_by_name_are_those_of_all() {
        let body = "{ \"x\":[{\"a\":1}], \"\\u0061\" : [1, 2] ,\"\\ud800\":\"\\udc00\",\"b\":null}";
        let named = members_named(body, &["b", "a"]).unwrap();
        for member in members(body).unwrap() {
            let is_one = ["a", "b"].contains(&member.key.as_str());
            assert_eq!(named.get(&member.key), is_one.then_some(member));
        }
        assert_eq!((named.fault, members_named(body, &[]).unwrap().get("a")), (None, None));
    }

    #[test]
    fn what_two_readers_read_in_two_ways_is_told() {
        for (body, fault) in [
            (r#"{"a":1,"b":2,"a":3}"#, Fault::Twice("a")),
            (r#"{"a":1,"\u0061":3,"b":1,"b":1}"#, Fault::Twice("a")),
            (r#"{"A":1}"#, Fault::Resembles("a")),
            (r#"{"\u0041":1,"a":1,"a":1}"#, Fault::Resembles("a")),
            (r#"{"\u212a":1}"#, Fault::Resembles("k")),
            ("{\"\u{212a}\":1}", Fault::Resembles("k")),
        ] {
            assert_eq!(members_named(body, &["a", "b", "k"]).unwrap().fault, Some(fault), "{body}");
        }
        assert_eq!(members_named(r#"{"c":{"a":1,"A":1},"a ":1,"aa":1,"a":1}"#, &["a"]).unwrap().fault, None);
    }

    #[test]
    fn the_first_elements_of_an_array() {
        assert_eq!(first_elements("[1, [2] ,\"3\"]", 3), Some((vec!["1", "[2]", "\"3\""], false)));
        assert_eq!(first_elements("[1,2,3]", 2), Some((vec!["1", "2"], true)));
        assert_eq!(first_elements("[]", 0), Some((vec![], false)));
        assert_eq!(first_elements("{}", 2), None);
    }

    proptest::proptest! {
        #[test]
        fn what_is_an_object_is_one_by_name_too(text in r#"\{("[abA]":([1a"\[\]{},:\\ ]{0,8}|null|"[b\\]{0,3}"),?){0,5}\}"#) {
            let named = members_named(&text, &["a"]).ok();
            let all = members(&text).ok();
            proptest::prop_assert_eq!(named.is_some(), all.is_some());
            let (named, all) = (named.unwrap_or_default(), all.unwrap_or_default());
            let lower: Vec<_> = all.iter().filter(|member| member.key == "a").collect();
            proptest::prop_assert_eq!(named.get("a"), lower.first().copied().cloned());
            let is_odd = lower.len() > 1 || all.iter().any(|member| member.key == "A");
            proptest::prop_assert_eq!(named.fault.is_some(), is_odd);
        }
    }

    #[test]
    fn arrays_of_objects() {
        for (text, is_one) in [
            ("[]", Some(true)),
            ("[ {} , {\"a\":[1]}]", Some(true)),
            ("[{},null]", Some(false)),
            ("[[{}]]", Some(false)),
            ("[\"{\"]", Some(false)),
            ("{}", None),
            ("\"[\"", None),
            ("1", None),
        ] {
            assert_eq!(is_array_of_objects(text), is_one, "{text}");
        }
    }

    #[test]
    fn only_a_whole_object_is_one() {
        for bad in ["", "[]", "{} x", "\u{feff}{}", "{\"a\":}", "{\"a\":\"\u{1}\"}", "{a:1}", "null"] {
            assert!(members(bad).is_err() && members_named(bad, &["a"]).is_err(), "{bad:?}");
        }
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(10_000), "]".repeat(10_000));
        assert_eq!(members(&deep).unwrap()[0].raw.len(), 20_000);
        assert_eq!(members_named(&deep, &["a"]).unwrap().get("a").unwrap().raw.len(), 20_000);
        assert!(members_named(&deep, &[]).is_ok());
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
