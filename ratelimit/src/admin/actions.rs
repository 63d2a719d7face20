//! What operators change and list.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use serde::Deserialize;

use crate::http::{ApiError, JsonBody};
use crate::overrides::Override;
use crate::quota::{
    CorrectionAnswer, CorrectionRequest, HoldsAnswer, MOST_HOLDS, OperateError, OverrideRequest,
    OverridesAnswer, Quota, ResetAnswer, ResetRequest, TopUpAnswer, TopUpRequest,
};

impl From<OperateError> for ApiError {
    fn from(error: OperateError) -> Self {
        match error {
            OperateError::Bad(field, message) => Self::bad(field, message),
            OperateError::Missing(field, message) => Self::new(StatusCode::NOT_FOUND, field, message),
            OperateError::Conflict(field, message) => Self::new(StatusCode::CONFLICT, field, message),
            OperateError::Store(error) => Self::unavailable(error.to_string()),
        }
    }
}

/// A change that was begun is finished, also when its caller hangs up.
async fn finished<T: Send + 'static>(
    change: impl Future<Output = Result<T, OperateError>> + Send + 'static,
) -> Result<Json<T>, ApiError> {
    match tokio::spawn(change).await {
        Ok(answer) => Ok(Json(answer?)),
        Err(_) => Err(ApiError::unavailable("the change was not completed")),
    }
}

pub async fn top_up(
    State(quota): State<Arc<Quota>>,
    JsonBody(request): JsonBody<TopUpRequest>,
) -> Result<Json<TopUpAnswer>, ApiError> {
    finished(async move { quota.top_up(&request).await }).await
}

pub async fn reset(
    State(quota): State<Arc<Quota>>,
    JsonBody(request): JsonBody<ResetRequest>,
) -> Result<Json<ResetAnswer>, ApiError> {
    finished(async move { quota.reset(&request).await }).await
}

pub async fn correct(
    State(quota): State<Arc<Quota>>,
    JsonBody(request): JsonBody<CorrectionRequest>,
) -> Result<Json<CorrectionAnswer>, ApiError> {
    finished(async move { quota.correct(&request).await }).await
}

pub async fn overrides(State(quota): State<Arc<Quota>>) -> Result<Json<OverridesAnswer>, ApiError> {
    Ok(Json(quota.list_overrides().await?))
}

pub async fn set_override(
    State(quota): State<Arc<Quota>>,
    JsonBody(request): JsonBody<OverrideRequest>,
) -> Result<Json<Override>, ApiError> {
    finished(async move { quota.set_override(&request).await }).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OverrideQuery {
    tenant: String,
    limit: String,
}

pub async fn remove_override(
    State(quota): State<Arc<Quota>>,
    query: Result<Query<OverrideQuery>, QueryRejection>,
) -> Result<Json<OverridesAnswer>, ApiError> {
    let Query(query) = query
        .map_err(|_| ApiError::bad("", "the query needs tenant and limit, once each, and nothing else"))?;
    finished(async move { quota.remove_override(&query.tenant, &query.limit).await }).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HoldsQuery {
    tenant: String,
    most: Option<usize>,
}

/// Listed when the query does not say how many.
const HOLDS: usize = 100;

pub async fn holds(
    State(quota): State<Arc<Quota>>,
    query: Result<Query<HoldsQuery>, QueryRejection>,
) -> Result<Json<HoldsAnswer>, ApiError> {
    let Query(query) = query.map_err(|_| {
        ApiError::bad("", "the query needs tenant, and may have most, a number, once each, and nothing else")
    })?;
    let most = query.most.unwrap_or(HOLDS);
    if !(1..=MOST_HOLDS).contains(&most) {
        return Err(ApiError::bad("most", format!("must be 1 to {MOST_HOLDS}")));
    }
    Ok(Json(quota.holds(&query.tenant, most).await?))
}
