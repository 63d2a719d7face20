//! Reads a whole chat completions request, strictly where we act on it, and keeps the places to edit.

use super::alternatives;
use super::limits::OutputLimits;
use super::names::{ACTED_ON, CHOICES, EXTRA, NOT_ALLOWED};
use crate::dialect::BadRequest;
use crate::edits::Edit;
use crate::json::{Fault, Member, is_array_of_objects, members_named, number, text};

const MAX_CHOICES: u64 = 128;
const LONGEST_TIER: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatRequest {
    /// As the client wrote it.
    pub model: String,
    /// Other models that may answer, as the client wrote them.
    pub alternatives: Vec<String>,
    pub service_tier: Option<String>,
    pub stream: bool,
    pub choices: u32,
    output_limits: OutputLimits,
    /// What makes the provider report the usage of a stream; `None` when it will anyway.
    include_usage: Option<Edit>,
}

impl ChatRequest {
    /// The largest output limit per choice that the client gave.
    pub fn max_output_tokens(&self) -> Option<u64> {
        self.output_limits.largest()
    }

    pub fn output_limits(&self) -> OutputLimits {
        self.output_limits.clone()
    }

    /// The edit that asks for the usage chunk of a stream.
    pub fn include_usage(&self) -> Option<Edit> {
        self.include_usage.clone()
    }
}

pub fn parse(body: &[u8]) -> Result<ChatRequest, BadRequest> {
    let body = std::str::from_utf8(body).map_err(|_| whole_body("the body is not UTF-8"))?;
    let all = members_named(body, &ACTED_ON).map_err(|error| not_json(&error))?;
    if let Some(fault) = all.fault {
        return Err(ambiguous(fault));
    }
    let get = |name: &str| all.get(name).filter(|member| !member.is_null());

    let model = match get("model") {
        None => return Err(bad("model", "is missing")),
        Some(member) => text(member.raw).ok_or_else(|| bad("model", "must be a string"))?,
    };
    match get("messages").map(|member| is_array_of_objects(member.raw)) {
        None => return Err(bad("messages", "is missing")),
        Some(None) => return Err(bad("messages", "must be an array")),
        Some(Some(false)) => return Err(bad("messages", "must be an array of objects")),
        Some(Some(true)) => {}
    }
    let stream = match get("stream") {
        None => false,
        Some(member) => boolean("stream", member.raw)?,
    };
    let mut choices = 1;
    for name in CHOICES {
        let Some(member) = get(name) else { continue };
        let number = number(member.raw).filter(|n| (1..=MAX_CHOICES).contains(n));
        let number = number.and_then(|n| u32::try_from(n).ok());
        choices = choices.max(number.ok_or_else(|| bad(name, "must be a whole number from 1 to 128"))?);
    }
    let service_tier = match get("service_tier") {
        None => None,
        Some(member) => {
            let tier = text(member.raw).filter(|tier| tier.len() <= LONGEST_TIER);
            Some(tier.ok_or_else(|| bad("service_tier", "must be a string of at most 64 bytes"))?)
        }
    };
    if let Some(name) = NOT_ALLOWED.into_iter().find(|name| get(name).is_some()) {
        return Err(bad(name, "is not allowed here: what it changes cannot be checked"));
    }
    if let Some(extra) = get(EXTRA) {
        alternatives::check_extra(extra.raw, EXTRA)?;
    }
    let alternatives = alternatives::read(&all)?;
    let output_limits = OutputLimits::read(&all, front(body))?;
    let include_usage = include_usage(all.get("stream_options").as_ref(), body)?.filter(|_| stream);
    Ok(ChatRequest { model, alternatives, service_tier, stream, choices, output_limits, include_usage })
}

/// Where a member can be added.
fn front(body: &str) -> usize {
    body.find('{').unwrap_or(0) + 1
}

/// What must be written to have `stream_options.include_usage: true`.
fn include_usage(stream_options: Option<&Member<'_>>, body: &str) -> Result<Option<Edit>, BadRequest> {
    let insert = |offset, bytes: &str| Edit { offset, length: 0, bytes: bytes.as_bytes().to_vec() };
    let Some(options) = stream_options else {
        return Ok(Some(insert(front(body), r#""stream_options":{"include_usage":true},"#)));
    };
    if options.is_null() {
        let bytes = br#"{"include_usage":true}"#.to_vec();
        return Ok(Some(Edit { offset: options.offset, length: options.raw.len(), bytes }));
    }
    const NAME: &str = "include_usage";
    const SHOWN: &str = "stream_options.include_usage";
    let inner =
        members_named(options.raw, &[NAME]).map_err(|_| bad("stream_options", "must be an object"))?;
    match inner.fault {
        Some(Fault::Twice(_)) => return Err(ambiguous(Fault::Twice(SHOWN))),
        Some(Fault::Resembles(_)) => return Err(ambiguous(Fault::Resembles(SHOWN))),
        None => {}
    }
    let edit = match inner.get(NAME) {
        None => {
            let is_empty = options.raw.trim_matches(['{', '}', ' ', '\t', '\r', '\n']).is_empty();
            let separator = if is_empty { "" } else { "," };
            insert(options.offset + 1, &format!(r#""include_usage":true{separator}"#))
        }
        Some(member) => {
            if !member.is_null() && boolean(SHOWN, member.raw)? {
                return Ok(None);
            }
            let offset = options.offset + member.offset;
            Edit { offset, length: member.raw.len(), bytes: b"true".to_vec() }
        }
    };
    Ok(Some(edit))
}

fn boolean(param: &'static str, raw: &str) -> Result<bool, BadRequest> {
    match raw {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(bad(param, "must be true or false")),
    }
}

/// A member that two servers can read in two ways.
pub fn ambiguous(fault: Fault) -> BadRequest {
    match fault {
        Fault::Twice(name) => bad(name, "is given more than once"),
        Fault::Resembles(name) => bad(
            name,
            "is there in another spelling of upper and lower case, which some servers take for it: spell it as here",
        ),
    }
}

pub(super) fn bad(param: &'static str, reason: &str) -> BadRequest {
    BadRequest { param: Some(param), message: format!("'{param}' {reason}.") }
}

fn whole_body(reason: &str) -> BadRequest {
    BadRequest { param: None, message: format!("We could not read your request: {reason}.") }
}

/// Says where, never what: the body is the caller's secret.
fn not_json(error: &serde_json::Error) -> BadRequest {
    let (line, column) = (error.line(), error.column());
    whole_body(&format!("the body is not a JSON object (line {line}, column {column})"))
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
