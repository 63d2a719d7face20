use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use tokengate_api::{ModelList, ReserveRequest, ReserveResponse, SettleItem, SettleResponse};

use super::ApiError;
use super::body::{check_reserve, check_settle, json};
use crate::quota::Quota;

type Body = Result<Bytes, BytesRejection>;

pub async fn models(State(quota): State<Arc<Quota>>) -> Json<ModelList> {
    Json(quota.policy().model_list())
}

pub async fn reserve(State(quota): State<Arc<Quota>>, body: Body) -> Result<Json<ReserveResponse>, ApiError> {
    let request: ReserveRequest = json(body)?;
    check_reserve(&request)?;
    // A task of its own: a caller that hangs up must not stop a decision half way to the store, where
    // nobody would learn that its answer was lost.
    let decision = tokio::spawn(async move { quota.reserve(&request).await });
    decision.await.map(Json).map_err(|_| ApiError::unavailable("the decision was not completed"))
}

pub async fn settle(State(quota): State<Arc<Quota>>, body: Body) -> Result<Json<SettleResponse>, ApiError> {
    let items: Vec<SettleItem> = json(body)?;
    check_settle(&items)?;
    let settled = tokio::spawn(async move { quota.settle(&items).await });
    match settled.await {
        Ok(Ok(response)) => Ok(Json(response)),
        Ok(Err(error)) => Err(ApiError::unavailable(error.to_string())),
        Err(_) => Err(ApiError::unavailable("the settle was not completed")),
    }
}
