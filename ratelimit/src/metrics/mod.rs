//! What the service counts about itself, for Prometheus.
//!
//! Label values are few by construction: names of the policy (limits, models), the closed sets of the wire
//! (decision, reason, status), nothing that a client sends, no tenants, no keys.

mod labels;
mod timed_store;

#[cfg(test)]
mod tests;

use std::fmt;

use prometheus_client::encoding::prometheus_text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use tokengate_api::{Decision, ReserveResponse, SettleItem, SettleStatus};

use labels::{
    BuildLabels, DecisionLabels, EventLabels, LimitLabels, OverloadLabels, PolicyLabels, ReloadLabels,
    SettleLabels, StoreLabels, TokenLabels, UnsettledLabels,
};
pub use labels::{EventOutcome, Overload, ReloadOutcome, StoreCall, StoreOutcome};
pub use timed_store::TimedStore;

use crate::{GIT_HASH, VERSION};

/// The `Content-Type` of [`Metrics::text`].
pub const CONTENT_TYPE: &str = prometheus_text::CONTENT_TYPE;

/// From a tenth of a millisecond to the longest a filter waits.
const STORE_SECONDS: [f64; 13] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0];
/// What was used of a hold; above 1 is debt.
const USED_OF_HELD: [f64; 12] = [0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0, 1.1, 1.5, 2.0];

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

pub struct Metrics {
    registry: Registry,
    decisions: Family<DecisionLabels, Counter>,
    replays: Counter,
    degraded: Counter,
    would_deny: Family<LimitLabels, Counter>,
    settles: Family<SettleLabels, Counter>,
    tokens: Family<TokenLabels, Counter>,
    unsettled_tokens: Family<UnsettledLabels, Counter>,
    used_of_held: Histogram,
    store_seconds: Histograms<StoreLabels>,
    calls_in_flight: Gauge,
    refused_calls: Family<OverloadLabels, Counter>,
    connections: Gauge,
    policy: Family<PolicyLabels, Gauge>,
    policy_reloads: Family<ReloadLabels, Counter>,
    events: Family<EventLabels, Counter>,
    events_pending: Gauge,
    store_wiped: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("tokengate_ratelimit");
        let metrics = Self {
            decisions: Family::default(),
            replays: Counter::default(),
            degraded: Counter::default(),
            would_deny: Family::default(),
            settles: Family::default(),
            tokens: Family::default(),
            unsettled_tokens: Family::default(),
            used_of_held: Histogram::new(USED_OF_HELD),
            store_seconds: Family::new_with_constructor(|| Histogram::new(STORE_SECONDS)),
            calls_in_flight: Gauge::default(),
            refused_calls: Family::default(),
            connections: Gauge::default(),
            policy: Family::default(),
            policy_reloads: Family::default(),
            events: Family::default(),
            events_pending: Gauge::default(),
            store_wiped: Counter::default(),
            registry: Registry::default(),
        };
        let build = Family::<BuildLabels, Gauge>::default();
        build.get_or_create(&BuildLabels { version: VERSION, git_hash: GIT_HASH }).set(1);
        let all = &mut registry;
        all.register("build_info", "The program that runs", build);
        all.register(
            "decisions",
            "Reserves by decision; a deny with its reason and the limit that gave it",
            metrics.decisions.clone(),
        );
        all.register(
            "replayed_reserves",
            "Reserves answered from an earlier reserve of the same id",
            metrics.replays.clone(),
        );
        all.register("degraded_decisions", "Reserves decided without the store", metrics.degraded.clone());
        all.register(
            "shadow_would_deny",
            "Requests that a shadow limit would have refused",
            metrics.would_deny.clone(),
        );
        all.register(
            "settles",
            "Settled reservations by what the filter knew (outcome) and what became of it (status)",
            metrics.settles.clone(),
        );
        all.register(
            "tokens",
            "Tokens of settled and booked usage, by model and class",
            metrics.tokens.clone(),
        );
        all.register(
            "uncharged_tokens",
            "Tokens of usage that came too late, or for a reservation that nobody knows: charged to nobody",
            metrics.unsettled_tokens.clone(),
        );
        all.register(
            "used_of_held_ratio",
            "Tokens used of the tokens held, per settled request; above 1 is debt",
            metrics.used_of_held.clone(),
        );
        all.register_with_unit(
            "store_call",
            "How long calls to the store took",
            Unit::Seconds,
            metrics.store_seconds.clone(),
        );
        all.register("calls_in_flight", "Calls being answered", metrics.calls_in_flight.clone());
        all.register(
            "refused_calls",
            "Calls of filters that were not carried out, by cause",
            metrics.refused_calls.clone(),
        );
        all.register("connections", "Open connections of filters", metrics.connections.clone());
        all.register("policy_info", "The policy in force", metrics.policy.clone());
        all.register(
            "policy_reloads",
            "Readings of the policy file since the start",
            metrics.policy_reloads.clone(),
        );
        all.register("usage_events", "Usage events by what became of them", metrics.events.clone());
        all.register(
            "usage_events_pending",
            "Usage events that no sink has taken yet",
            metrics.events_pending.clone(),
        );
        all.register(
            "store_wiped",
            "How often the store had lost everything it was told before",
            metrics.store_wiped.clone(),
        );
        let metrics = Self { registry, ..metrics };
        metrics.begin_at_zero();
        metrics
    }
}

impl Metrics {
    /// A rate can only be seen of a counter that was there before it first counted.
    fn begin_at_zero(&self) {
        for cause in Overload::ALL.iter().copied() {
            self.refused_calls.get_or_create(&OverloadLabels { cause }).inc_by(0);
        }
        for outcome in ReloadOutcome::ALL.iter().copied() {
            self.policy_reloads.get_or_create(&ReloadLabels { outcome }).inc_by(0);
        }
        for outcome in EventOutcome::ALL.iter().copied() {
            self.events.get_or_create(&EventLabels { outcome }).inc_by(0);
        }
        for status in [SettleStatus::Late, SettleStatus::Unknown] {
            self.unsettled_tokens
                .get_or_create(&UnsettledLabels { status: labels::status(status) })
                .inc_by(0);
        }
    }

    /// All of it as Prometheus reads it.
    pub fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        prometheus_text::encode(&mut text, &self.registry)?;
        Ok(text)
    }

    /// A reserve was answered.
    pub fn decided(&self, response: &ReserveResponse) {
        let decision = match response.decision {
            Decision::Allow => "allow",
            Decision::Deny => "deny",
            Decision::Gone => "gone",
        };
        let labels = DecisionLabels {
            decision,
            reason: response.reason.as_ref().map(|reason| reason.as_str().to_owned()).unwrap_or_default(),
            limit: response.refused_by.clone().unwrap_or_default(),
        };
        self.decisions.get_or_create(&labels).inc();
        if response.degraded {
            self.degraded.inc();
        }
    }

    /// The reserve of an id that was held before: answered from its record.
    pub fn replayed(&self) {
        self.replays.inc();
    }

    /// A shadow limit would have refused.
    pub fn would_deny(&self, limit: &str) {
        self.would_deny.get_or_create(&LimitLabels { limit: limit.to_owned() }).inc();
    }

    /// A settle was answered. `model` is the canonical name, `held` the tokens that were held; both when known.
    pub fn settled(&self, item: &SettleItem, status: SettleStatus, model: Option<&str>, held: Option<u64>) {
        let labels = SettleLabels { outcome: labels::outcome(item.outcome), status: labels::status(status) };
        self.settles.get_or_create(&labels).inc();
        let Some(usage) = &item.usage else { return };
        match status {
            SettleStatus::Settled | SettleStatus::Booked => {
                let model = model.unwrap_or("unknown");
                for (class, tokens) in [
                    ("input", usage.input),
                    ("cache_read", usage.cache_read),
                    ("cache_write", usage.cache_write),
                    ("output", usage.output),
                    ("reasoning", usage.reasoning),
                ] {
                    if tokens > 0 {
                        let labels = TokenLabels { model: model.to_owned(), class };
                        self.tokens.get_or_create(&labels).inc_by(tokens);
                    }
                }
                if let Some(held) = held.filter(|held| *held > 0) {
                    self.used_of_held.observe(usage.total() as f64 / held as f64);
                }
            }
            SettleStatus::Late | SettleStatus::Unknown => {
                let labels = UnsettledLabels { status: labels::status(status) };
                self.unsettled_tokens.get_or_create(&labels).inc_by(usage.total());
            }
            SettleStatus::AlreadySettled => {}
        }
    }

    /// A call to the store took so many seconds.
    pub fn store_call(&self, call: StoreCall, outcome: StoreOutcome, seconds: f64) {
        self.store_seconds.get_or_create(&StoreLabels { call, outcome }).observe(seconds);
    }

    /// Calls of filters that are being answered.
    pub fn calls_in_flight(&self) -> &Gauge {
        &self.calls_in_flight
    }

    /// Open connections of filters.
    pub fn connections(&self) -> &Gauge {
        &self.connections
    }

    /// A call was refused before it was read.
    pub fn refused_call(&self, cause: Overload) {
        self.refused_calls.get_or_create(&OverloadLabels { cause }).inc();
    }

    /// This policy is in force now.
    pub fn policy(&self, version: &str) {
        self.policy.clear();
        self.policy.get_or_create(&PolicyLabels { version: version.to_owned() }).set(1);
    }

    /// The policy file was read again.
    pub fn policy_read(&self, outcome: ReloadOutcome) {
        self.policy_reloads.get_or_create(&ReloadLabels { outcome }).inc();
    }

    /// So many usage events ended like this.
    pub fn events(&self, outcome: EventOutcome, count: u64) {
        self.events.get_or_create(&EventLabels { outcome }).inc_by(count);
    }

    /// Usage events that no sink has taken yet.
    pub fn events_pending(&self) -> &Gauge {
        &self.events_pending
    }

    /// The store had been emptied behind our back.
    pub fn store_wiped(&self) {
        self.store_wiped.inc();
    }
}
