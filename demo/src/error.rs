//! Errors in OpenAI's shape.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;

pub struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: String,
}

impl ApiError {
    pub fn unauthorized() -> Self {
        let message = "The provider got no API key. Set PROVIDER_KEY.".to_owned();
        Self { status: StatusCode::UNAUTHORIZED, code: "invalid_api_key", message }
    }

    pub fn no_model(name: &str) -> Self {
        let message = format!("The model '{name}' does not exist.");
        Self { status: StatusCode::NOT_FOUND, code: "model_not_found", message }
    }

    pub fn bad_body(message: String) -> Self {
        Self { status: StatusCode::BAD_REQUEST, code: "invalid_request", message }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let error = json!({ "message": self.message, "type": "invalid_request_error", "param": null, "code": self.code });
        (self.status, Json(json!({ "error": error }))).into_response()
    }
}
