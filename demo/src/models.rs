//! The models that are listed. Chat accepts any name: which models exist is the gateway's policy to say.

use axum::Json;
use axum::extract::Path;
use serde_json::{Value, json};

use crate::error::ApiError;

const IDS: [&str; 6] = ["gpt-4.1", "gpt-4.1-mini", "gpt-4o", "gpt-4o-mini", "gpt-3.5-turbo", "o4-mini"];

pub async fn list() -> Json<Value> {
    let data: Vec<Value> = IDS.iter().map(|id| model(id)).collect();
    Json(json!({"object": "list", "data": data}))
}

pub async fn show(Path(id): Path<String>) -> Result<Json<Value>, ApiError> {
    if IDS.contains(&id.as_str()) { Ok(Json(model(&id))) } else { Err(ApiError::unknown_model(&id)) }
}

fn model(id: &str) -> Value {
    json!({"id": id, "object": "model", "created": 1_735_689_600, "owned_by": "demo"})
}
