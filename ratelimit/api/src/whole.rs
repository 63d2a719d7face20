//! Whole numbers as JSON means them: `5.0` is one as much as `5` is.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserializer, Error, Unexpected, Visitor};

/// A number of the wire, and how people say what it may be.
pub trait Whole: TryFrom<u64> {
    const EXPECTED: &'static str;
}

impl Whole for u8 {
    const EXPECTED: &'static str = "a whole number from 0 to 255";
}

impl Whole for u32 {
    const EXPECTED: &'static str = "a whole number from 0 to 4294967295";
}

impl Whole for u64 {
    const EXPECTED: &'static str = "a whole number, 0 or more";
}

/// For `deserialize_with`.
pub fn number<'de, D: Deserializer<'de>, T: Whole>(deserializer: D) -> Result<T, D::Error> {
    deserializer.deserialize_u64(Number(PhantomData))
}

/// The same where it may be `null`.
pub fn optional<'de, D: Deserializer<'de>, T: Whole>(deserializer: D) -> Result<Option<T>, D::Error> {
    deserializer.deserialize_option(Optional(PhantomData))
}

struct Number<T>(PhantomData<T>);

impl<T: Whole> Visitor<'_> for Number<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<T, E> {
        T::try_from(value).map_err(|_| E::invalid_value(Unexpected::Unsigned(value), &self))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<T, E> {
        const TOO_LARGE: f64 = 18_446_744_073_709_551_616.0;
        if value.fract() != 0.0 || !(0.0..TOO_LARGE).contains(&value) {
            return Err(E::invalid_value(Unexpected::Float(value), &self));
        }
        // In range, and without a fraction that could be lost.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        self.visit_u64(value as u64)
    }
}

struct Optional<T>(PhantomData<T>);

impl<'de, T: Whole> Visitor<'de> for Optional<T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_none<E: Error>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_unit<E: Error>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<T>, D::Error> {
        number(deserializer).map(Some)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    struct Numbers {
        #[serde(deserialize_with = "super::number")]
        large: u64,
        #[serde(deserialize_with = "super::number")]
        small: u8,
        #[serde(default, deserialize_with = "super::optional")]
        maybe: Option<u64>,
    }

    #[test]
    fn a_whole_number_is_one_however_it_is_written() {
        let read = |text: &str| serde_json::from_str::<Numbers>(text);
        for (text, expected) in [
            (r#"{"large": 5, "small": 5}"#, (5, 5, None)),
            (r#"{"large": 5.0, "small": 5.0, "maybe": 5.0}"#, (5, 5, Some(5))),
            (r#"{"large": 1e3, "small": 0.0, "maybe": null}"#, (1_000, 0, None)),
            (r#"{"large": 18446744073709551615, "small": 255}"#, (u64::MAX, 255, None)),
        ] {
            let Numbers { large, small, maybe } = read(text).unwrap();
            assert_eq!((large, small, maybe), expected, "{text}");
        }
        for bad in ["-1", "-1.0", "1.5", "1e30", "18446744073709551616", "\"1\"", "true", "[1]", "null"] {
            assert!(read(&format!(r#"{{"large": {bad}, "small": 1}}"#)).is_err(), "{bad}");
        }
        let message = read(r#"{"large": 1, "small": 256.0}"#).unwrap_err().to_string();
        assert!(message.contains("expected a whole number from 0 to 255"), "{message}");
        assert!(read(r#"{"large": 1, "small": 1, "maybe": -2}"#).is_err());
    }
}
