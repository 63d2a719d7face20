//! Every answer that is ours instead of the provider's: status, code, body and headers.

use std::borrow::Cow;

use serde_json::{Value, json};
use tokengate_api::{LimitState, Metric, Reason, ReserveResponse};

use super::BadRequest;
use crate::config::Reset;
use crate::identity::IdentityError;
use crate::limit_headers::{self, HeaderList};

/// A local reply, ready to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalReply {
    pub status: u16,
    pub headers: HeaderList,
    pub body: Vec<u8>,
    /// What access logs name the reason by: `tokengate_<code>`.
    pub details: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    status: u16,
    kind: &'static str,
    code: Cow<'static, str>,
    message: String,
    param: Option<&'static str>,
    limit: Option<LimitState>,
    headers: HeaderList,
}

/// Whether the caller asked for RFC 9457 bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFormat {
    OpenAi,
    ProblemDetails,
}

impl BodyFormat {
    pub fn of_accept(accept: Option<&[u8]>) -> Self {
        let wanted = b"application/problem+json";
        match accept {
            Some(value) if value.windows(wanted.len()).any(|w| w.eq_ignore_ascii_case(wanted)) => {
                Self::ProblemDetails
            }
            _ => Self::OpenAi,
        }
    }
}

const TOO_MANY_MODELS: &str =
    "So many models may answer this request that more limits apply than can be held at once. Name fewer.";
const INVALID_IDENTITY: &str =
    "The user, tenant or plan that was given for this request is not allowed here.";

impl Refusal {
    fn new(
        status: u16,
        kind: &'static str,
        code: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) -> Self {
        let (code, message) = (code.into(), message.into());
        Self { status, kind, code, message, param: None, limit: None, headers: HeaderList::new() }
    }

    pub fn unknown_endpoint(method: &str, path: &str) -> Self {
        let message = format!(
            "{method} {path} is not open here. Open it with paths.allow, or change paths.other, in the gateway's configuration."
        );
        Self::new(404, "invalid_request_error", "unknown_endpoint", message)
    }

    pub fn identity(error: IdentityError) -> Self {
        let (code, message) = match error {
            IdentityError::Missing => (
                "missing_identity",
                "You did not say who you are. Give your API key or token, as 'Authorization: Bearer KEY' for example.",
            ),
            IdentityError::Invalid => ("invalid_identity", INVALID_IDENTITY),
            IdentityError::Ambiguous => (
                "ambiguous_identity",
                "You gave more than one API key, or one header twice. Give exactly one key.",
            ),
        };
        Self::new(401, "authentication_error", code, message)
    }

    pub fn bad_request(error: BadRequest) -> Self {
        let mut refusal = Self::new(400, "invalid_request_error", "invalid_request", error.message);
        refusal.param = error.param;
        refusal
    }

    pub fn unreadable_coding() -> Self {
        let message =
            "The body has a content-encoding that cannot be read here. Send it with gzip, or without any.";
        Self::new(415, "invalid_request_error", "unsupported_content_encoding", message)
    }

    pub fn malformed_gzip() -> Self {
        let message = "The body says that it is gzip, and is not.";
        Self::new(400, "invalid_request_error", "invalid_request", message)
    }

    pub fn too_large(limit: usize) -> Self {
        let message = format!("The body is larger than the {limit} bytes that are allowed here.");
        Self::new(413, "invalid_request_error", "request_too_large", message)
    }

    pub fn quota_unavailable() -> Self {
        let message =
            "The quota service gives no answer, so the request was not let through. Please try again.";
        let mut refusal = Self::new(503, "api_error", "quota_unavailable", message);
        refusal.headers = limit_headers::retry(Some(1_000));
        refusal
    }

    /// For a stream whose answer has begun.
    pub fn output_stopped() -> Self {
        let message = "The answer was stopped: your budget does not allow for more output.";
        Self::new(429, "rate_limit_error", "output_stopped", message)
    }

    pub fn misconfigured_proxy() -> Self {
        let message = "The gateway is not set up as it must be; its operator finds the reason in its log.";
        Self::new(503, "api_error", "misconfigured_proxy", message)
    }

    /// A name that cannot be one of any model's.
    pub fn model_not_found(model: &str) -> Self {
        let message = format!("The model '{}' does not exist here.", shown(model));
        let mut refusal = Self::new(404, "invalid_request_error", "model_not_found", message);
        refusal.param = Some("model");
        refusal
    }

    /// The service's own `deny`.
    pub fn denied(answer: &ReserveResponse, model: &str, prompt_tokens: u64, reset: Reset) -> Self {
        // Of several that the request names, the one that it is about.
        let model = answer.model.as_deref().unwrap_or(model);
        let reason = answer.reason.clone().unwrap_or(Reason::Other("denied".to_owned()));
        let limit = answer
            .refused_by
            .as_ref()
            .and_then(|name| answer.limits.iter().find(|limit| limit.name == *name))
            .cloned();
        let (status, kind) = match reason {
            Reason::UnknownKey | Reason::InvalidIdentity => (401, "authentication_error"),
            Reason::ModelNotFound => return Self::model_not_found(model),
            Reason::ModelNotAllowed => (403, "permission_error"),
            Reason::TooManyModels => (400, "invalid_request_error"),
            Reason::QuotaUnavailable => return Self::quota_unavailable(),
            Reason::RpmLimitExceeded
            | Reason::TpmLimitExceeded
            | Reason::ConcurrencyLimitExceeded
            | Reason::RequestExceedsLimit
            | Reason::Other(_) => (429, "rate_limit_error"),
            Reason::QuotaExceeded | Reason::BudgetExceeded => (429, "insufficient_quota"),
        };
        let retry_after = answer.retry_after_ms.filter(|_| reason != Reason::RequestExceedsLimit);
        let message = match reason {
            Reason::UnknownKey => "This API key is not known here.".to_owned(),
            Reason::InvalidIdentity => INVALID_IDENTITY.to_owned(),
            Reason::ModelNotAllowed => format!("Your plan does not include the model '{}'.", shown(model)),
            Reason::TooManyModels => TOO_MANY_MODELS.to_owned(),
            _ => over_limit(&reason, limit.as_ref(), prompt_tokens, retry_after),
        };
        let mut refusal = Self::new(status, kind, reason.as_str().to_owned(), message);
        match reason {
            Reason::ModelNotAllowed => refusal.param = Some("model"),
            Reason::TooManyModels => refusal.param = Some("models"),
            _ => {}
        }
        if status == 429 {
            refusal.headers = limit_headers::rate_limit(&answer.limits, reset);
            refusal.headers.extend(limit_headers::retry(retry_after));
            refusal.headers.push(("x-tokengate-refused-by", "quota".to_owned()));
        }
        refusal.limit = limit;
        refusal
    }

    /// The code for a metric, whose values must come from a fixed list.
    pub fn label(&self) -> Cow<'static, str> {
        match (&self.code, Reason::from(self.code.to_string())) {
            (Cow::Owned(_), Reason::Other(_)) => "other".into(),
            (code, _) => code.clone(),
        }
    }

    /// Where the refusal is for the body: the member that it is for, `body` for the whole.
    pub fn body_member(&self) -> Option<&'static str> {
        matches!(self.status, 400 | 413 | 415).then(|| self.param.unwrap_or("body"))
    }

    /// The error object of OpenAI's dialect.
    fn error(&self) -> Value {
        let mut error = json!({
            "message": self.message, "type": self.kind, "param": self.param, "code": self.code,
        });
        add(&mut error, "limit", self.limit.as_ref().map(limit_object));
        json!({ "error": error })
    }

    /// As the last event of a stream that has begun.
    pub fn event(&self) -> Vec<u8> {
        format!("data: {}\n\n", self.error()).into_bytes()
    }

    pub fn reply(self, format: BodyFormat) -> LocalReply {
        let (content_type, body) = match format {
            BodyFormat::OpenAi => ("application/json", self.error()),
            BodyFormat::ProblemDetails => {
                let problem = match self.status {
                    429 => "https://iana.org/assignments/http-problem-types#quota-exceeded",
                    503 => "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
                    _ => "about:blank",
                };
                let mut body = json!({
                    "type": problem, "title": title(self.status), "status": self.status,
                    "detail": self.message, "code": self.code,
                });
                add(&mut body, "param", self.param.map(Value::from));
                add(&mut body, "limit", self.limit.as_ref().map(limit_object));
                ("application/problem+json", body)
            }
        };
        let mut headers = self.headers;
        headers.push(("content-type", content_type.to_owned()));
        LocalReply {
            status: self.status,
            headers,
            body: body.to_string().into_bytes(),
            details: format!("tokengate_{}", self.code),
        }
    }
}

fn add(object: &mut Value, key: &str, value: Option<Value>) {
    if let (Some(object), Some(value)) = (object.as_object_mut(), value) {
        object.insert(key.to_owned(), value);
    }
}

/// Which budget, whose, and when it recovers.
fn limit_object(limit: &LimitState) -> Value {
    let mut object = json!({
        "name": limit.name, "scope": limit.scope, "metric": limit.metric, "limit": limit.limit,
        "remaining": limit.remaining, "reset_ms": limit.reset_ms, "window_ms": limit.window_ms, "plan": limit.plan,
    });
    add(&mut object, "held", limit.held.map(Value::from));
    object
}

fn over_limit(
    reason: &Reason,
    limit: Option<&LimitState>,
    prompt_tokens: u64,
    retry_after_ms: Option<u64>,
) -> String {
    let Some(limit) = limit else { return format!("The request was refused: {reason}.") };
    let amount = |amount: u64| match limit.metric {
        Metric::Requests => format!("{amount} requests"),
        Metric::Tokens => format!("{amount} tokens"),
        Metric::Cost => dollars(amount),
        Metric::Concurrency => format!("{amount} requests at a time"),
        Metric::Other => format!("{amount} units"),
    };
    let per = if limit.window_ms == 0 { String::new() } else { format!(" per {}", window(limit.window_ms)) };
    let scope: Vec<String> = limit.scope.iter().map(|(name, value)| format!("{name} {value}")).collect();
    let budget = format!(
        "limit '{}' of {} ({}): {}{per}, {} remaining",
        limit.name,
        scope.join(", "),
        limit.plan.as_deref().map_or("any plan".to_owned(), |plan| format!("plan {plan}")),
        amount(limit.limit),
        if limit.metric == Metric::Cost { dollars(limit.remaining) } else { limit.remaining.to_string() },
    );
    if *reason == Reason::RequestExceedsLimit {
        return format!(
            "The request is larger than the whole {budget}. Its prompt has {prompt_tokens} tokens; ask for less output or send less."
        );
    }
    let wait = retry_after_ms
        .map_or(String::new(), |ms| format!(" Please try again in {}.{:03}s.", ms / 1000, ms % 1000));
    format!("Rate limit reached for the {budget}.{wait}")
}

/// Nano-dollars as an amount of money, to the micro-dollar.
fn dollars(nano: u64) -> String {
    let (whole, micro) = (nano / 1_000_000_000, nano % 1_000_000_000 / 1_000);
    let digits = format!("{micro:06}");
    let digits = digits.trim_end_matches('0');
    format!("{whole}.{digits:0<2} US dollars")
}

/// A window's length in its largest whole unit.
fn window(ms: u64) -> String {
    for (unit, length) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)] {
        if ms >= length && ms.is_multiple_of(length) {
            return format!("{}{unit}", ms / length);
        }
    }
    format!("{ms}ms")
}

/// A client's model name, short enough and clean enough to repeat.
fn shown(model: &str) -> String {
    model.chars().filter(|c| !c.is_control()).take(64).collect()
}

fn title(status: u16) -> &'static str {
    match status {
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        429 => "Too Many Requests",
        _ => "Service Unavailable",
    }
}

#[cfg(test)]
#[path = "refusal_tests.rs"]
mod tests;
