//! Which bucket an operator means.

use schemars::JsonSchema;
use serde::Deserialize;

use super::OperateError;
use crate::policy::{Dimension, Identity, Limit, Policy, Shape};
use crate::store::Meter;
use crate::subject::{Subject, is_address};
use crate::tag::Tag;

/// The bucket of one limit, named by what the limit counts per.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BucketName {
    pub tenant: String,
    /// Name of the limit.
    pub limit: String,
    /// Needed only where the tenant may have several plans and the bucket is another one for each: the limit counts per
    /// plan, or is a token bucket whose capacity they set.
    pub plan: Option<String>,
    /// Where the limit counts per user; a caller without a user is its `key`.
    pub user: Option<String>,
    /// Where the limit counts per key: the hash as the policy lists it, or its first 8 digits.
    pub key: Option<String>,
    /// Where the limit counts per model: the policy's name, or `-` for requests without a model.
    pub model: Option<String>,
    /// Where the limit counts per endpoint.
    pub endpoint: Option<String>,
    /// Where the limit counts per address.
    pub ip: Option<String>,
}

/// A bucket that was found.
pub struct Target<'p> {
    pub account: Tag,
    pub limit: &'p Limit,
    pub meter: Meter,
}

impl BucketName {
    /// `amount_of` says what the limit admits to a plan and a tenant. Without a plan, the least of what it admits to the
    /// tenant's plans is taken.
    pub fn find<'p>(
        &self,
        policy: &'p Policy,
        now_ms: u64,
        amount_of: impl Fn(&Limit, &str) -> Option<u64>,
    ) -> Result<Target<'p>, OperateError> {
        let limit = limit_named(policy, &self.limit)?;
        let plans = self.plans(policy)?;
        let needs = |dimension: Dimension, value: &Option<String>| {
            let name = dimension.name();
            let message = match (limit.per.contains(&dimension), value) {
                (true, None) => format!("is missing: the limit counts per {name}"),
                // What is named must not be taken for more than it is: the whole tenant's bucket for a user's.
                (false, Some(_)) => format!("is too much: the limit does not count per {name}"),
                _ => return Ok(()),
            };
            Err(OperateError::bad(format!("bucket.{name}"), message))
        };
        needs(Dimension::Model, &self.model)?;
        needs(Dimension::Endpoint, &self.endpoint)?;
        needs(Dimension::Ip, &self.ip)?;
        let by_user = limit.per.contains(&Dimension::User);
        // A caller without a user is its key.
        if !by_user || limit.per.contains(&Dimension::Key) {
            needs(Dimension::Key, &self.key)?;
        }
        if !by_user || self.key.is_none() {
            needs(Dimension::User, &self.user)?;
        }
        let model = match self.model.as_deref() {
            None | Some("-") => None,
            Some(name) if policy.models.iter().any(|model| model.name == name) => Some(name),
            Some(_) => return Err(OperateError::missing("bucket.model", "the policy has no such model")),
        };
        if self.ip.as_deref().is_some_and(|ip| !is_address(ip)) {
            return Err(OperateError::bad("bucket.ip", "must be an address without a port"));
        }
        let key = self.key.as_deref().map(|key| self.key_of_tenant(policy, key)).transpose()?;
        let (plan, amount) = self.one_plan(limit, plans, amount_of)?;
        let identity = Identity { tenant: self.tenant.clone(), plan, user: self.user.clone() };
        let endpoint = self.endpoint.as_deref().unwrap_or_default();
        let ip = self.ip.as_deref();
        let subject = Subject { policy, identity: &identity, key, model, endpoint, ip };
        let meter = crate::request_plan::meter(limit, amount, &subject, now_ms);
        Ok(Target { account: Tag::account(&self.tenant), limit, meter })
    }

    /// The plan that is named, or all that the tenant may have.
    fn plans(&self, policy: &Policy) -> Result<Vec<String>, OperateError> {
        let plans = plans_of(policy, &self.tenant)?;
        match &self.plan {
            None => Ok(plans),
            Some(plan) if plans.contains(plan) => Ok(vec![plan.clone()]),
            Some(_) => Err(OperateError::missing("bucket.plan", "the tenant cannot have this plan")),
        }
    }

    /// One of the plans that the limit applies to, where all of them have the same bucket.
    fn one_plan(
        &self,
        limit: &Limit,
        plans: Vec<String>,
        amount_of: impl Fn(&Limit, &str) -> Option<u64>,
    ) -> Result<(String, u64), OperateError> {
        let applies = |plan: String| amount_of(limit, &plan).map(|amount| (plan, amount));
        let plans: Vec<_> = plans.into_iter().filter_map(applies).collect();
        let least = plans.iter().map(|(_, amount)| *amount).min();
        let differ = plans.iter().any(|(_, amount)| Some(*amount) != least);
        let needed = if plans.len() > 1 && limit.per.contains(&Dimension::Plan) {
            Some("is missing: the limit counts per plan, and the tenant may have several")
        } else if differ && matches!(limit.shape, Shape::TokenBucket { .. }) {
            Some("is missing: the tenant may have several plans, which set the bucket's capacity")
        } else {
            None
        };
        match needed {
            Some(message) => Err(OperateError::bad("bucket.plan", message)),
            None => plans
                .into_iter()
                .min_by_key(|(_, amount)| *amount)
                .ok_or_else(|| OperateError::missing("bucket.limit", "does not apply to this tenant's plan")),
        }
    }

    fn key_of_tenant<'p>(&self, policy: &'p Policy, wanted: &str) -> Result<&'p str, OperateError> {
        let keys = policy.keys_of(&self.tenant);
        let found: Vec<_> = keys.iter().filter(|(hash, _)| hash.starts_with(wanted)).collect();
        match found.as_slice() {
            [(hash, _)] if wanted.len() >= 8 => Ok(hash),
            _ => {
                let message = "must be 8 or more digits of the hash of one key of the tenant";
                Err(OperateError::missing("bucket.key", message))
            }
        }
    }
}

/// The plans that callers of a tenant can have.
pub fn plans_of(policy: &Policy, tenant: &str) -> Result<Vec<String>, OperateError> {
    let plans: Vec<_> = policy.keys.plans_of(tenant, &policy.plans).into_iter().cloned().collect();
    if plans.is_empty() {
        return Err(OperateError::missing("tenant", "no caller can be this tenant"));
    }
    Ok(plans)
}

pub fn limit_named<'p>(policy: &'p Policy, name: &str) -> Result<&'p Limit, OperateError> {
    let found = policy.limits.iter().find(|limit| limit.name == name);
    found.ok_or_else(|| OperateError::missing("limit", "the policy has no such limit"))
}
