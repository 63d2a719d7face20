//! The count of a whole body, written down once more without a thought for time: what tests and the fuzzer
//! compare the counting in pieces with.

use super::{
    Encoding, MEDIA_TOKENS, MESSAGE_OVERHEAD, Member, NAME_OVERHEAD, PROMPT_OVERHEAD, Rules, elements, image,
    members, text,
};

/// Prompt tokens of a body that [`super::parse`] accepts.
pub fn prompt_tokens(body: &str, encoding: Encoding, model: &str) -> u64 {
    let all = members(body).unwrap_or_default();
    let count = |member: &Member<'_>| match member.key.as_str() {
        "messages" => {
            let messages = elements(member.raw).unwrap_or_default();
            let count = |raw| count_message(encoding, model, &members(raw).unwrap_or_default());
            messages.into_iter().map(count).sum()
        }
        // The longest that is looked at.
        "tools" if !member.is_null() && member.raw.len() <= 16 * 1024 => {
            Rules::new(encoding, model).count_tools(member.raw)
        }
        "tools" | "functions" | "response_format" if !member.is_null() => encoding.count(member.raw),
        _ => 0,
    };
    PROMPT_OVERHEAD + all.iter().map(count).sum::<u64>()
}

/// Tokens of one message, given by its members. Total for every shape: what no rule covers is counted by
/// its raw JSON.
fn count_message(encoding: Encoding, model: &str, message: &[Member<'_>]) -> u64 {
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
