use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;

use crate::http::ApiError;
use crate::quota::Quota;
use crate::{GIT_HASH, VERSION};

/// Which program runs, by which policy.
#[derive(Serialize, JsonSchema)]
pub struct Version {
    pub status: &'static str,
    pub version: &'static str,
    pub git_hash: &'static str,
    pub policy_version: String,
}

/// Whether the store answers.
#[derive(Serialize, JsonSchema)]
pub struct Ready {
    pub status: &'static str,
}

/// The process lives; says which one it is.
pub async fn version(State(quota): State<Arc<Quota>>) -> Json<Version> {
    Json(Version {
        status: "ok",
        version: VERSION,
        git_hash: GIT_HASH,
        policy_version: quota.policy().version.clone(),
    })
}

/// The store answers. A full one does too: it refuses reserves and still settles, for which this instance is needed.
pub async fn ready(State(quota): State<Arc<Quota>>) -> Result<Json<Ready>, ApiError> {
    if quota.ready().await {
        Ok(Json(Ready { status: "ready" }))
    } else {
        Err(ApiError::unavailable("the store does not answer"))
    }
}
