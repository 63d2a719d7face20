//! Policy + request → what has to be held, in which buckets. Pure; no store, no clock.

use std::collections::BTreeMap;

use tokengate_api::{ModelInfo, Reason, ReserveRequest};

use crate::limits::MAX_AMOUNT;
use crate::limits::Rates;
use crate::policy::{
    Caller, Count, DEFAULT_OUTPUT_TOKENS, Dimension, Limit, Mode, Policy, Shape, default_output,
};
use crate::store::{BucketId, Charge, Hold};
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
    let (grant, tokens) = held_tokens(request, model);
    let model_name = model.map(|model| model.name.as_str());
    let subject = Subject { caller, key_hash: &caller.key, model: model_name };
    let mut charges = Vec::new();
    let mut labels = Vec::new();
    for (limit, amount) in applying(policy, &subject) {
        let window_ms = served(limit, model).ok_or(Reason::QuotaUnavailable)?;
        charges.push(Charge {
            bucket: subject.bucket(limit),
            metric: limit.count.metric(),
            limit: amount,
            amount: if limit.count == Count::Requests { 1 } else { tokens },
            window_ms,
        });
        labels.push(Label { name: limit.name.clone(), scope: subject.scope(limit) });
    }
    let hold = Hold {
        id: request.id.clone(),
        attempt: request.attempt,
        account: Tag::account(&caller.tenant),
        identity: Tag::of("identity", [Some(request.key_hash.as_str())]),
        model: Tag::model(model_name),
        grant,
        tokens,
        charges,
    };
    Ok(RequestPlan { hold, model: model_name.map(str::to_owned), plan: caller.plan.clone(), labels })
}

/// Length of the window of a limit that the stores can count; what they cannot is not let through.
fn served(limit: &Limit, model: Option<&ModelInfo>) -> Option<u64> {
    let Shape::FixedWindow { length_ms } = limit.shape else { return None };
    let sent =
        |dimension: &Dimension| !matches!(dimension, Dimension::User | Dimension::Endpoint | Dimension::Ip);
    let plain = match limit.count {
        Count::Requests => true,
        Count::Tokens => model.is_some_and(|model| limit.rates(model) == Rates::TOKENS),
        _ => false,
    };
    let served = plain && limit.mode == Mode::Enforce && limit.per.iter().all(sent) && !limit.is_shared();
    served.then_some(length_ms)
}

/// Output tokens per choice to grant, when the client named a limit, and all tokens to hold.
///
/// An amount too large to be counted is held at one more than the largest: it fits no limit.
fn held_tokens(request: &ReserveRequest, model: Option<&ModelInfo>) -> (Option<u64>, u64) {
    let Some(model) = model else { return (None, 0) };
    let wanted = request.max_output_tokens.or_else(|| default_output(model)).unwrap_or(DEFAULT_OUTPUT_TOKENS);
    let output = wanted.min(model.max_output_tokens.unwrap_or(u64::MAX));
    let tokens = u64::from(request.choices).saturating_mul(output).saturating_add(request.prompt_tokens);
    (request.max_output_tokens.map(|_| output), tokens.min(MAX_AMOUNT + 1))
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
            Dimension::User => self.caller.user.as_deref(),
            Dimension::Endpoint | Dimension::Ip => None,
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
    let Caller { plan, tenant, .. } = subject.caller.clone();
    policy
        .limits
        .iter()
        .filter(move |limit| with_model || limit.applies_without_model())
        .filter_map(move |limit| Some((limit, limit.amount_for(&plan, &tenant)?)))
}

#[cfg(test)]
mod tests;
