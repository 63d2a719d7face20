//! The count of a whole body, written down once more without a thought for time: what tests and the fuzzer
//! compare the counting in pieces with.

use super::{
    Binary, Encoding, HIDDEN_TOKENS, MEDIA_TOKENS, MESSAGE_OVERHEAD, Member, NAME_OVERHEAD, PROMPT_OVERHEAD,
    Rules, elements, image, members, text,
};

/// Shorter text beside media, and shorter members that nobody knows, do not count.
const SHORT: usize = 256;

/// Prompt tokens of a body that [`super::parse`] accepts, with those of unknown members after it; `None` where
/// a member that is read by its name is there twice or in another case.
pub fn prompt_tokens(body: &str, encoding: Encoding, model: &str) -> Option<(u64, u64)> {
    let all = members(body).unwrap_or_default();
    let (mut total, mut ids, mut unknown) = (PROMPT_OVERHEAD, 0, 0);
    for member in all.iter().filter(|member| !member.is_null()) {
        let raw = member.raw;
        total += match member.key.as_str() {
            "messages" => {
                let mut sum = 0;
                for message in elements(raw).unwrap_or_default() {
                    sum += count_message(encoding, model, &members(message).unwrap_or_default())?;
                }
                sum
            }
            "tools" => {
                check_tools(raw)?;
                let by_rule = elements(raw).is_ok() && raw.len() <= 16 * 1024;
                if by_rule { Rules::new(encoding, model).count_tools(raw) } else { encoding.count(raw) }
            }
            "functions" | "response_format" | "documents" | "chat_template_kwargs" => encoding.count(raw),
            "chat_template" => count_value(encoding, raw),
            "data_sources" | "session_params" | "lora_path" => HIDDEN_TOKENS + encoding.count(raw),
            "input_ids" => match elements(raw) {
                Ok(all) => {
                    ids = all.into_iter().map(leaves).sum();
                    0
                }
                Err(_) => count_value(encoding, raw),
            },
            "prediction" => match members(raw) {
                Ok(members) => {
                    is_clear(&members, &["type", "content"]).then_some(())?;
                    match members.iter().find(|member| member.key == "content" && !member.is_null()) {
                        Some(content) => count_content(encoding, model, content.raw, false)?,
                        None => 0,
                    }
                }
                Err(_) => count_value(encoding, raw),
            },
            key if key.starts_with("unknown") && raw.len() > SHORT => {
                let (media, text) = loose(key, raw);
                unknown += media * MEDIA_TOKENS + encoding.count(&text);
                0
            }
            _ => 0,
        };
    }
    Some((total.max(ids), unknown))
}

/// Each of the names is there at most once, and none in another case.
fn is_clear(object: &[Member<'_>], names: &[&str]) -> bool {
    let fold = |key: &str| -> String {
        let letters = key.chars().map(|letter| match letter {
            'ſ' => 's',
            '\u{212a}' => 'k',
            'ı' | 'İ' => 'i',
            letter => letter.to_ascii_lowercase(),
        });
        letters.collect()
    };
    names.iter().all(|name| {
        let meant: Vec<_> = object.iter().filter(|member| fold(&member.key) == *name).collect();
        meant.len() <= 1 && meant.iter().all(|member| member.key == *name)
    })
}

fn leaves(raw: &str) -> u64 {
    elements(raw).map_or(1, |all| all.into_iter().map(leaves).sum())
}

fn check_tools(raw: &str) -> Option<()> {
    for tool in elements(raw).unwrap_or_default() {
        let tool = members(tool).unwrap_or_default();
        is_clear(&tool, &["type", "function", "name", "description", "parameters", "strict", "custom"])
            .then_some(())?;
        for function in tool.iter().filter(|member| member.key == "function") {
            let function = members(function.raw).unwrap_or_default();
            is_clear(&function, &["name", "description", "parameters", "strict"]).then_some(())?;
        }
    }
    Some(())
}

/// Tokens of one message, given by its members. Total for every shape: what no rule covers is counted by
/// its raw JSON.
fn count_message(encoding: Encoding, model: &str, message: &[Member<'_>]) -> Option<u64> {
    const NAMES: [&str; 11] = [
        "role",
        "content",
        "name",
        "refusal",
        "tool_calls",
        "tool_call_id",
        "function_call",
        "tools",
        "audio",
        "reasoning",
        "reasoning_content",
    ];
    is_clear(message, &NAMES).then_some(())?;
    let mut sum = MESSAGE_OVERHEAD;
    for member in message.iter().filter(|member| !member.is_null()) {
        sum += match member.key.as_str() {
            "content" => count_content(encoding, model, member.raw, true)?,
            "name" => NAME_OVERHEAD + count_value(encoding, member.raw),
            key if !NAMES.contains(&key) && member.raw.starts_with(['{', '[']) => {
                count_loose(encoding, key, member.raw)
            }
            _ => count_value(encoding, member.raw),
        };
    }
    Some(sum)
}

fn count_value(encoding: Encoding, raw: &str) -> u64 {
    match text(raw) {
        Some(text) => encoding.count(&text),
        None => encoding.count(raw),
    }
}

fn loose(key: &str, raw: &str) -> (u64, String) {
    let (mut binary, mut text) = (Binary::under(key.as_bytes()), Vec::new());
    binary.push(raw.as_bytes(), |piece| text.extend_from_slice(piece));
    (binary.found(), String::from_utf8_lossy(&text).into_owned())
}

fn count_loose(encoding: Encoding, key: &str, raw: &str) -> u64 {
    let (media, text) = loose(key, raw);
    media * MEDIA_TOKENS + encoding.count(&text)
}

fn count_content(encoding: Encoding, model: &str, raw: &str, is_message: bool) -> Option<u64> {
    match elements(raw) {
        Ok(parts) => {
            let mut sum = 0;
            for part in parts {
                sum += count_part(encoding, model, part)?;
            }
            Some(sum)
        }
        Err(_) if raw.starts_with('{') && is_message => Some(count_loose(encoding, "content", raw)),
        Err(_) => Some(count_value(encoding, raw)),
    }
}

fn count_part(encoding: Encoding, model: &str, raw: &str) -> Option<u64> {
    const MEDIA_NAMES: [&str; 13] = [
        "input_audio",
        "audio",
        "audio_url",
        "video",
        "video_url",
        "image",
        "file",
        "file_url",
        "document",
        "document_url",
        "image_embeds",
        "audio_embeds",
        "image_pil",
    ];
    const MEDIA: [&str; 20] = [
        "input_image",
        "image",
        "input_audio",
        "audio",
        "audio_url",
        "input_video",
        "video",
        "video_url",
        "input_file",
        "file",
        "file_url",
        "document",
        "document_url",
        "input_document",
        "media",
        "pdf",
        "image_embeds",
        "audio_embeds",
        "video_embeds",
        "image_pil",
    ];
    if raw == "null" {
        return Some(0);
    }
    let Ok(part) = members(raw) else { return Some(count_value(encoding, raw)) };
    is_clear(&part, &["type", "text", "refusal", "image_url", "detail"]).then_some(())?;
    is_clear(&part, &MEDIA_NAMES).then_some(())?;
    let get = |key: &str| part.iter().find(|member| member.key == key).map(|member| member.raw);
    let image = get("image_url").filter(|image| *image != "null");
    let inside = image.and_then(|image| members(image).ok()).unwrap_or_default();
    is_clear(&inside, &["url", "detail"]).then_some(())?;
    let is_low = |members: &[Member<'_>]| {
        members.iter().any(|m| m.key == "detail" && text(m.raw).as_deref() == Some("low"))
    };
    let media = || {
        let (media, text) = loose("", raw);
        let text = if text.len() > SHORT { encoding.count(&text) } else { 0 };
        media.max(1) * MEDIA_TOKENS + text
    };
    let has_media = MEDIA_NAMES.iter().any(|name| get(name).is_some_and(|raw| raw != "null"));
    Some(match get("type").and_then(text).as_deref() {
        Some("text" | "input_text" | "output_text") => {
            get("text").map_or(0, |raw| count_value(encoding, raw))
        }
        Some("refusal") => get("refusal").map_or(0, |raw| count_value(encoding, raw)),
        Some("image_url") => image.map_or(0, |_| image::tokens(model, is_low(&inside))),
        Some("input_image") if image.is_some() => image::tokens(model, is_low(&part)),
        Some("image") if image.is_some() => image::tokens(model, false),
        Some(kind) if MEDIA.contains(&kind) => media(),
        _ if has_media => media(),
        _ => {
            let image = image.map_or(0, |_| image::tokens(model, false));
            image + count_loose(encoding, "", raw)
        }
    })
}
