//! Policy + request → what has to be held, in which buckets. Pure; no store.

mod candidates;

use std::collections::BTreeMap;

use tokengate_api::{Metric, ModelInfo, Reason, ReserveRequest};

use candidates::Candidates;

use crate::limits::MAX_AMOUNT;
use crate::overrides::Overrides;
use crate::policy::{
    Count, DEFAULT_OUTPUT_TOKENS, Dimension, Identity, Limit, MAX_LIMITS, Policy, WhenTight, default_output,
};
use crate::store::{Charge, Clamp, Hold, Meter};
use crate::subject::{Applying, Overridden, Subject, Who, applying};
use crate::tag::Tag;

/// What a request asks of the store, and how the answer speaks of it.
#[derive(Debug)]
pub struct RequestPlan {
    pub hold: Hold,
    pub identity: Identity,
    /// Canonical name.
    pub model: Option<String>,
    /// One per charge of the hold, in the same order.
    pub labels: Vec<Label>,
}

/// A limit as the caller is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    pub name: String,
    pub scope: BTreeMap<String, String>,
    pub metric: Metric,
    pub window_ms: u64,
    /// An override sets what it admits.
    pub overridden: Option<Overridden>,
}

/// Why a request is denied without asking the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    pub reason: Reason,
    /// The name that it is about, where that is not the requested model's.
    pub model: Option<String>,
}

impl From<Reason> for Denied {
    fn from(reason: Reason) -> Self {
        Self { reason, model: None }
    }
}

/// Finds caller and model and lists the charges. `now_ms` is the service's clock: a calendar's boundaries are
/// around it.
///
/// # Errors
/// The reason to deny with: the caller or a model is unknown, or the plan does not contain a model.
pub fn plan_request(
    policy: &Policy,
    overrides: &Overrides,
    request: &ReserveRequest,
    now_ms: u64,
) -> Result<RequestPlan, Denied> {
    plan(policy, overrides, request, now_ms, true)
}

/// The same for a request that was let through without being asked about: it is charged, whatever its plan contains.
///
/// # Errors
/// The caller or the model is unknown: then nobody knows what to charge.
pub fn plan_booking(
    policy: &Policy,
    overrides: &Overrides,
    request: &ReserveRequest,
    now_ms: u64,
) -> Result<RequestPlan, Denied> {
    plan(policy, overrides, request, now_ms, false)
}

/// The same for a request that is refused for its model: only attempts are counted. Nothing where none are.
pub fn plan_refusal(
    policy: &Policy,
    overrides: &Overrides,
    request: &ReserveRequest,
    now_ms: u64,
) -> Option<RequestPlan> {
    if !policy.limits.iter().any(|limit| limit.count == Count::Attempts) {
        return None;
    }
    // A model that nobody knows is none.
    let nameless = || ReserveRequest { model: None, models: Vec::new(), ..request.clone() };
    let mut plan = plan_booking(policy, overrides, request, now_ms)
        .or_else(|_| plan_booking(policy, overrides, &nameless(), now_ms))
        .ok()?;
    let counted = plan.hold.charges.into_iter().zip(plan.labels).filter(|(charge, _)| charge.attempts);
    (plan.hold.charges, plan.labels) = counted.unzip();
    plan.hold.refuse = true;
    (!plan.hold.charges.is_empty()).then_some(plan)
}

fn plan(
    policy: &Policy,
    overrides: &Overrides,
    request: &ReserveRequest,
    now_ms: u64,
    is_asked: bool,
) -> Result<RequestPlan, Denied> {
    let Who { identity, key } = Who::of(policy, request)?;
    let plan = policy.plans.get(&identity.plan).ok_or(Reason::InvalidIdentity)?;
    let candidates = Candidates::of(policy, is_asked.then_some(plan), request)?;
    let model = candidates.requested();
    let held = held_tokens(request, &candidates);
    let clamp = match plan.when_tight {
        WhenTight::Clamp { min_tokens } if request.can_clamp && model.is_some() => {
            Some(Clamp { min_output_tokens: min_tokens })
        }
        _ => None,
    };
    let requested = Subject {
        policy,
        identity: &identity,
        key: key.as_deref(),
        model: model.map(|model| model.name.as_str()),
        endpoint: &request.endpoint,
        ip: request.ip.as_deref(),
    };
    let tokens = (held.prompt_tokens, held.output_tokens);
    let mut charges = Vec::new();
    let mut labels = Vec::new();
    let mut priced = None;
    for Applying { limit, amount, overridden } in applying(policy, overrides, &requested, now_ms) {
        if limit.count == Count::Cost {
            priced = Some(limit);
        }
        let mut add = |subject: &Subject<'_>, only: Option<u8>| {
            charges.push(Charge {
                meter: meter(limit, amount, subject, now_ms),
                rates: candidates.rates(limit, only, tokens, clamp.is_some()),
                shadow: !limit.enforces(),
                attempts: limit.count == Count::Attempts,
                priced: limit.count == Count::Cost,
                model: only,
                on_store_failure: limit.on_store_failure,
            });
            labels.push(Label {
                name: limit.name.clone(),
                scope: subject.scope(limit),
                metric: limit.count.metric(),
                window_ms: limit.shape.window_ms().unwrap_or(0),
                overridden,
            });
        };
        // Whichever model answers, its own bucket has to have room; an attempt is one at the model that was asked for.
        let by_model = limit.per.contains(&Dimension::Model) && limit.count != Count::Attempts;
        if by_model && candidates.are_several() {
            for (position, model) in candidates.iter() {
                add(&Subject { model: Some(&model.name), ..requested }, Some(position));
            }
        } else {
            add(&requested, None);
        }
    }
    if is_asked && candidates.are_several() && charges.len() > MAX_LIMITS {
        return Err(Reason::TooManyModels.into());
    }
    let who = match &key {
        Some(_) => Tag::of("identity", [Some(request.key_hash.as_str())]),
        None => Tag::of("verified", [Some(identity.tenant.as_str()), identity.user.as_deref()]),
    };
    let hold = Hold {
        id: request.id.clone(),
        attempt: request.attempt,
        account: Tag::account(&identity.tenant),
        identity: who,
        model: Tag::model(requested.model),
        plan: Tag::plan(&identity.plan),
        grant: held.grant,
        prompt_tokens: held.prompt_tokens,
        output_tokens: held.output_tokens,
        choices: request.choices.max(1),
        clamp,
        refuse: false,
        alternatives: candidates.alternatives(priced),
        charges,
    };
    let model = requested.model.map(str::to_owned);
    Ok(RequestPlan { hold, identity, model, labels })
}

/// The bucket of a limit for a subject, and how it counts.
pub fn meter(limit: &Limit, amount: u64, subject: &Subject<'_>, now_ms: u64) -> Meter {
    Meter { bucket: subject.bucket(limit), algorithm: limit.algorithm_at(now_ms), limit: amount }
}

struct Held {
    /// Output tokens per choice, when the client named a limit.
    grant: Option<u64>,
    prompt_tokens: u64,
    /// Of all choices.
    output_tokens: u64,
}

/// An amount too large to be counted is held at one more than the largest: it fits no limit. The output is that of the
/// model which can produce the most.
fn held_tokens(request: &ReserveRequest, candidates: &Candidates<'_>) -> Held {
    let output_of = |(_, model): (u8, &ModelInfo)| {
        let wanted =
            request.max_output_tokens.or_else(|| default_output(model)).unwrap_or(DEFAULT_OUTPUT_TOKENS);
        wanted.min(model.max_output_tokens.unwrap_or(MAX_AMOUNT + 1)).min(MAX_AMOUNT + 1)
    };
    let Some(output) = candidates.iter().map(output_of).max() else {
        return Held { grant: None, prompt_tokens: 0, output_tokens: 0 };
    };
    Held {
        grant: request.max_output_tokens.map(|_| output),
        prompt_tokens: request.prompt_tokens.min(MAX_AMOUNT + 1),
        output_tokens: u64::from(request.choices).saturating_mul(output).min(MAX_AMOUNT + 1),
    }
}

#[cfg(test)]
mod tests;
