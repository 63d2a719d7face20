use std::time::Duration;

use tokengate_api::{Decision, Grant, LimitState, Metric, Reason, ReserveRequest, ReserveResponse};
use tracing::{debug, warn};

use super::Quota;
use crate::limits::fixed_window::Window;
use crate::policy::Policy;
use crate::quiet::Quiet;
use crate::request_plan::{Label, RequestPlan, plan_request};
use crate::store::{Charge, Closing, Reserved, Settlement, Verdict};

/// The longest a filter can make a reserve wait.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

static NO_DECISION: Quiet = Quiet::new();

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
        let plan = match plan_request(&policy, request) {
            Ok(plan) => plan,
            Err(reason) => return ReserveResponse { reason: Some(reason), ..answer },
        };
        let answer = ReserveResponse { model: plan.model.clone(), ..answer };
        match self.store.reserve(&plan.hold, store_time(request.deadline_ms)).await {
            Ok(reserved) => self.decided(&plan, &reserved, answer),
            Err(error) => {
                if let Some(unsaid) = NO_DECISION.say() {
                    warn!(id = %request.id, %error, unsaid, "refused for lack of an answer from the store");
                }
                if error.indeterminate() {
                    // The store may have held, or hold later, what nobody will use.
                    self.releases.push(release_of(&plan));
                }
                ReserveResponse { reason: Some(Reason::QuotaUnavailable), ..answer }
            }
        }
    }

    fn decided(&self, plan: &RequestPlan, reserved: &Reserved, answer: ReserveResponse) -> ReserveResponse {
        let answer = ReserveResponse { limits: limit_states(plan, reserved), ..answer };
        match reserved.verdict {
            Verdict::Held { grant, replayed } => {
                debug!(id = %plan.hold.id, replayed, tokens = plan.hold.tokens, "held");
                if replayed {
                    self.telemetry.metrics.replayed();
                }
                ReserveResponse {
                    decision: Decision::Allow,
                    account: plan.hold.account.to_string(),
                    grant: Grant { max_output_tokens: grant },
                    ..answer
                }
            }
            Verdict::Gone => ReserveResponse { decision: Decision::Gone, ..answer },
            Verdict::Refused => match refusal(plan, reserved) {
                Some(refusal) => ReserveResponse {
                    reason: Some(refusal.reason),
                    refused_by: Some(refusal.by),
                    retry_after_ms: refusal.retry_after_ms,
                    ..answer
                },
                // A store that refuses what fits is broken: closed.
                None => ReserveResponse { reason: Some(Reason::QuotaUnavailable), ..answer },
            },
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
        attempt: Some(plan.hold.attempt),
        age_ms: 0,
        queued_ms: 0,
        booking: None,
    }
}

struct Refusal {
    reason: Reason,
    by: String,
    retry_after_ms: Option<u64>,
}

/// A limit that can never take the amount comes first; else the one with the longest wait.
fn refusal(plan: &RequestPlan, reserved: &Reserved) -> Option<Refusal> {
    let failing = || {
        plan.hold
            .charges
            .iter()
            .zip(&plan.labels)
            .zip(&reserved.windows)
            .filter(|((charge, _), window)| !window.fits(charge.amount, charge.limit))
            .map(|((charge, label), window)| (charge, label, window))
    };
    let never = |(charge, _, _): &(&Charge, &Label, &Window)| charge.amount > charge.limit;
    if let Some((_, label, _)) = failing().find(never) {
        return Some(Refusal {
            reason: Reason::RequestExceedsLimit,
            by: label.name.clone(),
            retry_after_ms: None,
        });
    }
    let wait = |charge: &Charge, window: &Window| window.left_ms(reserved.now_ms, charge.window_ms);
    let (charge, label, window) = failing().max_by_key(|(charge, _, window)| wait(charge, window))?;
    let reason = match charge.metric {
        Metric::Requests => Reason::RpmLimitExceeded,
        Metric::Tokens | Metric::Other => Reason::TpmLimitExceeded,
    };
    Some(Refusal { reason, by: label.name.clone(), retry_after_ms: Some(wait(charge, window)) })
}

fn limit_states(plan: &RequestPlan, reserved: &Reserved) -> Vec<LimitState> {
    let charges = plan.hold.charges.iter().zip(&plan.labels).zip(&reserved.windows);
    let state = |((charge, label), window): ((&Charge, &Label), &Window)| LimitState {
        name: label.name.clone(),
        scope: label.scope.clone(),
        metric: charge.metric,
        limit: charge.limit,
        remaining: charge.limit.saturating_sub(window.used),
        reset_ms: if window.used == 0 { 0 } else { window.left_ms(reserved.now_ms, charge.window_ms) },
        window_ms: charge.window_ms,
        plan: Some(plan.plan.clone()),
        shadow: false,
    };
    charges.map(state).collect()
}
