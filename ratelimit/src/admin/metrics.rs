use std::sync::Arc;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;

use crate::http::ApiError;
use crate::metrics;
use crate::quota::Quota;

/// For Prometheus.
pub async fn metrics(State(quota): State<Arc<Quota>>) -> Result<impl IntoResponse, ApiError> {
    match quota.telemetry().metrics.text() {
        Ok(text) => Ok(([(CONTENT_TYPE, metrics::CONTENT_TYPE)], text)),
        Err(_) => Err(ApiError::unavailable("the metrics could not be written")),
    }
}
