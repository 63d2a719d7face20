//! What is open, for operators.

use schemars::JsonSchema;
use serde::Serialize;

use super::target::plans_of;
use super::{OperateError, Quota, STORE_TIME};
use crate::tag::Tag;

/// The most holds that are listed at once.
pub const MOST_HOLDS: usize = 1_000;

/// The oldest reservations of a tenant that are not settled yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct HoldsAnswer {
    /// How many there are, also those that are not listed.
    pub total: u64,
    /// Oldest first.
    pub holds: Vec<HoldAnswer>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct HoldAnswer {
    pub id: String,
    /// Null for requests without a model, and for one that the policy in force does not have.
    pub model: Option<String>,
    /// Held in all.
    pub tokens: u64,
    pub age_ms: u64,
}

impl Quota {
    /// The oldest open holds of a tenant, at most so many.
    pub async fn holds(&self, tenant: &str, most: usize) -> Result<HoldsAnswer, OperateError> {
        let policy = self.policy();
        plans_of(&policy, tenant)?;
        let open = self.store.open_holds(Tag::account(tenant), most.min(MOST_HOLDS), STORE_TIME).await?;
        let now_ms = self.clock.now_ms();
        let named = |tag: Tag| policy.models.iter().find(|model| Tag::model(Some(&model.name)) == tag);
        let holds = open.oldest.into_iter().map(|hold| HoldAnswer {
            id: hold.id.to_string(),
            model: named(hold.model).map(|model| model.name.clone()),
            tokens: hold.tokens,
            age_ms: now_ms.saturating_sub(hold.reserved_at_ms),
        });
        Ok(HoldsAnswer { total: open.total, holds: holds.collect() })
    }
}
