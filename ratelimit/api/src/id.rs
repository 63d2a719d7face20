use std::fmt;

use serde::{Deserialize, Serialize};

/// Names one reservation: 128 random bits as 32 lower-case hex digits, made by the filter.
///
/// It is never derived from anything a client sends: a caller who could choose it could settle
/// somebody else's reservation or make a second request free.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("pattern" = "^[0-9a-f]{32}$")))]
#[serde(try_from = "String", into = "String")]
pub struct ReservationId(String);

/// The text is not 32 lower-case hex digits.
#[derive(Debug, PartialEq, Eq)]
pub struct InvalidId;

impl fmt::Display for InvalidId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("id must be 32 lower-case hex digits")
    }
}

impl std::error::Error for InvalidId {}

impl ReservationId {
    pub fn from_bytes(random: [u8; 16]) -> Self {
        use fmt::Write;
        let mut text = String::with_capacity(32);
        for byte in random {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        Self(text)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for ReservationId {
    type Error = InvalidId;

    fn try_from(text: String) -> Result<Self, InvalidId> {
        let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if text.len() == 32 && text.bytes().all(hex) { Ok(Self(text)) } else { Err(InvalidId) }
    }
}

impl From<ReservationId> for String {
    fn from(id: ReservationId) -> String {
        id.0
    }
}

impl fmt::Display for ReservationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ReservationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_and_refuses_other_spellings() {
        let id = ReservationId::from_bytes([0xab; 16]);
        assert_eq!(id.as_str(), "ab".repeat(16));
        assert_eq!(ReservationId::try_from(String::from(id.clone())), Ok(id));
        for bad in ["", "ab", &"AB".repeat(16), &"g".repeat(32), &"a".repeat(33)] {
            assert_eq!(ReservationId::try_from(bad.to_owned()), Err(InvalidId), "{bad}");
        }
    }
}
