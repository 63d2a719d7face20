//! Names and descriptions of all metrics.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use tokengate_api::SettleStatus;

use super::labels::{
    self, BuildLabels, EventLabels, IdentifyLabels, RefusedCallLabels, ReloadLabels, UnsettledLabels,
};
use super::{EventOutcome, Metrics, RefusedCall, ReloadOutcome};
use crate::{GIT_HASH, VERSION};

/// From a tenth of a millisecond to the longest a filter waits.
const STORE_SECONDS: [f64; 13] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0];
/// What was used of a hold; above 1 is debt.
const USED_OF_HELD: [f64; 12] = [0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0, 1.1, 1.5, 2.0];

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("tokengate_ratelimit");
        let metrics = Self {
            decisions: Family::default(),
            identified: Family::default(),
            replays: Counter::default(),
            degraded: Counter::default(),
            would_deny: Family::default(),
            settles: Family::default(),
            tokens: Family::default(),
            unsettled_tokens: Family::default(),
            used_of_held: Histogram::new(USED_OF_HELD),
            lapsed_holds: Counter::default(),
            lapsed_tokens: Counter::default(),
            unreadable: Counter::default(),
            store_seconds: Family::new_with_constructor(|| Histogram::new(STORE_SECONDS)),
            calls_in_flight: Gauge::default(),
            refused_calls: Family::default(),
            connections: Gauge::default(),
            policy: Family::default(),
            policy_reloads: Family::default(),
            events: Family::default(),
            events_pending: Gauge::default(),
            store_wiped: Counter::default(),
            store_clock_ahead: Gauge::default(),
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
            "identifications",
            "Callers that filters have asked about, by whether they are known",
            metrics.identified.clone(),
        );
        all.register(
            "replayed_reserves",
            "Reserves answered from an earlier reserve of the same id",
            metrics.replays.clone(),
        );
        all.register(
            "degraded_decisions",
            "Requests let through without the store",
            metrics.degraded.clone(),
        );
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
        all.register(
            "lapsed_holds",
            "Holds that nobody settled in time; they stay charged",
            metrics.lapsed_holds.clone(),
        );
        all.register(
            "lapsed_tokens",
            "Tokens of holds that nobody settled in time",
            metrics.lapsed_tokens.clone(),
        );
        all.register(
            "unreadable_state",
            "Buckets and other state that a settle passed over because it cannot be read; what is in it stays charged",
            metrics.unreadable.clone(),
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
        all.register_with_unit(
            "store_clock_ahead",
            "By how much the store's clock is ahead of this machine's, negative where it is behind",
            Unit::Seconds,
            metrics.store_clock_ahead.clone(),
        );
        let metrics = Self { registry, ..metrics };
        metrics.begin_at_zero();
        metrics
    }
}

impl Metrics {
    /// A rate can only be seen of a counter that was there before it first counted.
    fn begin_at_zero(&self) {
        for known in ["true", "false"] {
            self.identified.get_or_create(&IdentifyLabels { known }).inc_by(0);
        }
        for cause in RefusedCall::ALL.iter().copied() {
            self.refused_calls.get_or_create(&RefusedCallLabels { cause }).inc_by(0);
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
}
