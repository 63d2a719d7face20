//! JSON text to a value; what is wrong with it is said in words, and never by what it contains.

use serde::de::DeserializeOwned;
use serde_json::error::Category;
use serde_path_to_error::{Path, Segment};

use super::ApiError;

/// Reads one value and nothing after it.
///
/// # Errors
/// The field that is not as it should be, and what it should be.
pub fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = path(error.path());
        fault(path, error.inner())
    })?;
    reader.end().map_err(|_| ApiError::bad("", "something follows the JSON value"))?;
    Ok(value)
}

fn path(path: &Path) -> String {
    let known = path.iter().all(|segment| !matches!(segment, Segment::Unknown));
    if known && path.iter().next().is_some() { path.to_string() } else { String::new() }
}

fn fault(path: String, error: &serde_json::Error) -> ApiError {
    if error.classify() != Category::Data {
        let place = format!("not valid JSON at line {} column {}", error.line(), error.column());
        return ApiError::bad(path, place);
    }
    let text = error.to_string();
    let (message, place) = text.rfind(" at line ").map_or((text.as_str(), ""), |at| text.split_at(at));
    for (start, says) in [("missing field `", "is missing"), ("duplicate field `", "is given twice")] {
        if let Some(field) = message.strip_prefix(start).and_then(|rest| rest.strip_suffix('`')) {
            let field = if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") };
            return ApiError::bad(field, says);
        }
    }
    ApiError::bad(path, format!("{}{place}", without_content(message)))
}

/// serde tells what was expected, which helps, and repeats the text it found, which may be a secret.
fn without_content(message: &str) -> String {
    let repeats = ["invalid ", "unknown "].iter().any(|start| message.starts_with(start));
    match message.rsplit_once(", expected ") {
        Some((_, expected)) if repeats => format!("expected {}", in_words(expected)),
        None if repeats => "not a value that is understood".to_owned(),
        _ => message.to_owned(),
    }
}

/// Types as people name them.
fn in_words(expected: &str) -> &str {
    match expected {
        "u8" => "a whole number from 0 to 255",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number, 0 or more",
        "a sequence" => "an array",
        "a map" => "an object",
        other if other.starts_with("struct ") => "an object",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tokengate_api::SettleItem;

    use super::*;

    fn says(body: &str) -> (String, String) {
        let error = read::<Vec<SettleItem>>(body.as_bytes()).unwrap_err();
        let message = error.message.split(" at line ").next().unwrap_or_default();
        (error.field, message.to_owned())
    }

    #[test]
    fn a_fault_has_a_field_and_words() {
        let item = |more: &str| {
            format!(
                r#"[{{"id": "0123456789abcdef0123456789abcdef", "outcome": "held", "sent": true, {more}}}]"#
            )
        };
        for (body, field, message) in [
            ("", "", "not valid JSON"),
            ("{}", "", "expected an array"),
            ("[[]]", "[0]", "expected an object"),
            ("[7]", "[0]", "expected an object"),
            ("[{}]", "[0].id", "is missing"),
            (&item(r#""age_ms": 1"#), "[0].queued_ms", "is missing"),
            (&item(r#""age_ms": 1, "age_ms": 1"#), "[0].age_ms", "is given twice"),
            (&item(r#""age_ms": -1"#), "[0].age_ms", "expected a whole number, 0 or more"),
            (&item(r#""reserve": {"id": null}"#), "[0].reserve.id", "expected a string"),
            (
                &item(r#""reserve": {"attempt": 256}"#),
                "[0].reserve.attempt",
                "expected a whole number from 0 to 255",
            ),
            ("[] []", "", "something follows the JSON value"),
        ] {
            assert_eq!(says(body), (field.to_owned(), message.to_owned()), "{body}");
        }
    }
}
