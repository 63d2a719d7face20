//! Amounts for one tenant until some time.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokengate_api::whole;
use tracing::info;

use super::amount::amount;
use super::target::{limit_named, plans_of};
use super::{OperateError, Quota, STORE_TIME};
use crate::limits::{Algorithm, MAX_AMOUNT};
use crate::overrides::{Override, Overrides};
use crate::policy::Limit;
use crate::store::StoreError;

/// The longest that an override can be set for.
pub const LONGEST_MS: u64 = 366 * 86_400_000;
/// The most that can be in force at once.
const MOST: usize = 1_000;

/// Sets what a limit admits to one tenant for a while.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OverrideRequest {
    pub tenant: String,
    /// Name of the limit.
    pub limit: String,
    /// In what the limit counts; 0 admits nothing.
    #[serde(default, deserialize_with = "whole::optional")]
    pub amount: Option<u64>,
    /// Where it counts cost: dollars, as `"25.00"`; `"0"` admits nothing.
    pub usd: Option<String>,
    /// From now on, in milliseconds, at most 366 days.
    #[serde(deserialize_with = "whole::number")]
    pub for_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct OverridesAnswer {
    /// Those in force.
    pub overrides: Vec<Override>,
}

impl Quota {
    /// Reads the overrides again.
    pub async fn refresh_overrides(&self) -> Result<(), StoreError> {
        let notes = self.store.notes(STORE_TIME).await?;
        self.overrides.store(Overrides::read(&notes).into());
        Ok(())
    }

    /// Those in force, as the store has them now.
    pub async fn list_overrides(&self) -> Result<OverridesAnswer, OperateError> {
        self.refresh_overrides().await?;
        let overrides = self.overrides.load();
        Ok(OverridesAnswer { overrides: overrides.in_force(self.clock.now_ms()).cloned().collect() })
    }

    /// Sets an override in the place of an earlier one. This instance follows it at once, others within 5 s.
    pub async fn set_override(&self, request: &OverrideRequest) -> Result<Override, OperateError> {
        let policy = self.policy();
        let plans = plans_of(&policy, &request.tenant)?;
        let limit = limit_named(&policy, &request.limit)?;
        if limit.is_shared() {
            return Err(OperateError::bad("limit", "is shared by all tenants: one cannot have its own"));
        }
        if !plans.iter().any(|plan| limit.amount_for(plan, &request.tenant).is_some()) {
            return Err(OperateError::bad("limit", "does not apply to this tenant"));
        }
        let amount = amount(limit.count, request.amount, request.usd.as_deref(), 0)?;
        check_countable(limit, amount)?;
        if !(1..=LONGEST_MS).contains(&request.for_ms) {
            return Err(OperateError::bad("for_ms", "must be at least 1 and at most 366 days"));
        }
        self.refresh_overrides().await?;
        let now_ms = self.clock.now_ms();
        let before = self.overrides.load_full();
        let name = Override::name(&request.tenant, &request.limit);
        let others = before.in_force(now_ms).filter(|one| Override::name(&one.tenant, &one.limit) != name);
        if others.count() >= MOST {
            return Err(OperateError::bad("", "1000 overrides are in force: put them into the policy"));
        }
        let set = Override {
            tenant: request.tenant.clone(),
            limit: request.limit.clone(),
            amount,
            until: now_ms.saturating_add(request.for_ms),
        };
        let text = serde_json::to_string(&set).map_err(|_| StoreError::Format)?;
        self.store.note(name, Some(&text), STORE_TIME).await?;
        self.forget_overrides(&before, now_ms).await?;
        self.refresh_overrides().await?;
        let Override { tenant, limit, amount, until } = &set;
        info!(target: "audit", tenant, limit, amount, until, "override set");
        Ok(set)
    }

    /// Removes what ended long ago, unless it was renewed since it was read.
    pub(super) async fn forget_overrides(&self, read: &Overrides, now_ms: u64) -> Result<(), StoreError> {
        for (name, note) in read.forgotten(now_ms) {
            self.store.forget_note(name, note, STORE_TIME).await?;
        }
        Ok(())
    }

    /// Ends an override before its time.
    pub async fn remove_override(&self, tenant: &str, limit: &str) -> Result<OverridesAnswer, OperateError> {
        self.refresh_overrides().await?;
        if self.overrides.load().find(tenant, limit, self.clock.now_ms()).is_none() {
            return Err(OperateError::missing("limit", "this tenant has no override of this limit"));
        }
        self.store.note(Override::name(tenant, limit), None, STORE_TIME).await?;
        info!(target: "audit", tenant, limit, "override removed");
        self.list_overrides().await
    }
}

/// As the policy is checked.
fn check_countable(limit: &Limit, amount: u64) -> Result<(), OperateError> {
    match limit.algorithm_at(0) {
        Algorithm::Balance => Err(OperateError::bad("limit", "is a balance, which is topped up instead")),
        Algorithm::TokenBucket { den, .. } if amount.checked_mul(den).is_none_or(|all| all > MAX_AMOUNT) => {
            Err(OperateError::bad("amount", "is too large to be counted exactly beside this refill"))
        }
        _ => Ok(()),
    }
}
