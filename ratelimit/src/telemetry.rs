//! What the service tells about its work: metrics, and one usage event for each settlement.

use std::sync::Arc;

use tokengate_api::{Outcome, SettleItem, SettleStatus, Usage};

use crate::events::{Events, SettleFacts};
use crate::limits::MAX_AMOUNT;
use crate::metrics::Metrics;
use crate::policy::Policy;
use crate::store::HeldRecord;
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
        account: Option<Tag>,
        record: Option<&HeldRecord>,
    ) {
        let model = record
            .and_then(|record| {
                policy.models.iter().find(|model| Tag::model(Some(&model.name)) == record.model)
            })
            .map(|model| model.name.as_str());
        let usage = counted(item);
        let held = record.filter(|_| status == SettleStatus::Settled).map(HeldRecord::tokens);
        self.metrics.settled(item.outcome, status, usage, model, held);
        let charged = matches!(status, SettleStatus::Settled | SettleStatus::Booked);
        if let (Some(events), Some(account), true) = (&self.events, account, charged) {
            events.settled(&SettleFacts { item, usage, status, account, model, record, policy });
        }
    }
}

/// The usage that a settle charges: what a release or a number that nobody can have used says is not.
fn counted(item: &SettleItem) -> Option<&Usage> {
    let charges = matches!(item.outcome, Outcome::Used | Outcome::Estimated);
    item.usage.as_ref().filter(|usage| charges && usage.total() <= MAX_AMOUNT)
}
