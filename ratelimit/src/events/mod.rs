//! Usage events: one line of JSON for every settlement, for a ledger beside the counts.
//!
//! Each event is offered to the sink until it takes it, so it may come twice: the `id` is its key. Nothing
//! in it is a key or a name of a tenant.

mod event;
mod pseudonym;
mod queue;
mod sender;
pub mod sink;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use tracing::warn;

pub use event::{SettleFacts, UsageEvent};
pub use pseudonym::PseudonymKey;
pub use queue::Queue;
pub use sender::send;

use crate::clock::Clock;
use crate::quiet::Quiet;

static UNWRITABLE: Quiet = Quiet::new();

/// Where settlements are told. Cheap to clone.
#[derive(Clone)]
pub struct Events {
    key: Arc<PseudonymKey>,
    clock: Arc<dyn Clock>,
    queue: Queue,
}

impl Events {
    pub fn new(key: PseudonymKey, clock: Arc<dyn Clock>, queue: Queue) -> Self {
        Self { key: Arc::new(key), clock, queue }
    }

    /// Queues the event of a settlement that changed what is charged.
    pub fn settled(&self, facts: &SettleFacts<'_>) {
        let event = UsageEvent::of(facts, &self.key, self.clock.now_ms());
        match serde_json::to_string(&event) {
            Ok(line) => self.queue.push(line),
            // Numbers and names only: there is no event that cannot be written.
            Err(error) => {
                if let Some(unsaid) = UNWRITABLE.say() {
                    warn!(%error, unsaid, "a usage event could not be written");
                }
            }
        }
    }
}
