//! A hold at the quota service: what must be settled, once, whatever becomes of its request.

use tokengate_api::{ExtendItem, Outcome, ReservationId, ReserveRequest, SettleItem};

use super::report::{LogField, Measure};
use super::{Effect, charge};

/// What must be settled, once.
pub struct Hold {
    pub id: ReservationId,
    pub account: Option<String>,
    /// The reserve's body where its answer was never seen, or says that the store gave none.
    pub reserve: Option<ReserveRequest>,
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
        effects.push(Effect::Settle { item: Box::new(item), reserved_at: self.reserved_at });
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
