use axum::Json;
use axum::http::HeaderValue;
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;

/// What a call that cannot be carried out is answered.
#[derive(Serialize, JsonSchema)]
pub struct ErrorBody {
    pub error: ErrorDetail,
}

/// What is wrong.
#[derive(Serialize, JsonSchema)]
pub struct ErrorDetail {
    /// Path within the body, for example `[2].usage.input`; empty when it is not about one field.
    pub field: String,
    pub message: String,
}

/// Answer to a call that cannot be carried out.
///
/// Never says what a field contained: it may be a key.
#[derive(Debug, PartialEq, Eq)]
pub struct ApiError {
    pub status: StatusCode,
    /// Path within the body, for example `[2].usage.input`; empty when it is not about one field.
    pub field: String,
    pub message: String,
}

impl ApiError {
    pub fn new(status: StatusCode, field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { status, field: field.into(), message: message.into() }
    }

    pub fn bad(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, field, message)
    }

    pub fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "authorization", "needs the bearer token of this service")
    }

    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "", message)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = ErrorBody { error: ErrorDetail { field: self.field, message: self.message } };
        let mut response = (self.status, Json(body)).into_response();
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

pub async fn not_found() -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "", "there is no such endpoint")
}

pub async fn method_not_allowed() -> ApiError {
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "", "this endpoint has another method")
}
