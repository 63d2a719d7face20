//! What the service counts about itself, for Prometheus.
//!
//! Label values are few by construction: names of the policy (limits, models), the closed sets of the wire
//! (decision, reason, status), nothing that a client sends, no tenants, no keys.

mod labels;
mod registered;
mod timed_store;

#[cfg(test)]
mod tests;

use std::fmt;

use prometheus_client::encoding::prometheus_text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tokengate_api::{Decision, Outcome, ReserveResponse, SettleStatus, Usage};

use labels::{
    DecisionLabels, EventLabels, IdentifyLabels, LimitLabels, PolicyLabels, RefusedCallLabels, ReloadLabels,
    SettleLabels, StoreLabels, TokenLabels, UnsettledLabels,
};
pub use labels::{EventOutcome, RefusedCall, ReloadOutcome, StoreCall, StoreOutcome};
pub use timed_store::TimedStore;

/// The `Content-Type` of [`Metrics::text`].
pub const CONTENT_TYPE: &str = prometheus_text::CONTENT_TYPE;

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

pub struct Metrics {
    registry: Registry,
    decisions: Family<DecisionLabels, Counter>,
    identified: Family<IdentifyLabels, Counter>,
    replays: Counter,
    degraded: Counter,
    would_deny: Family<LimitLabels, Counter>,
    settles: Family<SettleLabels, Counter>,
    tokens: Family<TokenLabels, Counter>,
    unsettled_tokens: Family<UnsettledLabels, Counter>,
    used_of_held: Histogram,
    lapsed_holds: Counter,
    lapsed_tokens: Counter,
    store_seconds: Histograms<StoreLabels>,
    calls_in_flight: Gauge,
    refused_calls: Family<RefusedCallLabels, Counter>,
    connections: Gauge,
    policy: Family<PolicyLabels, Gauge>,
    policy_reloads: Family<ReloadLabels, Counter>,
    events: Family<EventLabels, Counter>,
    events_pending: Gauge,
    store_wiped: Counter,
}

impl Metrics {
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

    /// A filter asked whether it knows a caller.
    pub fn identified(&self, known: bool) {
        let labels = IdentifyLabels { known: if known { "true" } else { "false" } };
        self.identified.get_or_create(&labels).inc();
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
    pub fn settled(
        &self,
        outcome: Outcome,
        status: SettleStatus,
        usage: Option<&Usage>,
        model: Option<&str>,
        held: Option<u64>,
    ) {
        let labels = SettleLabels { outcome: labels::outcome(outcome), status: labels::status(status) };
        self.settles.get_or_create(&labels).inc();
        let Some(usage) = usage else { return };
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

    /// Nobody settled a hold of so many tokens in time.
    pub fn lapsed(&self, tokens: u64) {
        self.lapsed_holds.inc();
        self.lapsed_tokens.inc_by(tokens);
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
    pub fn refused_call(&self, cause: RefusedCall) {
        self.refused_calls.get_or_create(&RefusedCallLabels { cause }).inc();
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
