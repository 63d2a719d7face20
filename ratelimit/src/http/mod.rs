//! The port the filters talk to: JSON over HTTP/1.1 or HTTP/2 without TLS.

mod auth;
mod body;
mod callers;
mod error;
mod handlers;
mod json;
mod overload;
mod refused;
mod server;

#[cfg(test)]
pub mod tests;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{Method, StatusCode};
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use tokengate_api::{
    EXTEND_PATH, ExtendItem, ExtendResponse, IDENTIFY_PATH, IdentifyRequest, IdentifyResponse,
    MAX_SETTLE_ITEMS, MODELS_PATH, ModelList, RESERVE_PATH, ReserveRequest, ReserveResponse, SETTLE_PATH,
    SettleItem, SettleResponse,
};

pub use auth::{Asked, Token, check as check_token};
pub use body::JsonBody;
pub use callers::{Hosts, check as check_callers};
pub use error::{ApiError, ErrorBody, method_not_allowed, not_found};
pub use server::serve;

use crate::openapi::{Operation, Route, routed};
use crate::quota::Quota;

/// What a port may be made to do.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Calls that are answered at the same time; more get 503 before their body is read.
    pub calls: usize,
    /// Connections; more wait to be accepted.
    pub connections: usize,
    /// A full batch of settles with their reserves is far below the default.
    pub body_bytes: usize,
    /// From the end of the headers to the end of the body.
    pub body_time: Duration,
    /// HTTP/1.1: until a request's headers are there, from the connection or the last answer on.
    pub header_time: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            calls: 4096,
            connections: 4096,
            body_bytes: 1024 * 1024,
            body_time: Duration::from_secs(5),
            header_time: Duration::from_secs(60),
        }
    }
}

/// What the handlers work with.
#[derive(Clone)]
pub struct Api {
    quota: Arc<Quota>,
    bounds: Bounds,
}

/// The endpoints of the filter.
pub fn routes() -> Vec<Route<Api>> {
    vec![
        Operation::new(Method::GET, MODELS_PATH, "models", "How to count and bound requests, by model")
            .gives::<ModelList>("All models of the policy.")
            .by(get(handlers::models)),
        Operation::new(Method::POST, IDENTIFY_PATH, "identify", "Whether a caller is known")
            .takes::<IdentifyRequest>()
            .gives::<IdentifyResponse>("From the policy alone: nothing is held and nothing counted.")
            .by(post(handlers::identify)),
        Operation::new(Method::POST, RESERVE_PATH, "reserve", "Decide a request and hold what it may use")
            .takes::<ReserveRequest>()
            .gives::<ReserveResponse>("The decision; a refusal is an answer like any other.")
            .by(post(handlers::reserve)),
        Operation::new(Method::POST, SETTLE_PATH, "settle", "Replace holds by what was used, at most 256")
            .takes_at_most::<SettleItem, MAX_SETTLE_ITEMS>()
            .refuses(StatusCode::CONFLICT, "An item's `reserve` is another reservation's.")
            .gives::<SettleResponse>("What became of each item.")
            .by(post(handlers::settle)),
        Operation::new(Method::POST, EXTEND_PATH, "extend", "Hold more output or renew leases, at most 256")
            .takes_at_most::<ExtendItem, MAX_SETTLE_ITEMS>()
            .gives::<ExtendResponse>("What became of each item; a refusal is an answer like any other.")
            .by(post(handlers::extend)),
    ]
}

/// Serves [`routes`]. With a token, every call has to bring it; without one, pages of other sites are all that is kept
/// out.
pub fn router(quota: Arc<Quota>, token: Option<Token>, hosts: Hosts, bounds: &Bounds) -> Router {
    let metrics = Arc::clone(&quota.telemetry().metrics);
    routed(routes())
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(DefaultBodyLimit::max(bounds.body_bytes))
        .layer(from_fn_with_state(
            overload::InFlight::new(bounds.calls, Arc::clone(&metrics)),
            overload::admit,
        ))
        // Further out: who has no token takes nobody's place.
        .layer(from_fn_with_state(Asked::on_all(token), check_token))
        .layer(from_fn_with_state(hosts, check_callers))
        .layer(from_fn_with_state(metrics, refused::count))
        .with_state(Api { quota, bounds: *bounds })
}
