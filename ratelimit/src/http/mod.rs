//! The port the filters talk to: JSON over HTTP/1.1 or HTTP/2 without TLS.

mod auth;
mod body;
mod error;
mod handlers;
mod server;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use tokengate_api::{MODELS_PATH, RESERVE_PATH, SETTLE_PATH};

pub use auth::Token;
pub use error::ApiError;
pub use server::serve;

use crate::quota::Quota;

/// A full batch of settles with their reserves is far below.
const MAX_BODY_BYTES: usize = 1024 * 1024;

/// The endpoints of the filter. With a token, every call has to bring it.
pub fn router(quota: Arc<Quota>, token: Option<Token>) -> Router {
    Router::new()
        .route(MODELS_PATH, get(handlers::models))
        .route(RESERVE_PATH, post(handlers::reserve))
        .route(SETTLE_PATH, post(handlers::settle))
        .fallback(error::not_found)
        .method_not_allowed_fallback(error::method_not_allowed)
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(axum::middleware::from_fn_with_state(token.map(Arc::new), auth::check))
        .with_state(quota)
}
