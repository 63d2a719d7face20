//! Refusals in the shape that OpenAI clients read.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;

#[derive(Debug)]
pub struct ApiError {
    status: StatusCode,
    message: String,
    param: Option<String>,
    code: Option<&'static str>,
}

impl ApiError {
    /// The body cannot be acted on; `param` is the member at fault.
    pub fn bad_request(message: impl Into<String>, param: Option<&str>) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            message: message.into(),
            param: param.map(str::to_owned),
            code: None,
        }
    }

    pub fn no_key() -> Self {
        Self {
            status: StatusCode::UNAUTHORIZED,
            message: "You didn't provide an API key: send `authorization: Bearer KEY`; any key will do."
                .into(),
            param: None,
            code: Some("invalid_api_key"),
        }
    }

    pub fn unknown_model(id: &str) -> Self {
        Self {
            status: StatusCode::NOT_FOUND,
            message: format!("The model `{id}` does not exist."),
            param: Some("model".into()),
            code: Some("model_not_found"),
        }
    }

    pub fn unknown_path() -> Self {
        Self {
            status: StatusCode::NOT_FOUND,
            message: "This demo upstream has no such path.".into(),
            param: None,
            code: Some("unknown_url"),
        }
    }

    pub fn wrong_method() -> Self {
        Self {
            status: StatusCode::METHOD_NOT_ALLOWED,
            message: "This path has no such method.".into(),
            param: None,
            code: Some("method_not_supported"),
        }
    }

    pub fn too_large() -> Self {
        Self {
            status: StatusCode::PAYLOAD_TOO_LARGE,
            message: "The body is too large, or did not arrive in full.".into(),
            param: None,
            code: None,
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = json!({"error": {
            "message": self.message,
            "type": "invalid_request_error",
            "param": self.param,
            "code": self.code,
        }});
        (self.status, Json(body)).into_response()
    }
}
