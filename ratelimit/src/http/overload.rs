use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::Semaphore;

use super::ApiError;
use crate::metrics::{Metrics, RefusedCall};

/// Places for calls that are being answered.
#[derive(Clone)]
pub struct InFlight {
    places: Arc<Semaphore>,
    metrics: Arc<Metrics>,
}

impl InFlight {
    pub fn new(places: usize, metrics: Arc<Metrics>) -> Self {
        Self { places: Arc::new(Semaphore::new(places.min(Semaphore::MAX_PERMITS))), metrics }
    }
}

/// Refuses a call at once when there is no place, before its body is read: a late answer is of no use to a
/// filter, and a queue would make every answer late.
pub async fn admit(State(in_flight): State<InFlight>, request: Request, next: Next) -> Response {
    let Ok(_place) = in_flight.places.try_acquire() else {
        in_flight.metrics.refused_call(RefusedCall::Calls);
        return ApiError::unavailable("as many calls as may be are being answered").into_response();
    };
    let _counted = Counted::new(in_flight.metrics.calls_in_flight());
    next.run(request).await
}

/// One more for as long as it lives; a call that is given up must not stay counted.
pub struct Counted(Gauge);

impl Counted {
    pub fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}
