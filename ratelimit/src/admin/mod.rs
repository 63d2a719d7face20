//! The port for operators: health, metrics, how a tenant stands, and what they change by hand. Not meant for the
//! world.

mod actions;
mod explain;
mod health;
mod metrics;
mod openapi;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{Method, StatusCode};
use axum::middleware::from_fn_with_state;
use axum::routing::{delete, get, post};
use serde_json::{Value, json};

use crate::http::{Asked, Hosts, Token, check_callers, check_token, method_not_allowed, not_found};
use crate::openapi::{Content, Operation, Route, address, routed};
use crate::overrides::Override;
use crate::quota::{
    CorrectionAnswer, CorrectionRequest, Explanation, HoldsAnswer, MOST_HOLDS, OverrideRequest,
    OverridesAnswer, Quota, ResetAnswer, ResetRequest, TopUpAnswer, TopUpRequest,
};

/// Open without a token: what probes ask.
const HEALTH: &str = "/healthz";
const READY: &str = "/readyz";
const OPEN: [&str; 2] = [HEALTH, READY];
const UNKNOWN: &str = "The policy or the store does not have what a field names.";
const USED: &str = "The id was used for something else.";
/// The largest body of an action, in bytes.
const LARGEST_BODY: usize = 16 * 1024;

/// The endpoints of operators.
pub fn routes() -> Vec<Route<Arc<Quota>>> {
    vec![
        Operation::new(Method::GET, HEALTH, "healthz", "The process lives")
            .gives::<health::Version>("Which program runs, by which policy.")
            .open()
            .by(get(health::version)),
        Operation::new(Method::GET, READY, "readyz", "A reserve could be decided")
            .gives::<health::Ready>("It could. Else 503, and the message begins with the reason.")
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
        .query("plan", false, "None: the keys' own plan, or all that the tenant may have.")
        .query("user", false, "None: limits per user have one row for each key.")
        .query("endpoint", false, "For limits per endpoint; none: `chat.completions`.")
        .query_of("ip", false, "For limits per address.", json!({"type": "string", "anyOf": address()}))
        .refuses(StatusCode::NOT_FOUND, UNKNOWN)
        .gives::<Explanation>("The limits with what is used, and the open holds.")
        .by(get(explain::explain)),
        Operation::new(
            Method::GET,
            "/v1/holds",
            "holds",
            "The oldest reservations of a tenant that are not settled yet",
        )
        .query("tenant", true, "As the policy names it.")
        .query_of(
            "most",
            false,
            "How many to list; none: 100.",
            json!({"type": "integer", "minimum": 1, "maximum": MOST_HOLDS}),
        )
        .refuses(StatusCode::NOT_FOUND, UNKNOWN)
        .gives::<HoldsAnswer>("How many there are, and the oldest.")
        .by(get(actions::holds)),
        Operation::new(
            Method::GET,
            "/v1/overrides",
            "overrides",
            "Amounts that are set for one tenant for a while",
        )
        .gives::<OverridesAnswer>("Those in force.")
        .by(get(actions::overrides)),
        Operation::new(
            Method::POST,
            "/v1/overrides",
            "setOverride",
            "Set what a limit admits to one tenant for a while",
        )
        .takes::<OverrideRequest>()
        .refuses(StatusCode::NOT_FOUND, UNKNOWN)
        .gives::<Override>("As it was set; this instance follows it at once, others within 5 s.")
        .by(post(actions::set_override)),
        Operation::new(Method::DELETE, "/v1/overrides", "removeOverride", "End an override before its time")
            .query("tenant", true, "As the policy names it.")
            .query("limit", true, "Name of the limit.")
            .refuses(StatusCode::NOT_FOUND, UNKNOWN)
            .gives::<OverridesAnswer>("Those that are left.")
            .by(delete(actions::remove_override)),
        Operation::new(
            Method::POST,
            "/v1/balances/top-up",
            "topUp",
            "Add to a prepaid balance, once per grant",
        )
        .takes::<TopUpRequest>()
        .refuses(StatusCode::NOT_FOUND, UNKNOWN)
        .refuses(StatusCode::CONFLICT, USED)
        .gives::<TopUpAnswer>("The balance; 409 when the grant was there with another amount.")
        .by(post(actions::top_up)),
        Operation::new(Method::POST, "/v1/buckets/reset", "reset", "Forget what a bucket has counted")
            .takes::<ResetRequest>()
            .refuses(StatusCode::NOT_FOUND, UNKNOWN)
            .gives::<ResetAnswer>("Whether there was something to forget.")
            .by(post(actions::reset)),
        Operation::new(
            Method::POST,
            "/v1/corrections",
            "correct",
            "Give back or charge an amount now, for a charge that can no longer be settled",
        )
        .takes::<CorrectionRequest>()
        .refuses(StatusCode::NOT_FOUND, UNKNOWN)
        .refuses(StatusCode::CONFLICT, USED)
        .gives::<CorrectionAnswer>("How the bucket stands; 409 when the id was there for something else.")
        .by(post(actions::correct)),
        Operation::new(Method::GET, "/v1/version", "version", "Which program runs, by which policy")
            .gives::<health::Version>("Version, commit and policy.")
            .by(get(health::version)),
    ]
}

/// Serves [`routes`]. With a token, every call but a probe has to bring it.
pub fn router(quota: Arc<Quota>, token: Option<Token>, hosts: Hosts) -> Router {
    routed(routes())
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(DefaultBodyLimit::max(LARGEST_BODY))
        .layer(from_fn_with_state(Asked::but_on(&OPEN, token), check_token))
        .layer(from_fn_with_state(hosts, check_callers))
        .with_state(quota)
}
