//! The service itself, without HTTP: policy, store and clock put together.

mod explain;
mod extend;
mod reserve;
mod settle;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

pub use explain::{Asked, ExplainError, ExplainedLimit, Explanation};
pub use settle::SettleError;

use crate::clock::Clock;
use crate::policy::Policy;
use crate::release_queue::ReleaseQueue;
use crate::store::Store;

/// What the store may take of a settle, an explain or a health check. The filter waits 1 s for a settle.
pub const STORE_TIME: Duration = Duration::from_millis(800);

pub struct Quota {
    policy: Policy,
    store: Arc<dyn Store>,
    releases: ReleaseQueue,
    clock: Arc<dyn Clock>,
}

impl Quota {
    /// The store has a clock of its own; this one places it among a calendar's boundaries.
    pub fn new(policy: Policy, store: Arc<dyn Store>, releases: ReleaseQueue, clock: Arc<dyn Clock>) -> Self {
        Self { policy, store, releases, clock }
    }

    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Whether the store answers.
    pub async fn ready(&self) -> bool {
        self.store.ping(STORE_TIME).await.is_ok()
    }
}
