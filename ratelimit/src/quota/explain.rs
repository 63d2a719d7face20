use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use schemars::JsonSchema;
use serde::Serialize;
use tokengate_api::Metric;

use super::{Quota, STORE_TIME};
use crate::limits::Gauge;
use crate::policy::{Caller, Dimension, Identity, Limit, Policy, Shape};
use crate::request_plan::meter;
use crate::store::{Meter, StoreError};
use crate::subject::{Applying, Subject, applying};
use crate::tag::Tag;
use crate::{GIT_HASH, VERSION};

/// How a tenant stands with a model, for operators.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Explanation {
    pub policy_version: String,
    pub version: &'static str,
    pub git_hash: &'static str,
    pub tenant: String,
    /// Null where none was asked for and the tenant may have several: then the rows say whose they are.
    pub plan: Option<String>,
    pub model: Option<String>,
    pub limits: Vec<ExplainedLimit>,
    /// Reservations of this model that are not settled yet, among the tenant's 1,000 oldest.
    pub open_holds: u64,
    /// Tokens held by them.
    pub open_tokens: u64,
    /// Reservations of this tenant that are not settled yet, whatever the model.
    pub all_open_holds: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ExplainedLimit {
    pub name: String,
    pub scope: BTreeMap<String, String>,
    /// To whose requests it applies like this.
    pub plans: Vec<String>,
    pub metric: Metric,
    /// `fixed_window`, `calendar`, `sliding_window`, `token_bucket`, `concurrency` or `balance`.
    pub algorithm: &'static str,
    /// Of a balance what was granted.
    pub limit: u64,
    /// As it is stored, above the limit too. Of a token bucket what is missing until it is full; of concurrency the
    /// requests under way.
    pub used: u64,
    pub remaining: u64,
    /// The part of `used` that open holds take; null for requests, which stay counted.
    pub held: Option<u64>,
    /// Until all of it is free again if nothing else comes: the end of the window, a full bucket, the last lease. 0
    /// where time does not help.
    pub reset_ms: u64,
    /// 0 for algorithms without a window.
    pub window_ms: u64,
    /// Counted and reported, and never refuses.
    pub shadow: bool,
    /// Until when an override sets `limit`, milliseconds since the Unix epoch; null where the policy does.
    pub override_until: Option<u64>,
}

#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    #[error("no caller can be this tenant")]
    UnknownTenant,
    #[error("the policy has no such model")]
    UnknownModel,
    #[error("the tenant cannot have this plan; its plans: {0}")]
    UnknownPlan(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Whom and what to explain. Only the tenant is needed where the answer is one.
#[derive(Clone, Debug, Default)]
pub struct Asked<'a> {
    pub tenant: &'a str,
    /// Absent: endpoints without one.
    pub model: Option<&'a str>,
    /// Absent: the keys' own, or all that the tenant may have where those are several.
    pub plan: Option<&'a str>,
    /// Absent: limits per user have one row for each key, as callers without a user have.
    pub user: Option<&'a str>,
    pub endpoint: Option<&'a str>,
    pub ip: Option<&'a str>,
}

impl Quota {
    /// The limits that apply, and how they stand. A limit per key has one row for each key.
    pub async fn explain(&self, asked: &Asked<'_>) -> Result<Explanation, ExplainError> {
        let policy = self.policy();
        let keys = policy.keys_of(asked.tenant);
        if policy.keys.plans_of(asked.tenant, &policy.plans).is_empty() {
            return Err(ExplainError::UnknownTenant);
        }
        let model = match asked.model {
            None => None,
            // The canonical name first: it need not be a name that clients use.
            Some(name) => Some(
                policy
                    .models
                    .iter()
                    .find(|model| model.name == name)
                    .or_else(|| policy.model(name).map(|(_, model)| model))
                    .ok_or(ExplainError::UnknownModel)?
                    .name
                    .as_str(),
            ),
        };
        let identity =
            |plan| Identity { tenant: asked.tenant.to_owned(), plan, user: asked.user.map(str::to_owned) };
        let identities: Vec<_> = plans_asked(&policy, asked, &keys)?.into_iter().map(identity).collect();
        let (now_ms, overrides) = (self.clock.now_ms(), self.overrides.load_full());
        let applying = |subject: &Subject<'_>| {
            let all = applying(&policy, &overrides, subject, now_ms);
            all.map(|Applying { limit, amount, .. }| (limit, amount)).collect()
        };
        let of_plan = |identity| rows(&policy, asked, identity, &keys, model, applying);
        let (rows, meters) = merged(identities.iter().flat_map(of_plan), now_ms);
        let account = Tag::account(asked.tenant);
        let state = self.store.explain(account, Tag::model(model), &meters, STORE_TIME).await?;
        let explained = |(row, gauge): (&Row<'_>, &Gauge)| ExplainedLimit {
            name: row.limit.name.clone(),
            scope: row.subject.scope(row.limit),
            plans: row.plans.iter().map(|plan| (*plan).to_owned()).collect(),
            metric: row.limit.count.metric(),
            algorithm: row.limit.shape.name(),
            limit: match row.limit.shape {
                Shape::Balance => gauge.granted(),
                _ => row.amount,
            },
            used: gauge.used,
            remaining: gauge.left(),
            held: (row.limit.count.metric() != Metric::Requests).then_some(gauge.held),
            reset_ms: gauge.reset_ms,
            window_ms: row.limit.shape.window_ms().unwrap_or(0),
            shadow: !row.limit.enforces(),
            override_until: overrides
                .find(asked.tenant, &row.limit.name, now_ms)
                .map(|one| one.until)
                .filter(|_| !row.limit.is_shared()),
        };
        Ok(Explanation {
            policy_version: policy.version.clone(),
            version: VERSION,
            git_hash: GIT_HASH,
            tenant: asked.tenant.to_owned(),
            plan: match identities.as_slice() {
                [identity] => Some(identity.plan.clone()),
                _ => None,
            },
            model: model.map(str::to_owned),
            limits: rows.iter().zip(&state.gauges).map(explained).collect(),
            open_holds: state.open_holds,
            open_tokens: state.open_tokens,
            all_open_holds: state.all_open_holds,
        })
    }
}

fn rows<'a>(
    policy: &'a Policy,
    asked: &Asked<'a>,
    identity: &'a Identity,
    keys: &[(&'a str, &'a Caller)],
    model: Option<&'a str>,
    applying: impl Fn(&Subject<'_>) -> Vec<(&'a Limit, u64)>,
) -> Vec<Row<'a>> {
    let of_plan =
        |(_, caller): &&(&str, &Caller)| caller.plan == identity.plan || caller.asserts.plan.is_some();
    let keys: Vec<_> = keys.iter().filter(of_plan).map(|(key, _)| Some(*key)).collect();
    let keys = if keys.is_empty() { vec![None] } else { keys };
    let subject = |key| Subject {
        policy,
        identity,
        key,
        model,
        endpoint: asked.endpoint.unwrap_or(DEFAULT_ENDPOINT),
        ip: asked.ip,
    };
    let row = |limit, amount, subject| Row { limit, amount, subject, plans: vec![identity.plan.as_str()] };
    let one = subject(None);
    let rows_of = |(limit, amount): (&'a Limit, u64)| {
        let by_user = limit.per.contains(&Dimension::User) && identity.user.is_none();
        let by_key = by_user || limit.per.contains(&Dimension::Key);
        let keys = if by_key { keys.as_slice() } else { &[None] };
        keys.iter().map(|key| row(limit, amount, subject(*key))).collect::<Vec<_>>()
    };
    applying(&one).into_iter().flat_map(rows_of).collect()
}

/// The rows in the order of the policy, with their meters. What is the same for several plans is one row.
fn merged<'a>(all: impl Iterator<Item = Row<'a>>, now_ms: u64) -> (Vec<Row<'a>>, Vec<Meter>) {
    let mut rows: Vec<(Row<'a>, Meter)> = Vec::new();
    let mut known: HashMap<_, usize> = HashMap::new();
    for row in all {
        let meter = meter(row.limit, row.amount, &row.subject, now_ms);
        match known.entry((meter.bucket, meter.limit)) {
            Entry::Occupied(at) => {
                if let Some((same, _)) = rows.get_mut(*at.get()) {
                    same.plans.extend(row.plans);
                }
            }
            Entry::Vacant(place) => {
                place.insert(rows.len());
                rows.push((row, meter));
            }
        }
    }
    rows.sort_by_key(|(row, _)| (row.limit.at.line, row.limit.at.column));
    rows.into_iter().unzip()
}

fn plans_asked(
    policy: &Policy,
    asked: &Asked<'_>,
    keys: &[(&str, &Caller)],
) -> Result<Vec<String>, ExplainError> {
    let of_tenant = policy.keys.plans_of(asked.tenant, &policy.plans);
    let plans: BTreeSet<&str> = match keys {
        [] => of_tenant.iter().map(|plan| plan.as_str()).collect(),
        keys => keys.iter().map(|(_, caller)| caller.plan.as_str()).collect(),
    };
    let all: Vec<_> = of_tenant.into_iter().cloned().collect();
    match (asked.plan, plans.first()) {
        (Some(plan), _) if all.iter().any(|one| one == plan) => Ok(vec![plan.to_owned()]),
        (Some(_), _) => Err(ExplainError::UnknownPlan(all.join(", "))),
        (None, Some(plan)) if plans.len() == 1 => Ok(vec![(*plan).to_owned()]),
        (None, _) => Ok(all),
    }
}

struct Row<'a> {
    limit: &'a Limit,
    amount: u64,
    subject: Subject<'a>,
    plans: Vec<&'a str>,
}

/// What a limit per endpoint is explained for unless another one is named.
const DEFAULT_ENDPOINT: &str = "chat.completions";
