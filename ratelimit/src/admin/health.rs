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

/// A reserve could be decided.
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

/// A reserve could be decided; the error begins with why not. A full store passes: it refuses reserves and still settles,
/// for which this instance is needed.
pub async fn ready(State(quota): State<Arc<Quota>>) -> Result<Json<Ready>, ApiError> {
    match quota.ready().await {
        Ok(()) => Ok(Json(Ready { status: "ready" })),
        Err(reason) => Err(ApiError::unavailable(reason.to_string())),
    }
}
