use std::sync::Arc;
use std::time::Duration;

use axum::body::{Bytes, HttpBody};
use axum::extract::{FromRequest, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use serde::de::DeserializeOwned;
use tokengate_api::{
    ExtendItem, MAX_OTHER_MODELS, MAX_SETTLE_ITEMS, Outcome, ReserveRequest, SettleItem, VerifiedIdentity,
};

use super::{Api, ApiError, json};
use crate::metrics::RefusedCall;
use crate::quota::Quota;
use crate::subject::is_address;

/// Of dialects and endpoints, in bytes.
const LONGEST_NAME: usize = 64;

/// A whole body, read within its time, as JSON.
pub struct JsonBody<T>(pub T);

impl<T: DeserializeOwned> FromRequest<Api> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, api: &Api) -> Result<Self, ApiError> {
        let read = read(request, api.bounds.body_bytes, api.bounds.body_time).await;
        if matches!(&read, Err(error) if error.status == StatusCode::REQUEST_TIMEOUT) {
            api.quota.telemetry().metrics.refused_call(RefusedCall::SlowBody);
        }
        read
    }
}

/// What operators send.
impl<T: DeserializeOwned> FromRequest<Arc<Quota>> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &Arc<Quota>) -> Result<Self, ApiError> {
        read(request, usize::MAX, OPERATORS_TIME).await
    }
}

const TOO_LARGE: &str = "the body is too large";
const NOT_JSON: &str = "must be application/json";
const OPERATORS_TIME: Duration = Duration::from_secs(5);

async fn read<T: DeserializeOwned>(
    request: Request,
    most: usize,
    time: Duration,
) -> Result<JsonBody<T>, ApiError> {
    // Anything else a web page may send without asking.
    if !says_json(request.headers()) {
        return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "content-type", NOT_JSON));
    }
    // One that says of itself that it is too large is refused at once: nobody has to wait for it.
    if usize::try_from(request.body().size_hint().lower()).map_or(true, |least| least > most) {
        return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "", TOO_LARGE));
    }
    let Ok(body) = tokio::time::timeout(time, Bytes::from_request(request, &())).await else {
        return Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "", "the body did not come in time"));
    };
    let body = body.map_err(|rejection| {
        let status = rejection.status();
        let message =
            if status == StatusCode::PAYLOAD_TOO_LARGE { TOO_LARGE } else { "the body could not be read" };
        ApiError::new(status, "", message)
    })?;
    json::read(&body).map(JsonBody)
}

/// Exactly one type, with parameters or without.
fn says_json(headers: &HeaderMap) -> bool {
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    let (Some(first), None) = (types.next(), types.next()) else { return false };
    let essence = first.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
    essence.trim_ascii().eq_ignore_ascii_case(b"application/json")
}

const MAX_ASSERTED: usize = 16;
const MAX_TEXT: usize = 1024;

/// Who calls is said in one way, and only in one.
pub fn check_caller(key_hash: &str, identity: Option<&VerifiedIdentity>) -> Result<(), ApiError> {
    let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    match identity {
        Some(_) if key_hash.is_empty() => Ok(()),
        Some(_) => Err(ApiError::bad("identity", "takes the place of key_hash; give one of them")),
        None if key_hash.is_empty() => {
            Err(ApiError::bad("key_hash", "is missing; give it, or identity in its place"))
        }
        None if key_hash.len() == 64 && key_hash.bytes().all(hex) => Ok(()),
        None => Err(ApiError::bad("key_hash", "must be 64 lower-case hex digits")),
    }
}

/// What types alone do not say about a reserve.
pub fn check_reserve(request: &ReserveRequest) -> Result<(), ApiError> {
    if !(1..=2).contains(&request.attempt) {
        return Err(ApiError::bad("attempt", "must be 1 or 2"));
    }
    check_caller(&request.key_hash, request.identity.as_ref())?;
    if request.asserted.len() > MAX_ASSERTED
        || request.asserted.values().any(|value| value.chars().count() > MAX_TEXT)
    {
        return Err(ApiError::bad("asserted", "at most 16 headers of 1024 characters"));
    }
    if request.ip.as_deref().is_some_and(|ip| !is_address(ip)) {
        return Err(ApiError::bad("ip", "must be an address without a port"));
    }
    for (field, name) in [("dialect", &request.dialect), ("endpoint", &request.endpoint)] {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte);
        if name.is_empty() || name.len() > LONGEST_NAME || !name.bytes().all(plain) {
            return Err(ApiError::bad(field, "must be 1 to 64 letters, digits or ._-/"));
        }
    }
    if request.choices == 0 {
        return Err(ApiError::bad("choices", "must be at least 1"));
    }
    if request.models.len() > MAX_OTHER_MODELS {
        return Err(ApiError::bad("models", format!("at most {MAX_OTHER_MODELS} other models")));
    }
    if request.model.is_none() && !request.models.is_empty() {
        return Err(ApiError::bad("model", "is missing, and models may answer in its place"));
    }
    if request.model.is_none() && (request.prompt_tokens > 0 || request.max_output_tokens.is_some()) {
        // Tokens of no model would pass every token limit.
        return Err(ApiError::bad("model", "is missing, and the request has tokens"));
    }
    Ok(())
}

fn check_batch<T>(items: &[T]) -> Result<(), ApiError> {
    if items.len() > MAX_SETTLE_ITEMS {
        return Err(ApiError::bad("", format!("at most {MAX_SETTLE_ITEMS} items")));
    }
    Ok(())
}

/// What types alone do not say about an extend batch.
pub fn check_extend(items: &[ExtendItem]) -> Result<(), ApiError> {
    check_batch(items)?;
    match items.iter().position(|item| item.hold_output_tokens.is_none() && !item.lease) {
        Some(index) => {
            let message = "asks for nothing: give hold_output_tokens, or lease: true";
            Err(ApiError::bad(format!("[{index}]"), message))
        }
        None => Ok(()),
    }
}

/// What types alone do not say about a settle batch.
pub fn check_settle(items: &[SettleItem]) -> Result<(), ApiError> {
    check_batch(items)?;
    for (index, item) in items.iter().enumerate() {
        let needs_usage = matches!(item.outcome, Outcome::Used | Outcome::Estimated);
        if needs_usage && item.usage.is_none() {
            return Err(ApiError::bad(format!("[{index}].usage"), "is missing"));
        }
        if let Some(reserve) = &item.reserve {
            check_reserve(reserve)
                .map_err(|error| ApiError { field: format!("[{index}].reserve.{}", error.field), ..error })?;
            if reserve.id != item.id {
                let field = format!("[{index}].reserve.id");
                return Err(ApiError::new(StatusCode::CONFLICT, field, "is another reservation's"));
            }
        }
    }
    Ok(())
}
