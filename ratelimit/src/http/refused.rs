use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::Response;

use crate::metrics::{Metrics, RefusedCall};

/// Counts the calls whose fault was their own.
pub async fn count(State(metrics): State<Arc<Metrics>>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    let cause = match response.status() {
        StatusCode::BAD_REQUEST | StatusCode::CONFLICT | StatusCode::UNSUPPORTED_MEDIA_TYPE => {
            Some(RefusedCall::Malformed)
        }
        StatusCode::FORBIDDEN => Some(RefusedCall::Foreign),
        StatusCode::UNAUTHORIZED => Some(RefusedCall::Unauthorized),
        StatusCode::PAYLOAD_TOO_LARGE => Some(RefusedCall::TooLarge),
        _ => None,
    };
    if let Some(cause) = cause {
        metrics.refused_call(cause);
    }
    response
}
