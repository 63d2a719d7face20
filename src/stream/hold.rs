//! A hold at the quota service: what must be settled, once, whatever becomes of its request.

use tokengate_api::{
    ExtendItem, LimitState, Metric, Outcome, ReservationId, ReserveRequest, ReserveResponse, SettleItem,
};

use super::report::{LogField, Measure};
use super::{Effect, charge};
use crate::callers::CallerId;

/// What must be settled, once.
pub struct Hold {
    pub id: ReservationId,
    pub account: Option<String>,
    /// The reserve's body where its answer was never seen, or says that the store gave none.
    pub reserve: Option<ReserveRequest>,
    /// The body of a reserve that was answered `allow`: the service may forget what it held.
    pub allowed: Option<Box<ReserveRequest>>,
    /// Its settle frees a slot, or budget that is nearly used up, of this caller.
    pub frees: Option<CallerId>,
    pub reserved_at: u64,
    /// As metrics and logs name it.
    pub model: String,
}

/// What the answer says of how it was made.
#[derive(Default)]
pub struct Named {
    /// Normalised.
    pub model: Option<String>,
    pub service_tier: Option<String>,
}

impl Hold {
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Whether the request itself names this model as one that may answer instead: then it is the one charged.
    pub fn may_be_answered_by(&self, model: &str) -> bool {
        let requests = [self.reserve.as_ref(), self.allowed.as_deref()];
        requests.into_iter().flatten().any(|request| request.models.iter().any(|other| other == model))
    }

    /// What asks for so many output tokens to be held in all.
    pub fn extend(&self, total: u64) -> Option<ExtendItem> {
        let account = self.account.clone()?;
        Some(ExtendItem { id: self.id.clone(), account, hold_output_tokens: Some(total), lease: false })
    }

    /// Queues the settle, and tells of it.
    pub fn settle(self, charge: charge::Charge, named: Named) -> Vec<Effect> {
        let outcome = outcome(charge.outcome);
        let usage = charge.usage.unwrap_or_default();
        let settled = Measure::Settled { model: self.model, outcome, usage };
        let mut effects = vec![Effect::Measure(settled), Effect::Log(LogField::Outcome, outcome.to_owned())];
        if charge.usage.is_some() {
            let prompt = usage.input.saturating_add(usage.cache_read).saturating_add(usage.cache_write);
            effects.push(Effect::Log(LogField::PromptTokens, prompt.to_string()));
            let output = usage.output.saturating_add(usage.reasoning);
            effects.push(Effect::Log(LogField::OutputTokens, output.to_string()));
            effects.push(Effect::Log(LogField::CachedTokens, usage.cache_read.to_string()));
        }
        let item = SettleItem {
            id: self.id,
            account: self.account,
            outcome: charge.outcome,
            sent: charge.sent,
            usage: charge.usage,
            model: named.model,
            service_tier: named.service_tier,
            age_ms: 0,
            queued_ms: 0,
            reserve: self.reserve,
        };
        effects.push(Effect::Settle {
            item: Box::new(item),
            reserved_at: self.reserved_at,
            // Without use there is nothing to book.
            reserve: self.allowed.filter(|_| charge.sent),
            frees: self.frees,
        });
        effects
    }

    /// Nothing was sent to a provider.
    pub fn release(self) -> Vec<Effect> {
        let charge = charge::Charge { outcome: Outcome::Released, sent: false, usage: None };
        self.settle(charge, Named::default())
    }
}

fn outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Used => "used",
        Outcome::Estimated => "estimated",
        Outcome::Held => "held",
        Outcome::Released => "released",
    }
}

/// Whether another request may wait for what this one gives back: a slot, or tokens or money of a limit with less
/// left than `held` tokens or a quarter.
pub fn is_urgent(answer: &ReserveResponse, held: u64) -> bool {
    let is_tight = |limit: &LimitState| match limit.metric {
        Metric::Tokens => limit.remaining < held.max(limit.limit / 4),
        Metric::Cost => limit.remaining < limit.limit / 4,
        Metric::Concurrency => true,
        Metric::Requests | Metric::Other => false,
    };
    answer.grant.lease_ms.is_some() || answer.limits.iter().any(|limit| !limit.shadow && is_tight(limit))
}
