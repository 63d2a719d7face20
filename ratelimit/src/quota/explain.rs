use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;
use tokengate_api::Metric;

use super::{Quota, STORE_TIME};
use crate::policy::{Caller, Dimension, Policy};
use crate::request_plan::{Subject, applying};
use crate::store::StoreError;
use crate::tag::Tag;
use crate::{GIT_HASH, VERSION};

/// How a tenant stands with a model, for operators.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Explanation {
    pub policy_version: String,
    pub version: &'static str,
    pub git_hash: &'static str,
    pub tenant: String,
    pub plan: String,
    pub model: Option<String>,
    pub limits: Vec<ExplainedLimit>,
    /// Reservations of this tenant and model that are not settled yet.
    pub open_holds: u64,
    /// Tokens held by them.
    pub open_tokens: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ExplainedLimit {
    pub name: String,
    pub scope: BTreeMap<String, String>,
    pub metric: Metric,
    pub limit: u64,
    /// As it is stored, above the limit too.
    pub used: u64,
    pub remaining: u64,
    pub reset_ms: u64,
    pub window_ms: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    #[error("no key belongs to this tenant")]
    UnknownTenant,
    #[error("the policy has no such model")]
    UnknownModel,
    #[error("the tenant has no key with this plan; its plans: {0}")]
    UnknownPlan(String),
    #[error("the tenant has keys of several plans, name one of: {0}")]
    PlanNeeded(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Quota {
    /// The limits that apply to a tenant, a model (none: endpoints without one) and a plan (may be left out
    /// when the tenant has one only). A limit per key has one row for each key.
    pub async fn explain(
        &self,
        tenant: &str,
        model: Option<&str>,
        plan: Option<&str>,
    ) -> Result<Explanation, ExplainError> {
        let policy = self.policy();
        let keys = policy.keys_of(tenant);
        if keys.is_empty() {
            return Err(ExplainError::UnknownTenant);
        }
        let model = match model {
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
        let plan = one_plan(&keys, plan)?;
        let rows = rows(&policy, &keys, &plan, model);
        let buckets: Vec<_> =
            rows.iter().map(|row| (row.subject.bucket(row.limit), row.limit.window_ms)).collect();
        let state = self.store.explain(Tag::account(tenant), Tag::model(model), &buckets, STORE_TIME).await?;
        let explained = |(row, window): (&Row<'_>, &crate::limits::fixed_window::Window)| ExplainedLimit {
            name: row.limit.name.clone(),
            scope: row.subject.scope(row.limit),
            metric: row.limit.count,
            limit: row.amount,
            used: window.used,
            remaining: row.amount.saturating_sub(window.used),
            reset_ms: if window.used == 0 { 0 } else { window.left_ms(state.now_ms, row.limit.window_ms) },
            window_ms: row.limit.window_ms,
        };
        Ok(Explanation {
            policy_version: policy.version.clone(),
            version: VERSION,
            git_hash: GIT_HASH,
            tenant: tenant.to_owned(),
            plan,
            model: model.map(str::to_owned),
            limits: rows.iter().zip(&state.windows).map(explained).collect(),
            open_holds: state.open_holds,
            open_tokens: state.open_tokens,
        })
    }
}

fn rows<'a>(
    policy: &'a Policy,
    keys: &[(&'a str, &'a Caller)],
    plan: &str,
    model: Option<&'a str>,
) -> Vec<Row<'a>> {
    let subjects: Vec<_> = keys
        .iter()
        .filter(|(_, caller)| caller.plan == plan)
        .map(|(key_hash, caller)| Subject { caller, key_hash, model })
        .collect();
    let Some(first) = subjects.first() else { return Vec::new() };
    let rows_of = |(limit, amount): (&'a crate::policy::Limit, u64)| {
        let per_key = limit.per.contains(&Dimension::Key);
        let subjects = if per_key { subjects.as_slice() } else { std::slice::from_ref(first) };
        subjects.iter().map(|subject| Row { limit, amount, subject: *subject }).collect::<Vec<_>>()
    };
    applying(policy, first).flat_map(rows_of).collect()
}

struct Row<'a> {
    limit: &'a crate::policy::Limit,
    amount: u64,
    subject: Subject<'a>,
}

fn one_plan(keys: &[(&str, &Caller)], wanted: Option<&str>) -> Result<String, ExplainError> {
    let plans: BTreeSet<&str> = keys.iter().map(|(_, caller)| caller.plan.as_str()).collect();
    let listed = || plans.iter().copied().collect::<Vec<_>>().join(", ");
    match (wanted, plans.first()) {
        (Some(plan), _) if plans.contains(plan) => Ok(plan.to_owned()),
        (Some(_), _) => Err(ExplainError::UnknownPlan(listed())),
        (None, Some(plan)) if plans.len() == 1 => Ok((*plan).to_owned()),
        (None, _) => Err(ExplainError::PlanNeeded(listed())),
    }
}
