//! What the service tells about its work: metrics, and one usage event for each settlement.

use std::sync::Arc;

use tokengate_api::{Outcome, SettleItem, SettleStatus, Usage};

use crate::events::{Events, SettleFacts};
use crate::limits::MAX_AMOUNT;
use crate::metrics::Metrics;
use crate::policy::Policy;
use crate::store::{HeldRecord, KeptEvent, LapsedHold};
use crate::tag::Tag;

/// Shared by all that answer. The default counts for nobody and sends no events.
#[derive(Clone, Default)]
pub struct Telemetry {
    pub metrics: Arc<Metrics>,
    pub events: Option<Events>,
}

impl Telemetry {
    /// A settle was answered. `record` is what was held, or, for what was booked, what would have been.
    pub fn settled(
        &self,
        policy: &Policy,
        item: &SettleItem,
        status: SettleStatus,
        record: Option<&HeldRecord>,
    ) {
        let model = record.and_then(|record| model_name(policy, record.model));
        let held = record.filter(|_| status == SettleStatus::Settled).map(HeldRecord::tokens);
        self.metrics.settled(item.outcome, status, counted(item), model, held);
    }

    /// The usage event of a settlement; nothing where nobody wants it, or it has changed nothing.
    pub fn event(
        &self,
        policy: &Policy,
        item: &SettleItem,
        status: SettleStatus,
        account: Tag,
        record: Option<&HeldRecord>,
    ) -> Option<String> {
        let events = self.events.as_ref()?;
        let model = record.and_then(|record| model_name(policy, record.model));
        let usage = counted(item);
        let charged = matches!(status, SettleStatus::Settled | SettleStatus::Booked);
        charged
            .then(|| events.settled(&SettleFacts { item, usage, status, account, model, record, policy }))?
    }

    /// The usage event of a hold that has lapsed.
    pub fn lapsed_event(&self, policy: &Policy, lapsed: &LapsedHold) -> Option<String> {
        let model = model_name(policy, lapsed.hold.model);
        self.events.as_ref()?.lapsed(lapsed, model, policy)
    }

    /// Sends an event to the sink. The store keeps it.
    pub fn send(&self, event: KeptEvent) {
        if let Some(events) = &self.events {
            events.send(event);
        }
    }
}

fn model_name(policy: &Policy, tag: Tag) -> Option<&str> {
    policy.models.iter().find(|model| Tag::model(Some(&model.name)) == tag).map(|model| model.name.as_str())
}

/// The usage that a settle charges: what a release or a number that nobody can have used says is not.
fn counted(item: &SettleItem) -> Option<&Usage> {
    let charges = matches!(item.outcome, Outcome::Used | Outcome::Estimated);
    item.usage.as_ref().filter(|usage| charges && usage.total() <= MAX_AMOUNT)
}
