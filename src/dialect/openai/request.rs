//! Reads a whole chat completions request, strictly where we act on it, and keeps the places to edit.

use crate::dialect::BadRequest;
use crate::edits::{Edit, Edits};
use crate::json::{Member, is_array_of_objects, members_named, number, text};

/// The members that are read, and that must not be given twice.
const ACTED_ON: [&str; 7] =
    ["model", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens", "n"];
const MAX_CHOICES: u64 = 128;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatRequest {
    /// As the client wrote it.
    pub model: String,
    pub stream: bool,
    pub choices: u32,
    output_limits: OutputLimits,
    /// What makes the provider report the usage of a stream; `None` when it will anyway.
    include_usage: Option<Edit>,
}

/// The names of the output limit, the one that counts reasoning first.
const LIMIT_NAMES: [&str; 2] = ["max_completion_tokens", "max_tokens"];

/// An output limit that the client gave, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OutputLimit {
    value: u64,
    offset: usize,
    length: usize,
}

/// Where the client's output limits stand, or could stand, for writing another one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutputLimits {
    given: Vec<OutputLimit>,
    /// Behind the opening brace.
    front: usize,
    /// Members whose value is null: name, offset and length.
    nulls: Vec<(&'static str, usize, usize)>,
}

impl OutputLimits {
    /// The largest, per choice.
    pub fn largest(&self) -> Option<u64> {
        self.given.iter().map(|limit| limit.value).max()
    }

    /// Edits that lower every limit above `cap` to it. A limit of 0 would be no request at all.
    pub fn cap(&self, cap: u64, edits: &mut Edits) {
        let cap = cap.max(1);
        for limit in self.given.iter().filter(|limit| limit.value > cap) {
            edits.push(Edit {
                offset: limit.offset,
                length: limit.length,
                bytes: cap.to_string().into_bytes(),
            });
        }
    }

    /// The edit that gives a request without a limit this one. A reasoning model takes no `max_tokens`; for
    /// others that name is the one that every server knows.
    pub fn write(&self, limit: u64, is_reasoning: bool, edits: &mut Edits) {
        let [completion, any] = LIMIT_NAMES;
        let name = if is_reasoning { completion } else { any };
        let limit = limit.max(1);
        let null = self.nulls.iter().find(|(null, ..)| *null == name);
        edits.push(match null {
            // A second member of the name would be ambiguous.
            Some(&(_, offset, length)) => Edit { offset, length, bytes: limit.to_string().into_bytes() },
            None => {
                Edit { offset: self.front, length: 0, bytes: format!(r#""{name}":{limit},"#).into_bytes() }
            }
        });
    }
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
    for name in ACTED_ON {
        if all.iter().filter(|member| member.key == name).count() > 1 {
            return Err(bad(name, "is given more than once"));
        }
    }
    let get = |name: &str| all.iter().find(|member| member.key == name && !member.is_null());

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
    let choices = match get("n") {
        None => 1,
        Some(member) => number(member.raw)
            .filter(|n| (1..=MAX_CHOICES).contains(n))
            .and_then(|n| u32::try_from(n).ok())
            .ok_or_else(|| bad("n", "must be a whole number from 1 to 128"))?,
    };
    let mut output_limits = OutputLimits { front: front(body), ..OutputLimits::default() };
    for name in LIMIT_NAMES {
        let Some(member) = all.iter().find(|member| member.key == name) else { continue };
        if member.is_null() {
            output_limits.nulls.push((name, member.offset, member.raw.len()));
            continue;
        }
        let value = number(member.raw).filter(|&value| value > 0);
        let value = value.ok_or_else(|| bad(name, "must be a whole number of at least 1"))?;
        output_limits.given.push(OutputLimit { value, offset: member.offset, length: member.raw.len() });
    }
    let stream_options = all.iter().find(|member| member.key == "stream_options");
    let include_usage = include_usage(stream_options, body)?.filter(|_| stream);
    Ok(ChatRequest { model, stream, choices, output_limits, include_usage })
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
    let inner =
        members_named(options.raw, &[NAME]).map_err(|_| bad("stream_options", "must be an object"))?;
    let mut given = inner.iter();
    let edit = match (given.next(), given.next()) {
        (_, Some(_)) => return Err(bad("stream_options.include_usage", "is given more than once")),
        (None, _) => {
            let is_empty = options.raw.trim_matches(['{', '}', ' ', '\t', '\r', '\n']).is_empty();
            let separator = if is_empty { "" } else { "," };
            insert(options.offset + 1, &format!(r#""include_usage":true{separator}"#))
        }
        (Some(member), _) => {
            if !member.is_null() && boolean("stream_options.include_usage", member.raw)? {
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

/// For a model of which the policy wants every request to name a limit.
pub fn missing_output_limit() -> BadRequest {
    let [name, other] = LIMIT_NAMES;
    bad(name, &format!("is missing: requests to this model have to give '{name}' or '{other}'"))
}

fn bad(param: &'static str, reason: &str) -> BadRequest {
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
