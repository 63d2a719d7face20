use schemars::JsonSchema;
use serde::Serialize;
use tokengate_api::{Outcome, SettleItem, SettleStatus, Usage};

use super::PseudonymKey;
use crate::policy::Policy;
use crate::tag::Tag;

/// What an event is made from.
pub struct SettleFacts<'a> {
    pub item: &'a SettleItem,
    /// As it was charged; absent when it was not.
    pub usage: Option<&'a Usage>,
    pub status: SettleStatus,
    pub account: Tag,
    /// Canonical name.
    pub model: Option<&'a str>,
    pub record: Option<&'a HeldRecord>,
    pub policy: &'a Policy,
}

/// What the record of a reservation said of it, before the settle replaced it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldRecord {
    /// [`Tag::model`] of the canonical name.
    pub model: Tag,
    /// [`Tag::plan`] of the caller's plan.
    pub plan: Tag,
    /// Tokens held.
    pub tokens: u64,
    pub reserved_at_ms: u64,
}

/// One settlement, as it is written to the sink.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct UsageEvent {
    /// The reservation: the key by which a repeated event is recognised.
    pub id: String,
    /// `settled`: a hold was replaced. `booked`: there was no hold.
    #[schemars(with = "String")]
    pub status: SettleStatus,
    /// What the filter knew: `used`, `estimated`, `held`, `released`.
    #[schemars(with = "String")]
    pub outcome: Outcome,
    /// Something was sent to the provider.
    pub sent: bool,
    /// When the hold was made, in milliseconds since the Unix epoch.
    pub reserved_at: u64,
    /// When it was settled, in milliseconds since the Unix epoch.
    pub settled_at: u64,
    /// Pseudonym of the tenant: 16 hex digits, the same for the same tenant and `--events-key`.
    pub tenant: String,
    /// Null when the reservation's record did not say it.
    pub plan: Option<String>,
    /// Canonical name; null when the reservation's record did not say it.
    pub model: Option<String>,
    /// Tokens that were held; null when nothing was, or when the record did not say it.
    pub estimate_tokens: Option<u64>,
    /// Tokens by class as the provider or the filter counted them; null when nobody did, or when no such number
    /// can be.
    pub usage: Option<Usage>,
    /// What the settlement charges in tokens: the usage, or what was held, or nothing; null when that was held
    /// and is not known.
    pub charged_tokens: Option<u64>,
    /// Billionths of a dollar; null without prices.
    pub cost_nano_usd: Option<u64>,
    pub policy_version: String,
}

impl UsageEvent {
    pub fn of(facts: &SettleFacts<'_>, key: &PseudonymKey, now_ms: u64) -> Self {
        let SettleFacts { item, usage, record, policy, .. } = facts;
        let of_record = |record: &HeldRecord| {
            policy.plans.keys().find(|name| Tag::plan(name) == record.plan).map(String::as_str)
        };
        let of_reserve = || Some(policy.keys.get(&item.reserve.as_ref()?.key_hash)?.plan.as_str());
        let held = record.map(|record| record.tokens);
        Self {
            id: item.id.to_string(),
            status: facts.status,
            outcome: item.outcome,
            sent: item.sent,
            reserved_at: record
                .map_or_else(|| now_ms.saturating_sub(item.age_ms), |record| record.reserved_at_ms),
            settled_at: now_ms,
            tenant: key.pseudonym(facts.account),
            plan: record.and_then(of_record).or_else(of_reserve).map(str::to_owned),
            model: facts.model.map(str::to_owned),
            estimate_tokens: held,
            usage: usage.copied(),
            charged_tokens: match (item.outcome, usage) {
                (Outcome::Released, _) => Some(0),
                (Outcome::Used | Outcome::Estimated, Some(usage)) => Some(usage.total()),
                (Outcome::Used | Outcome::Estimated, None) | (Outcome::Held, _) => held,
            },
            cost_nano_usd: None,
            policy_version: policy.version.clone(),
        }
    }
}
