//! Which bucket an operator means.

use schemars::JsonSchema;
use serde::Deserialize;

use super::OperateError;
use crate::policy::{Dimension, Identity, Limit, Policy};
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
    /// Needed when the tenant may have several plans.
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
    /// `amount_of` says what the limit admits to a plan and a tenant.
    pub fn find<'p>(
        &self,
        policy: &'p Policy,
        now_ms: u64,
        amount_of: impl Fn(&Limit, &str) -> Option<u64>,
    ) -> Result<Target<'p>, OperateError> {
        let limit = limit_named(policy, &self.limit)?;
        let plan = self.plan(policy)?;
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
        let identity = Identity { tenant: self.tenant.clone(), plan, user: self.user.clone() };
        let endpoint = self.endpoint.as_deref().unwrap_or_default();
        let ip = self.ip.as_deref();
        let subject = Subject { policy, identity: &identity, key, model, endpoint, ip };
        let Some(amount) = amount_of(limit, &identity.plan) else {
            return Err(OperateError::missing("bucket.limit", "does not apply to this tenant's plan"));
        };
        let meter = crate::request_plan::meter(limit, amount, &subject, now_ms);
        Ok(Target { account: Tag::account(&self.tenant), limit, meter })
    }

    fn plan(&self, policy: &Policy) -> Result<String, OperateError> {
        let plans = plans_of(policy, &self.tenant)?;
        match (&self.plan, plans.as_slice()) {
            (Some(plan), _) if plans.contains(plan) => Ok(plan.clone()),
            (Some(_), _) => Err(OperateError::missing("bucket.plan", "the tenant cannot have this plan")),
            (None, [plan]) => Ok(plan.clone()),
            (None, _) => {
                Err(OperateError::bad("bucket.plan", "is missing: the tenant may have several plans"))
            }
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
