//! Policy + request → what has to be held, in which buckets. Pure; no store, no clock.

use std::collections::BTreeMap;

use tokengate_api::{Metric, ModelInfo, Reason, ReserveRequest};

use crate::limits::{Algorithm, MAX_AMOUNT, Rates};
use crate::policy::{Caller, DEFAULT_OUTPUT_TOKENS, Dimension, Limit, Policy};
use crate::store::{BucketId, Charge, Hold, Meter, OnStoreFailure};
use crate::tag::Tag;

/// What a request asks of the store, and how the answer speaks of it.
#[derive(Debug)]
pub struct RequestPlan {
    pub hold: Hold,
    /// Canonical name.
    pub model: Option<String>,
    pub plan: String,
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
}

/// Finds caller and model and lists the charges.
///
/// # Errors
/// The reason to deny with: the key or the model is unknown, or the plan does not contain the model.
pub fn plan_request(policy: &Policy, request: &ReserveRequest) -> Result<RequestPlan, Reason> {
    let caller = policy.keys.get(&request.key_hash).ok_or(Reason::UnknownKey)?;
    let plan = policy.plans.get(&caller.plan).ok_or(Reason::UnknownKey)?;
    let model = match request.model.as_deref() {
        None => None,
        Some(raw) => {
            let (index, model) = policy.model(raw).ok_or(Reason::ModelNotFound)?;
            if !plan.models.contains(&index) {
                return Err(Reason::ModelNotAllowed);
            }
            Some(model)
        }
    };
    let held = held_tokens(request, model);
    let model_name = model.map(|model| model.name.as_str());
    let subject = Subject { caller, key_hash: &request.key_hash, model: model_name };
    let mut charges = Vec::new();
    let mut labels = Vec::new();
    for (limit, amount) in applying(policy, &subject) {
        charges.push(Charge {
            meter: meter(limit, amount, &subject),
            rates: if limit.count == Metric::Requests { Rates::REQUESTS } else { Rates::TOKENS },
            shadow: false,
            attempts: false,
            on_store_failure: OnStoreFailure::Closed,
        });
        labels.push(Label {
            name: limit.name.clone(),
            scope: subject.scope(limit),
            metric: limit.count,
            window_ms: limit.window_ms,
        });
    }
    let hold = Hold {
        id: request.id.clone(),
        attempt: request.attempt,
        account: Tag::account(&caller.tenant),
        identity: Tag::of("identity", [Some(request.key_hash.as_str())]),
        model: Tag::model(model_name),
        grant: held.grant,
        prompt_tokens: held.prompt_tokens,
        output_tokens: held.output_tokens,
        choices: request.choices.max(1),
        clamp: None,
        charges,
    };
    Ok(RequestPlan { hold, model: model_name.map(str::to_owned), plan: caller.plan.clone(), labels })
}

/// The bucket of a limit for a subject, and how it counts.
pub fn meter(limit: &Limit, amount: u64, subject: &Subject<'_>) -> Meter {
    let algorithm = Algorithm::FixedWindow { length_ms: limit.window_ms };
    Meter { bucket: subject.bucket(limit), algorithm, limit: amount }
}

struct Held {
    /// Output tokens per choice, when the client named a limit.
    grant: Option<u64>,
    prompt_tokens: u64,
    /// Of all choices.
    output_tokens: u64,
}

/// An amount too large to be counted is held at one more than the largest: it fits no limit.
fn held_tokens(request: &ReserveRequest, model: Option<&ModelInfo>) -> Held {
    let Some(model) = model else { return Held { grant: None, prompt_tokens: 0, output_tokens: 0 } };
    let wanted = request.max_output_tokens.or(model.default_output_tokens).unwrap_or(DEFAULT_OUTPUT_TOKENS);
    let output = wanted.min(model.max_output_tokens.unwrap_or(MAX_AMOUNT + 1)).min(MAX_AMOUNT + 1);
    Held {
        grant: request.max_output_tokens.map(|_| output),
        prompt_tokens: request.prompt_tokens.min(MAX_AMOUNT + 1),
        output_tokens: u64::from(request.choices).saturating_mul(output).min(MAX_AMOUNT + 1),
    }
}

/// Who and what a limit is evaluated for.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    pub caller: &'a Caller,
    pub key_hash: &'a str,
    /// Canonical name; absent on endpoints without a model.
    pub model: Option<&'a str>,
}

impl<'a> Subject<'a> {
    fn value(&self, dimension: Dimension) -> Option<&'a str> {
        match dimension {
            Dimension::Tenant => Some(&self.caller.tenant),
            Dimension::Plan => Some(&self.caller.plan),
            Dimension::Key => Some(self.key_hash),
            Dimension::Model => self.model,
        }
    }

    pub fn bucket(&self, limit: &Limit) -> BucketId {
        let values = limit.per.iter().map(|dimension| self.value(*dimension));
        BucketId { limit: limit.tag, subject: Tag::of("bucket", values) }
    }

    pub fn scope(&self, limit: &Limit) -> BTreeMap<String, String> {
        let shown = |dimension: &Dimension| {
            let value = match (dimension, self.value(*dimension)) {
                (Dimension::Key, Some(hash)) => hash.get(..8).unwrap_or(hash),
                (_, Some(value)) => value,
                (_, None) => "-",
            };
            (dimension.name().to_owned(), value.to_owned())
        };
        limit.per.iter().map(shown).collect()
    }
}

/// The limits that apply to a subject, with their amounts. Requests without a model use no tokens.
pub fn applying<'p>(policy: &'p Policy, subject: &Subject<'_>) -> impl Iterator<Item = (&'p Limit, u64)> {
    let with_model = subject.model.is_some();
    let plan = subject.caller.plan.clone();
    policy
        .limits
        .iter()
        .filter(move |limit| with_model || limit.count == Metric::Requests)
        .filter_map(move |limit| Some((limit, limit.amount.of(&plan)?)))
}

#[cfg(test)]
mod tests;
