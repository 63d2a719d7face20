use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use serde::Deserialize;

use crate::http::ApiError;
use crate::quota::{Asked, ExplainError, Explanation, Quota};
use crate::subject::is_address;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExplainQuery {
    tenant: String,
    model: Option<String>,
    plan: Option<String>,
    user: Option<String>,
    endpoint: Option<String>,
    ip: Option<String>,
}

pub async fn explain(
    State(quota): State<Arc<Quota>>,
    query: Result<Query<ExplainQuery>, QueryRejection>,
) -> Result<Json<Explanation>, ApiError> {
    let Query(query) = query.map_err(|_| {
        ApiError::bad(
            "",
            "the query needs tenant, and may have model, plan, user, endpoint and ip, once each, and nothing else",
        )
    })?;
    if query.ip.as_deref().is_some_and(|ip| !is_address(ip)) {
        return Err(ApiError::bad("ip", "must be an address without a port"));
    }
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
            ExplainError::Store(_) => ApiError::unavailable(message),
        }
    })
}
