use axum::Json;
use axum::extract::State;
use tokengate_api::{
    ExtendItem, ExtendResponse, IdentifyRequest, IdentifyResponse, ModelList, ReserveRequest,
    ReserveResponse, SettleItem, SettleResponse,
};

use super::body::{JsonBody, check_caller, check_extend, check_reserve, check_settle};
use super::{Api, ApiError};

/// Models, for choosing a tokenizer and bounding the output.
pub async fn models(State(Api { quota, .. }): State<Api>) -> Json<ModelList> {
    Json(quota.policy().model_list())
}

/// Whether a caller is known.
pub async fn identify(
    State(Api { quota, .. }): State<Api>,
    JsonBody(request): JsonBody<IdentifyRequest>,
) -> Result<Json<IdentifyResponse>, ApiError> {
    check_caller(&request.key_hash, request.identity.as_ref())?;
    Ok(Json(quota.identify(&request)))
}

/// Decides one request and holds what it may use.
pub async fn reserve(
    State(Api { quota, .. }): State<Api>,
    JsonBody(request): JsonBody<ReserveRequest>,
) -> Result<Json<ReserveResponse>, ApiError> {
    check_reserve(&request)?;
    // A task of its own: a caller that hangs up must not stop a decision half way to the store, where
    // nobody would learn that its answer was lost.
    let decision = tokio::spawn(async move { quota.reserve(&request).await });
    decision.await.map(Json).map_err(|_| ApiError::unavailable("the decision was not completed"))
}

/// Replaces holds by what was used.
pub async fn settle(
    State(Api { quota, .. }): State<Api>,
    JsonBody(items): JsonBody<Vec<SettleItem>>,
) -> Result<Json<SettleResponse>, ApiError> {
    check_settle(&items)?;
    let settled = tokio::spawn(async move { quota.settle(&items).await });
    match settled.await {
        Ok(Ok(response)) => Ok(Json(response)),
        Ok(Err(error)) => Err(ApiError::unavailable(error.to_string())),
        Err(_) => Err(ApiError::unavailable("the settle was not completed")),
    }
}

/// Holds more output, or renews leases.
pub async fn extend(
    State(Api { quota, .. }): State<Api>,
    JsonBody(items): JsonBody<Vec<ExtendItem>>,
) -> Result<Json<ExtendResponse>, ApiError> {
    check_extend(&items)?;
    let extended = tokio::spawn(async move { quota.extend(&items).await });
    match extended.await {
        Ok(Ok(response)) => Ok(Json(response)),
        Ok(Err(error)) => Err(ApiError::unavailable(error.to_string())),
        Err(_) => Err(ApiError::unavailable("the extend was not completed")),
    }
}
