use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use serde::Deserialize;

use crate::http::ApiError;
use crate::quota::{ExplainError, Explanation, Quota};

#[derive(Deserialize)]
pub struct ExplainQuery {
    tenant: String,
    model: Option<String>,
    plan: Option<String>,
}

pub async fn explain(
    State(quota): State<Arc<Quota>>,
    query: Result<Query<ExplainQuery>, QueryRejection>,
) -> Result<Json<Explanation>, ApiError> {
    let Query(query) = query
        .map_err(|_| ApiError::bad("", "the query needs tenant, and may have model and plan, once each"))?;
    let explained = quota.explain(&query.tenant, query.model.as_deref(), query.plan.as_deref()).await;
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
