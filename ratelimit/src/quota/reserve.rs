use std::time::Duration;

use tokengate_api::{Decision, Grant, LimitState, Metric, Reason, ReserveRequest, ReserveResponse};
use tracing::{debug, warn};

use super::Quota;
use crate::limits::{Algorithm, Wait};
use crate::policy::Policy;
use crate::quiet::Quiet;
use crate::request_plan::{Denied, Label, RequestPlan, plan_refusal, plan_request};
use crate::store::{
    Answered, Charge, Closing, OnStoreFailure, Reserved, Settlement, Standing, StoreError, Verdict,
};
use crate::subject::Overridden;

/// The longest a filter can make a reserve wait.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

static NO_DECISION: Quiet = Quiet::new();
static UNCOUNTED: Quiet = Quiet::new();

impl Quota {
    /// Decides one request. Always an answer: what goes wrong in the store is a refusal.
    pub async fn reserve(&self, request: &ReserveRequest) -> ReserveResponse {
        let response = self.decide(request).await;
        self.telemetry.metrics.decided(&response);
        response
    }

    async fn decide(&self, request: &ReserveRequest) -> ReserveResponse {
        let policy = self.policy();
        let answer = answer(&policy);
        let mut plan = match plan_request(&policy, &self.overrides.load(), request, self.clock.now_ms()) {
            Ok(plan) => plan,
            Err(Denied { reason, model }) => {
                self.count_attempt(&policy, request).await;
                return ReserveResponse { reason: Some(reason), model, ..answer };
            }
        };
        let answer = ReserveResponse { model: plan.model.clone(), ..answer };
        let mut reserved = self.store.reserve(&plan.hold, store_time(request.deadline_ms)).await;
        if reserved == Err(StoreError::Boundary)
            && let Ok(again) = plan_request(&policy, &self.overrides.load(), request, self.clock.now_ms())
        {
            // The calendar has turned since the plan was made.
            plan = again;
            reserved = self.store.reserve(&plan.hold, store_time(request.deadline_ms)).await;
        }
        match reserved {
            Ok(reserved) => self.decided(&plan, &reserved, answer),
            Err(error) => self.undecided(&plan, &error, answer),
        }
    }

    /// A request that is refused for its model is an attempt like others. It is refused whatever the store says.
    async fn count_attempt(&self, policy: &Policy, request: &ReserveRequest) {
        let Some(plan) = plan_refusal(policy, &self.overrides.load(), request, self.clock.now_ms()) else {
            return;
        };
        match self.store.reserve(&plan.hold, store_time(request.deadline_ms)).await {
            // An earlier policy has admitted what nobody will use now.
            Ok(Reserved { verdict: Verdict::Held { .. }, .. }) => self.releases.push(release_of(&plan)),
            Ok(reserved) => self.tell_shadows(&plan, &reserved),
            Err(error) => {
                if let Some(unsaid) = UNCOUNTED.say() {
                    warn!(id = %request.id, %error, unsaid, "a refused attempt could not be counted");
                }
            }
        }
    }

    /// The store gave no answer: every enforcing limit says for itself whether the request may go.
    fn undecided(&self, plan: &RequestPlan, error: &StoreError, answer: ReserveResponse) -> ReserveResponse {
        let closed = |charge: &Charge| !charge.shadow && charge.on_store_failure == OnStoreFailure::Closed;
        let refused = plan.hold.charges.iter().any(closed);
        let id = &plan.hold.id;
        if let Some(unsaid) = NO_DECISION.say() {
            warn!(%id, %error, refused, unsaid, "the store gave no answer to a reserve");
        }
        if !refused {
            // Its settle closes what the store may have held all the same.
            return ReserveResponse {
                decision: Decision::Allow,
                account: plan.hold.account.to_string(),
                grant: Grant { max_output_tokens: plan.hold.grant, ..Grant::default() },
                degraded: true,
                ..answer
            };
        }
        if error.indeterminate() {
            // The store may have held, or hold later, what nobody will use.
            self.releases.push(release_of(plan));
        }
        ReserveResponse { reason: Some(Reason::QuotaUnavailable), ..answer }
    }

    fn decided(&self, plan: &RequestPlan, reserved: &Reserved, answer: ReserveResponse) -> ReserveResponse {
        let answer = ReserveResponse { limits: limit_states(plan, reserved), ..answer };
        self.tell_shadows(plan, reserved);
        match reserved.verdict {
            Verdict::Held { grant, replayed } => {
                debug!(id = %plan.hold.id, replayed, tokens = plan.hold.tokens(), "held");
                if replayed {
                    self.telemetry.metrics.replayed();
                }
                ReserveResponse {
                    decision: Decision::Allow,
                    account: plan.hold.account.to_string(),
                    grant: Grant { max_output_tokens: grant, lease_ms: lease_ms(plan) },
                    ..answer
                }
            }
            Verdict::Gone => ReserveResponse { decision: Decision::Gone, ..answer },
            Verdict::Refused => match refusal(plan, reserved) {
                Some(refusal) => ReserveResponse {
                    reason: Some(refusal.reason),
                    refused_by: Some(refusal.by),
                    retry_after_ms: refusal.retry_after_ms,
                    retry_after_estimated: refusal.estimated,
                    ..answer
                },
                // A store that refuses what fits is broken: closed.
                None => ReserveResponse { reason: Some(Reason::QuotaUnavailable), ..answer },
            },
        }
    }

    /// Counts the shadow limits that would have refused.
    fn tell_shadows(&self, plan: &RequestPlan, reserved: &Reserved) {
        let charges = plan.hold.charges.iter().zip(&plan.labels).zip(&reserved.limits);
        for ((charge, label), standing) in charges {
            if charge.shadow && standing.would_deny {
                self.telemetry.metrics.would_deny(&label.name);
            }
        }
    }
}

/// A deny that says nothing yet.
fn answer(policy: &Policy) -> ReserveResponse {
    ReserveResponse {
        decision: Decision::Deny,
        account: String::new(),
        model: None,
        grant: Grant::default(),
        reason: None,
        refused_by: None,
        retry_after_ms: None,
        retry_after_estimated: false,
        degraded: false,
        limits: Vec::new(),
        policy_version: policy.version.clone(),
    }
}

/// What the store may take: the filter's deadline less a fifth of it (5 to 50 ms) for the way back.
fn store_time(deadline_ms: u32) -> Duration {
    let margin_ms = (deadline_ms / 5).clamp(5, 50);
    let time = Duration::from_millis(deadline_ms.saturating_sub(margin_ms).max(1).into());
    time.min(LONGEST_WAIT)
}

/// Closes what this attempt may have left behind, and nothing that a later attempt was answered from.
fn release_of(plan: &RequestPlan) -> Settlement {
    Settlement {
        id: plan.hold.id.clone(),
        account: plan.hold.account,
        closing: Closing::Released { sent: false },
        answered: Answered::default(),
        attempt: Some(plan.hold.attempt),
        age_ms: 0,
        queued_ms: 0,
        booking: None,
    }
}

/// The soonest end of a lease that the filter has to renew.
fn lease_ms(plan: &RequestPlan) -> Option<u64> {
    let lease = |charge: &Charge| match charge.meter.algorithm {
        Algorithm::Concurrency { lease_ms } => Some(lease_ms),
        _ => None,
    };
    plan.hold.charges.iter().filter_map(lease).min()
}

#[derive(Debug, PartialEq, Eq)]
struct Refusal {
    reason: Reason,
    by: String,
    retry_after_ms: Option<u64>,
    estimated: bool,
}

/// What can never fit comes first, then what only a top-up or another billing period helps, then the longest
/// wait. The time is when all of them fit.
fn refusal(plan: &RequestPlan, reserved: &Reserved) -> Option<Refusal> {
    let charges = plan.hold.charges.iter().zip(&plan.labels).zip(&reserved.limits);
    let failing: Vec<_> = charges
        .filter(|((charge, _), standing)| standing.would_deny && !charge.shadow)
        .map(|((charge, label), standing)| (charge, label, wait_of(plan, charge, label, standing)))
        .collect();
    let rank = |(charge, _, wait): &&(&Charge, &Label, Wait)| {
        let period = matches!(charge.meter.algorithm, Algorithm::Balance | Algorithm::CalendarWindow { .. });
        match *wait {
            Wait::Never => (2, 0),
            wait => (u8::from(period), wait_ms(wait).unwrap_or(u64::MAX)),
        }
    };
    // The first of equals, as they stand in the policy.
    let (charge, label, wait) = failing.iter().rev().max_by_key(rank)?;
    let waits = failing.iter().map(|(_, _, wait)| wait_ms(*wait));
    let estimated = failing.iter().any(|(_, _, wait)| matches!(wait, Wait::Estimate(_)));
    let retry_after_ms = waits.collect::<Option<Vec<_>>>().and_then(|waits| waits.into_iter().max());
    let never = *wait == Wait::Never;
    Some(Refusal {
        reason: if never { Reason::RequestExceedsLimit } else { reason(charge, label) },
        by: label.name.clone(),
        retry_after_ms,
        estimated: estimated && retry_after_ms.is_some(),
    })
}

/// When a charge fits. Where an override ends before that, what the policy admits decides from then on.
fn wait_of(plan: &RequestPlan, charge: &Charge, label: &Label, standing: &Standing) -> Wait {
    let Some(Overridden { ends_in_ms, then }) = label.overridden else { return standing.wait };
    match standing.wait {
        Wait::Ms(ms) if ms <= ends_in_ms => return standing.wait,
        Wait::Ms(_) | Wait::Never => {}
        Wait::No | Wait::Estimate(_) | Wait::Unknown => return standing.wait,
    }
    let amount = plan.hold.amount(charge, plan.hold.output_tokens);
    if amount > then {
        Wait::Never
    } else if standing.gauge.used.saturating_add(amount) <= then {
        Wait::Ms(ends_in_ms)
    } else {
        Wait::Ms(ends_in_ms.max(standing.gauge.reset_ms))
    }
}

fn wait_ms(wait: Wait) -> Option<u64> {
    match wait {
        Wait::No => Some(0),
        Wait::Ms(ms) | Wait::Estimate(ms) => Some(ms),
        Wait::Unknown | Wait::Never => None,
    }
}

fn reason(charge: &Charge, label: &Label) -> Reason {
    let period = matches!(charge.meter.algorithm, Algorithm::Balance | Algorithm::CalendarWindow { .. });
    match (charge.meter.algorithm, label.metric) {
        (Algorithm::Concurrency { .. }, _) => Reason::ConcurrencyLimitExceeded,
        (_, Metric::Cost) => Reason::BudgetExceeded,
        _ if period => Reason::QuotaExceeded,
        (_, Metric::Requests) => Reason::RpmLimitExceeded,
        (_, _) => Reason::TpmLimitExceeded,
    }
}

fn limit_states(plan: &RequestPlan, reserved: &Reserved) -> Vec<LimitState> {
    let charges = plan.hold.charges.iter().zip(&plan.labels).zip(&reserved.limits);
    let state = |((charge, label), standing): ((&Charge, &Label), &Standing)| LimitState {
        name: label.name.clone(),
        scope: label.scope.clone(),
        metric: label.metric,
        limit: shown_limit(charge, standing),
        remaining: standing.gauge.left(),
        held: None,
        reset_ms: standing.gauge.reset_ms,
        window_ms: label.window_ms,
        plan: Some(plan.identity.plan.clone()),
        shadow: charge.shadow,
    };
    charges.map(state).collect()
}

/// A balance has no limit but what was granted.
fn shown_limit(charge: &Charge, standing: &Standing) -> u64 {
    match charge.meter.algorithm {
        Algorithm::Balance => standing.gauge.granted(),
        _ => charge.meter.limit,
    }
}

#[cfg(test)]
mod tests;
