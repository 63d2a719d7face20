//! Usage events: one line of JSON for every settlement, and for every hold that nobody settled, for a ledger beside
//! the counts.
//!
//! Each event is offered to the sink until it takes it, so it may come twice: the `id` is its key. The store keeps it
//! until then: what an instance leaves behind, another one delivers ([`Quota::sweep`](crate::quota::Quota::sweep)). Nothing in it is a key
//! or a name of a tenant.

mod event;
mod pseudonym;
mod queue;
mod sender;
pub mod sink;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use tracing::warn;

pub use event::{EventStatus, SettleFacts, UsageEvent};
pub use pseudonym::PseudonymKey;
pub use queue::Queue;
pub use sender::send;

use crate::clock::Clock;
use crate::policy::Policy;
use crate::quiet::Quiet;
use crate::store::{KeptEvent, LapsedHold};

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

    /// The event of a settlement that changed what is charged.
    pub fn settled(&self, facts: &SettleFacts<'_>) -> Option<String> {
        line(&UsageEvent::of(facts, &self.key, self.clock.now_ms()))
    }

    /// The event of a hold that has lapsed.
    pub fn lapsed(&self, lapsed: &LapsedHold, model: Option<&str>, policy: &Policy) -> Option<String> {
        line(&UsageEvent::lapsed(lapsed, model, policy, &self.key, self.clock.now_ms()))
    }

    /// How many more events may be queued.
    pub fn room(&self) -> usize {
        self.queue.room()
    }

    /// The sink lets events wait for so long.
    pub fn is_behind(&self, time: Duration) -> bool {
        self.queue.oldest().is_some_and(|waiting| waiting >= time)
    }

    /// Queues an event that the store keeps, or that has no other place.
    pub fn send(&self, event: KeptEvent) {
        self.queue.push(event);
    }
}

fn line(event: &UsageEvent) -> Option<String> {
    match serde_json::to_string(event) {
        Ok(line) => Some(line),
        // Numbers and names only: there is no event that cannot be written.
        Err(error) => {
            if let Some(unsaid) = UNWRITABLE.say() {
                warn!(%error, unsaid, "a usage event could not be written");
            }
            None
        }
    }
}
