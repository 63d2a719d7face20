use axum::Json;
use serde_json::Value;

use crate::openapi::DOCUMENT;

/// The interface of both ports.
pub async fn document() -> Json<&'static Value> {
    Json(&DOCUMENT)
}
