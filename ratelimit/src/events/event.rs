use schemars::JsonSchema;
use serde::Serialize;
use tokengate_api::{Outcome, SettleItem, SettleStatus, Usage};

use super::PseudonymKey;
use crate::limits::Rates;
use crate::policy::Policy;
use crate::store::{HeldRecord, LapsedHold};
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
    /// What was held, or, for what was booked, what would have been.
    pub record: Option<&'a HeldRecord>,
    pub policy: &'a Policy,
}

/// Why an event came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventStatus {
    /// A hold was replaced.
    Settled,
    /// There was no hold; the usage was charged to the current windows.
    Booked,
    /// Nobody settled the hold in time: it stays charged.
    Lapsed,
}

/// A settlement, or a hold that nobody settled, as it is written to the sink.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct UsageEvent {
    /// The reservation: the key by which a repeated event is recognised.
    pub id: String,
    pub status: EventStatus,
    /// What the filter knew: `used`, `estimated`, `held`, `released`; `held` for what has lapsed.
    #[schemars(with = "String")]
    pub outcome: Outcome,
    /// Something was sent to the provider; null where nobody knows.
    pub sent: Option<bool>,
    /// When the hold was made, in milliseconds since the Unix epoch, by the store's clock; where there was none,
    /// when the filter says that it asked.
    pub reserved_at: u64,
    /// When it was settled, or found to have lapsed, in milliseconds since the Unix epoch.
    pub settled_at: u64,
    /// Pseudonym of the tenant: 16 hex digits, the same for the same tenant and `--events-key`.
    pub tenant: String,
    /// Null when the policy in force has no such plan any more.
    pub plan: Option<String>,
    /// Canonical name; null for requests without a model, and when the policy in force has no such model any more.
    pub model: Option<String>,
    /// Tokens that were held, extensions included; null when nothing was.
    pub estimate_tokens: Option<u64>,
    /// Tokens by class as the provider or the filter counted them; null when nobody did, or when no such number
    /// can be.
    pub usage: Option<Usage>,
    /// What the settlement charges in tokens: the usage, or what was held, or nothing.
    pub charged_tokens: Option<u64>,
    /// What is charged, in billionths of a dollar: by the prices that a limit on cost held, else by the policy in
    /// force; null without prices.
    pub cost_nano_usd: Option<u64>,
    pub policy_version: String,
}

impl UsageEvent {
    pub fn of(facts: &SettleFacts<'_>, key: &PseudonymKey, now_ms: u64) -> Self {
        let SettleFacts { item, usage, record, policy, .. } = facts;
        let plan_of = |record: &HeldRecord| {
            policy.plans.keys().find(|name| Some(Tag::plan(name)) == record.plan).cloned()
        };
        let charge = match (item.outcome, usage, record) {
            (Outcome::Released, _, _) => Some(Charged::Nothing),
            (Outcome::Used | Outcome::Estimated, Some(usage), _) => Some(Charged::Usage(usage)),
            (_, _, Some(record)) => Some(Charged::Held(record)),
            (_, _, None) => None,
        };
        let prices = record
            .and_then(|record| record.prices)
            .or_else(|| Some(*policy.prices.get(facts.model?)?.of_answer(item.service_tier.as_deref())));
        let was_held = facts.status == SettleStatus::Settled;
        let status = if was_held { EventStatus::Settled } else { EventStatus::Booked };
        Self {
            id: item.id.to_string(),
            status,
            outcome: item.outcome,
            sent: Some(item.sent),
            reserved_at: record
                .and_then(|record| record.reserved_at_ms)
                .unwrap_or_else(|| now_ms.saturating_sub(item.age_ms)),
            settled_at: now_ms,
            tenant: key.pseudonym(facts.account),
            plan: record.and_then(plan_of),
            model: facts.model.map(str::to_owned),
            estimate_tokens: record.filter(|_| was_held).map(HeldRecord::tokens),
            usage: usage.copied(),
            charged_tokens: charge.map(|charge| charge.tokens()),
            cost_nano_usd: charge.and_then(|charge| Some(charge.cost(&prices?))),
            policy_version: policy.version.clone(),
        }
    }

    /// Of a hold whose record is gone: how its tokens divide, and what they cost, went with it.
    pub fn lapsed(
        lapsed: &LapsedHold,
        model: Option<&str>,
        policy: &Policy,
        key: &PseudonymKey,
        now_ms: u64,
    ) -> Self {
        let LapsedHold { account, hold } = lapsed;
        Self {
            id: hold.id.to_string(),
            status: EventStatus::Lapsed,
            outcome: Outcome::Held,
            sent: None,
            reserved_at: hold.reserved_at_ms,
            settled_at: now_ms,
            tenant: key.pseudonym(*account),
            plan: None,
            model: model.map(str::to_owned),
            estimate_tokens: Some(hold.tokens),
            usage: None,
            charged_tokens: Some(hold.tokens),
            cost_nano_usd: None,
            policy_version: policy.version.clone(),
        }
    }
}

/// What a settlement charges.
#[derive(Clone, Copy)]
enum Charged<'a> {
    Nothing,
    Usage(&'a Usage),
    Held(&'a HeldRecord),
}

impl Charged<'_> {
    fn tokens(self) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::Usage(usage) => usage.total(),
            Self::Held(record) => record.tokens(),
        }
    }

    /// Nano-dollars.
    fn cost(self, prices: &Rates) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::Usage(usage) => prices.of_usage(usage),
            Self::Held(record) => prices.of_hold(record.prompt_tokens, record.output_tokens),
        }
    }
}
