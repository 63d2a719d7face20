//! The port for operators: health, metrics, and how a tenant stands. Not meant for the world.

mod explain;
mod health;
mod metrics;
mod openapi;

use std::sync::Arc;

use axum::Router;
use axum::http::{Method, StatusCode};
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use serde_json::Value;

use crate::http::{Asked, Token, check_token, method_not_allowed, not_found};
use crate::openapi::{Content, Operation, Route, routed};
use crate::quota::{Explanation, Quota};

/// Open without a token: what probes ask.
const HEALTH: &str = "/healthz";
const READY: &str = "/readyz";
const OPEN: [&str; 2] = [HEALTH, READY];

/// The endpoints of operators.
pub fn routes() -> Vec<Route<Arc<Quota>>> {
    vec![
        Operation::new(Method::GET, HEALTH, "healthz", "The process lives")
            .gives::<health::Version>("Which program runs, by which policy.")
            .open()
            .by(get(health::version)),
        Operation::new(Method::GET, READY, "readyz", "The store answers, so reserves can be decided")
            .gives::<health::Ready>("It does.")
            .open()
            .by(get(health::ready)),
        Operation::new(Method::GET, "/metrics", "metrics", "Counters, gauges and histograms for Prometheus")
            .answers(StatusCode::OK, "All of them.", Content::Text("text/plain"))
            .by(get(metrics::metrics)),
        Operation::new(Method::GET, "/openapi.json", "openapi", "This document")
            .gives::<Value>("OpenAPI 3.1.")
            .by(get(openapi::document)),
        Operation::new(
            Method::GET,
            "/v1/explain",
            "explain",
            "Which limits apply to whom, and how they stand",
        )
        .query("tenant", true, "As the policy names it.")
        .query("model", false, "As the policy or a client names it; none: endpoints without a model.")
        .query("plan", false, "Needed when the tenant has keys of several plans.")
        .gives::<Explanation>("The limits with what is used, and the open holds.")
        .by(get(explain::explain)),
        Operation::new(Method::GET, "/v1/version", "version", "Which program runs, by which policy")
            .gives::<health::Version>("Version, commit and policy.")
            .by(get(health::version)),
    ]
}

/// Serves [`routes`]. With a token, every call but a probe has to bring it.
pub fn router(quota: Arc<Quota>, token: Option<Token>) -> Router {
    routed(routes())
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(from_fn_with_state(Asked::but_on(&OPEN, token), check_token))
        .with_state(quota)
}
