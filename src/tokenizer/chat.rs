//! The published rules for what a chat prompt costs beyond its texts.

use super::{Encoding, image};
use crate::json::{Member, elements, members, text};

/// Tokens of every prompt: the start of the reply.
pub const PROMPT_OVERHEAD: u64 = 3;
const MESSAGE_OVERHEAD: u64 = 3;
const NAME_OVERHEAD: u64 = 1;
/// What an audio or file part is taken for. No rule is published, and its base64 is no text.
const MEDIA_TOKENS: u64 = 2_000;

/// Tokens of one message, given by its members. Total for every shape: what no rule covers is counted by
/// its raw JSON.
pub fn count_message(encoding: Encoding, model: &str, message: &[Member<'_>]) -> u64 {
    let member = |member: &Member<'_>| match member.key.as_str() {
        _ if member.is_null() => 0,
        "content" => count_content(encoding, model, member.raw),
        "name" => NAME_OVERHEAD.saturating_add(count_value(encoding, member.raw)),
        _ => count_value(encoding, member.raw),
    };
    message.iter().map(member).fold(MESSAGE_OVERHEAD, u64::saturating_add)
}

fn count_value(encoding: Encoding, raw: &str) -> u64 {
    match text(raw) {
        Some(text) => encoding.count(&text),
        None => encoding.count(raw),
    }
}

fn count_content(encoding: Encoding, model: &str, raw: &str) -> u64 {
    match elements(raw) {
        Ok(parts) => {
            parts.into_iter().map(|part| count_part(encoding, model, part)).fold(0, u64::saturating_add)
        }
        Err(_) => count_value(encoding, raw),
    }
}

fn count_part(encoding: Encoding, model: &str, raw: &str) -> u64 {
    if raw == "null" {
        return 0;
    }
    let Ok(part) = members(raw) else { return count_value(encoding, raw) };
    let get = |key: &str| part.iter().rev().find(|member| member.key == key).map(|member| member.raw);
    match get("type").and_then(text).as_deref() {
        Some("text") => get("text").map_or(0, |raw| count_value(encoding, raw)),
        Some("refusal") => get("refusal").map_or(0, |raw| count_value(encoding, raw)),
        Some("image_url") => match get("image_url") {
            None | Some("null") => 0,
            Some(image) => image::tokens(model, is_low_detail(image)),
        },
        Some("input_audio" | "file") => MEDIA_TOKENS,
        _ => encoding.count(raw),
    }
}

fn is_low_detail(image: &str) -> bool {
    members(image).is_ok_and(|members| {
        members.iter().any(|m| m.key == "detail" && text(m.raw).as_deref() == Some("low"))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn prompt(encoding: Encoding, messages: &str) -> u64 {
        let count = |raw| count_message(encoding, "gpt-4o", &members(raw).unwrap());
        PROMPT_OVERHEAD + elements(messages).unwrap().into_iter().map(count).sum::<u64>()
    }

    #[test]
    fn published_framing() {
        for (messages, cl100k, o200k) in [
            (r#"[{"role":"user","content":"hi"}]"#, 8, 8),
            (r#"[{"role":"user","content":""}]"#, 7, 7),
            (r#"[{"role":"user","content":null}]"#, 7, 7),
            (r#"[{"role":"user","content":"hi","name":"alice"}]"#, 10, 10),
            (r#"[{"role":"system","content":"You are terse."},{"role":"user","content":"hi"}]"#, 16, 16),
            (r#"[{"role":"user","content":"你好世界"}]"#, 12, 9),
            (r#"[{"role":"user","content":"\u4f60\u597d\u4e16\u754c"}]"#, 12, 9),
            (r#"[{"role":"user","content":"<|endoftext|>"}]"#, 14, 14),
            (r#"[{"role":"user","content":[{"type":"text","text":"hi"},null]}]"#, 8, 8),
            ("[]", 3, 3),
        ] {
            assert_eq!(prompt(Encoding::Cl100kBase, messages), cl100k, "{messages}");
            assert_eq!(prompt(Encoding::O200kBase, messages), o200k, "{messages}");
        }
    }

    #[test]
    fn every_shape_of_content_has_a_count() {
        for (content, least, most) in [
            ("42", 1, 1),
            ("true", 1, 1),
            ("{}", 1, 2),
            (r#"[42,"loose",[],{}]"#, 4, 8),
            (r#"[{"type":"video_url","video_url":{"url":"x"}}]"#, 8, 30),
            (r#"[{"type":"tool_result","content":[{"type":"text","text":"ok"}]}]"#, 10, 40),
            (r#"[{"type":"image_url","image_url":null}]"#, 0, 0),
            (r#"[{"type":"image_url","image_url":"data:image/png;base64,AAAA"}]"#, 1445, 1445),
            (r#"[{"type":"image_url","image_url":{"url":"https://x/","detail":"low"}}]"#, 85, 85),
        ] {
            let counted = count_content(Encoding::O200kBase, "gpt-4o", content);
            assert!((least..=most).contains(&counted), "{content}: {counted}");
        }
    }

    #[test]
    fn tool_calls_are_counted() {
        let message = r#"{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function",
            "function":{"name":"f","arguments":"{\"city\":\"Bern\"}"}}]}"#;
        assert!(prompt(Encoding::O200kBase, &format!("[{message}]")) > 20);
    }
}
