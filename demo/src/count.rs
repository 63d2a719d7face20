//! Counts as the provider bills: with tiktoken, independently of the filter.

use serde_json::Value;
use tiktoken_rs::CoreBPE;

fn vocabulary(model: &str) -> &'static CoreBPE {
    let is_older = model == "gpt-4" || ["gpt-4-", "gpt-3.5"].iter().any(|prefix| model.starts_with(prefix));
    if is_older { tiktoken_rs::cl100k_base_singleton() } else { tiktoken_rs::o200k_base_singleton() }
}

/// The first `most` tokens of a text, and whether that is all of it.
pub fn first_tokens(model: &str, text: &str, most: usize) -> (Vec<String>, bool) {
    let vocabulary = vocabulary(model);
    let tokens = vocabulary.encode_ordinary(text);
    let piece = |token: &u32| vocabulary.decode_bytes(&[*token]).unwrap_or_default();
    let pieces = tokens.iter().take(most).map(piece);
    let pieces = pieces.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).collect();
    (pieces, tokens.len() <= most)
}

/// Prompt tokens by the published framing.
pub fn prompt_tokens(model: &str, messages: &[Value]) -> usize {
    let count = |text: &str| vocabulary(model).encode_ordinary(text).len();
    let text = |value: &Value| match value {
        Value::String(text) => count(text),
        Value::Null => 0,
        Value::Array(parts) => {
            parts.iter().map(|part| part.get("text").and_then(Value::as_str).map_or(0, count)).sum()
        }
        other => count(&other.to_string()),
    };
    let message = |message: &Value| {
        let member = |name: &str| message.get(name).map_or(0, text);
        3 + member("role") + member("content") + message.get("name").map_or(0, |name| 1 + text(name))
    };
    3 + messages.iter().map(message).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn published_counts() {
        let hi = json!([{"role": "user", "content": "hi"}]);
        let messages = hi.as_array().cloned().unwrap_or_default();
        assert_eq!(prompt_tokens("gpt-4o", &messages), 8);
        assert_eq!(first_tokens("gpt-4", "hello world", 1), (vec!["hello".to_owned()], false));
        assert_eq!(first_tokens("gpt-4o", "hello world", 2).0.concat(), "hello world");
    }
}
