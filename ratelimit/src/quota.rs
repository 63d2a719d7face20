//! The service itself, without HTTP: policy, store and clock put together.

mod amount;
mod explain;
mod extend;
mod holds;
mod identify;
mod operate;
mod overriding;
mod ready;
mod reserve;
mod settle;
pub mod sweep;
mod target;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
pub use explain::{Asked, ExplainError, ExplainedLimit, Explanation};
pub use holds::{HoldsAnswer, MOST_HOLDS};
pub use operate::LONGEST_ID;
pub use operate::{
    CorrectionAnswer, CorrectionRequest, OperateError, ResetAnswer, ResetRequest, TopUpAnswer, TopUpRequest,
};
pub use overriding::{LONGEST_MS as LONGEST_OVERRIDE_MS, OverrideRequest, OverridesAnswer};
use ready::Readiness;
pub use ready::Unready;
pub use settle::SettleError;

use crate::clock::Clock;
use crate::overrides::Overrides;
use crate::policy::Policy;
use crate::release_queue::ReleaseQueue;
use crate::store::Store;
use crate::telemetry::Telemetry;

/// What the store may take of a settle, an explain or a health check. The filter waits 1 s for a settle.
pub const STORE_TIME: Duration = Duration::from_millis(800);

pub struct Quota {
    policy: ArcSwap<Policy>,
    overrides: ArcSwap<Overrides>,
    store: Arc<dyn Store>,
    releases: ReleaseQueue,
    clock: Arc<dyn Clock>,
    telemetry: Telemetry,
    readiness: Readiness,
}

impl Quota {
    /// The store has a clock of its own; this one places it among a calendar's boundaries.
    pub fn new(policy: Policy, store: Arc<dyn Store>, releases: ReleaseQueue, clock: Arc<dyn Clock>) -> Self {
        let policy = ArcSwap::from_pointee(policy);
        let overrides = ArcSwap::default();
        let (telemetry, readiness) = (Telemetry::default(), Readiness::default());
        Self { policy, overrides, store, releases, clock, telemetry, readiness }
    }

    /// Tells these metrics and events instead of nobody.
    pub fn with_telemetry(self, telemetry: Telemetry) -> Self {
        Self { telemetry, ..self }
    }

    pub fn telemetry(&self) -> &Telemetry {
        &self.telemetry
    }

    /// The policy in force. A decision keeps the one it began with.
    pub fn policy(&self) -> Arc<Policy> {
        self.policy.load_full()
    }

    /// Decides by another policy from now on.
    pub fn replace_policy(&self, policy: Policy) {
        self.policy.store(Arc::new(policy));
    }

    /// Whether a reserve could be decided, as it was within the last second.
    ///
    /// # Errors
    /// Why not, in words that say nothing of what the store answered.
    pub async fn ready(&self) -> Result<(), Unready> {
        self.readiness.ask(self.store.as_ref()).await
    }
}
