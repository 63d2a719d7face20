//! The port for operators: health, metrics, and how a tenant stands. Not meant for the world.

mod explain;
mod health;
mod metrics;

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::get;

use crate::http::{Asked, Token, check_token, method_not_allowed, not_found};
use crate::quota::Quota;

/// Open without a token: what probes ask.
const OPEN: [&str; 2] = ["/healthz", "/readyz"];

/// The endpoints of operators. With a token, every call but a probe has to bring it.
pub fn router(quota: Arc<Quota>, token: Option<Token>) -> Router {
    Router::new()
        .route("/healthz", get(health::version))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(metrics::metrics))
        .route("/v1/explain", get(explain::explain))
        .route("/v1/version", get(health::version))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(from_fn_with_state(Asked::but_on(&OPEN, token), check_token))
        .with_state(quota)
}
