//! The port for operators: health, version, and how a tenant stands. Not meant for the world.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::http::ApiError;
use crate::quota::{Asked, ExplainError, Explanation, Quota};
use crate::{GIT_HASH, VERSION};

pub fn router(quota: Arc<Quota>) -> Router {
    Router::new()
        .route("/v1/explain", get(explain))
        .route("/v1/version", get(version))
        .route("/healthz", get(version))
        .route("/readyz", get(ready))
        .fallback(async || ApiError::new(StatusCode::NOT_FOUND, "", "there is no such endpoint"))
        .with_state(quota)
}

#[derive(Deserialize)]
struct ExplainQuery {
    tenant: String,
    model: Option<String>,
    plan: Option<String>,
    user: Option<String>,
    endpoint: Option<String>,
    ip: Option<String>,
}

async fn explain(
    State(quota): State<Arc<Quota>>,
    query: Result<Query<ExplainQuery>, QueryRejection>,
) -> Result<Json<Explanation>, ApiError> {
    let Query(query) = query.map_err(|_| {
        ApiError::bad(
            "",
            "the query needs tenant, and may have model, plan, user, endpoint and ip, once each",
        )
    })?;
    let asked = Asked {
        tenant: &query.tenant,
        model: query.model.as_deref(),
        plan: query.plan.as_deref(),
        user: query.user.as_deref(),
        endpoint: query.endpoint.as_deref(),
        ip: query.ip.as_deref(),
    };
    let explained = quota.explain(&asked).await;
    explained.map(Json).map_err(|error| {
        let message = error.to_string();
        match error {
            ExplainError::UnknownTenant => ApiError::new(StatusCode::NOT_FOUND, "tenant", message),
            ExplainError::UnknownModel => ApiError::new(StatusCode::NOT_FOUND, "model", message),
            ExplainError::UnknownPlan(_) => ApiError::new(StatusCode::NOT_FOUND, "plan", message),
            ExplainError::PlanNeeded(_) => ApiError::bad("plan", message),
            ExplainError::Store(_) => ApiError::unavailable(message),
        }
    })
}

/// The process lives; says which one it is.
async fn version(State(quota): State<Arc<Quota>>) -> Json<Value> {
    Json(json!({
        "status": "ok",
        "version": VERSION,
        "git_hash": GIT_HASH,
        "policy_version": quota.policy().version,
    }))
}

/// The store answers, so reserves can be decided.
async fn ready(State(quota): State<Arc<Quota>>) -> Result<Json<Value>, ApiError> {
    if quota.ready().await {
        Ok(Json(json!({"status": "ready"})))
    } else {
        Err(ApiError::unavailable("the store does not answer"))
    }
}
