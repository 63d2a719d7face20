//! What operators change by hand. Each change is one line of the log with the target `audit`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing::info;

use super::target::{BucketName, Target, plans_of};
use super::{Quota, STORE_TIME};
use crate::limits::{Account, Algorithm, MAX_AMOUNT};
use crate::policy::{Count, nano_dollars};
use crate::store::{Amended, Amendment, Change, Correction, StoreError, TopUp, ToppedUp};
use crate::subject::amount_for;
use crate::tag::Tag;

/// The most holds that are listed at once.
pub const MOST_HOLDS: usize = 1_000;
/// The longest id that an operator may choose, in bytes.
const LONGEST_ID: usize = 128;

/// Why an operator's change was not made.
#[derive(Debug, thiserror::Error)]
pub enum OperateError {
    /// The request cannot be understood; the field and what to do.
    #[error("{0}: {1}")]
    Bad(String, String),
    /// What a field names is not there.
    #[error("{0}: {1}")]
    Missing(String, String),
    /// The id was used for something else.
    #[error("{0}: {1}")]
    Conflict(String, String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl OperateError {
    pub fn bad(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Bad(field.into(), message.into())
    }

    pub fn missing(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Missing(field.into(), message.into())
    }
}

/// Adds to a prepaid balance.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TopUpRequest {
    pub bucket: BucketName,
    /// Chosen by the caller, 1 to 128 bytes; the same grant counts once, for good.
    pub grant_id: String,
    /// In what the limit counts.
    pub amount: Option<u64>,
    /// Where it counts cost: dollars, as `"25.00"`.
    pub usd: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TopUpAnswer {
    /// The same grant had been there before; nothing changed.
    pub already: bool,
    /// In all, in what the limit counts; nano-dollars where that is cost.
    pub granted: u64,
    pub spent: u64,
}

/// Forgets what was counted in a bucket.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResetRequest {
    pub bucket: BucketName,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ResetAnswer {
    /// There was something to forget.
    pub existed: bool,
}

/// Corrects what a bucket counts now, for a charge that can no longer be settled.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CorrectionRequest {
    pub bucket: BucketName,
    /// Chosen by the caller, 1 to 128 bytes; the same correction of a tenant counts once within 30 days.
    pub id: String,
    pub change: CorrectionChange,
    /// In what the limit counts.
    pub amount: Option<u64>,
    /// Where it counts cost: dollars, as `"0.25"`.
    pub usd: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CorrectionChange {
    /// Off what is counted in the current window, at most all of it.
    GiveBack,
    /// In full, above the limit too.
    Charge,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CorrectionAnswer {
    /// The same correction had been made before; nothing changed.
    pub already: bool,
    /// What is counted now.
    pub used: u64,
    pub remaining: u64,
}

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
    /// Adds to a balance, once for each grant.
    pub async fn top_up(&self, request: &TopUpRequest) -> Result<TopUpAnswer, OperateError> {
        let policy = self.policy();
        let Target { account, limit, meter } = self.target(&policy, &request.bucket)?;
        if meter.algorithm != Algorithm::Balance {
            return Err(OperateError::bad("bucket.limit", "is not a balance: only balances are topped up"));
        }
        check_id("grant_id", &request.grant_id)?;
        let amount = amount(limit.count, request.amount, request.usd.as_deref(), 1)?;
        let grant_id = request.grant_id.clone();
        let top_up = TopUp { account, bucket: meter.bucket, grant_id, amount };
        let (already, Account { granted, spent }) = match self.store.top_up(&top_up, STORE_TIME).await? {
            ToppedUp::Done(account) => (false, account),
            ToppedUp::Already(account) => (true, account),
            ToppedUp::Conflict => return Err(conflict("grant_id", "was used for another amount")),
            ToppedUp::TooMuch => {
                return Err(OperateError::bad("amount", "more would be granted in all than can be counted"));
            }
        };
        let BucketName { tenant, limit, .. } = &request.bucket;
        let grant_id = &request.grant_id;
        info!(target: "audit", tenant, limit, grant_id, amount, already, "balance topped up");
        Ok(TopUpAnswer { already, granted, spent })
    }

    /// Forgets a bucket. Not for balances, whose grants would be lost.
    pub async fn reset(&self, request: &ResetRequest) -> Result<ResetAnswer, OperateError> {
        let policy = self.policy();
        let Target { account, meter, .. } = self.target(&policy, &request.bucket)?;
        if meter.algorithm == Algorithm::Balance {
            let message = "is a balance, whose grants a reset would lose: correct it instead";
            return Err(OperateError::bad("bucket.limit", message));
        }
        let existed = self.store.reset(account, meter.bucket, STORE_TIME).await?;
        let BucketName { tenant, limit, .. } = &request.bucket;
        info!(target: "audit", tenant, limit, existed, "bucket reset");
        Ok(ResetAnswer { existed })
    }

    /// Corrects a bucket, once for each id.
    pub async fn correct(&self, request: &CorrectionRequest) -> Result<CorrectionAnswer, OperateError> {
        let policy = self.policy();
        let Target { account, limit, meter } = self.target(&policy, &request.bucket)?;
        if matches!(meter.algorithm, Algorithm::Concurrency { .. }) {
            let message = "counts requests under way, which have no amounts: reset it instead";
            return Err(OperateError::bad("bucket.limit", message));
        }
        check_id("id", &request.id)?;
        let amount = amount(limit.count, request.amount, request.usd.as_deref(), 1)?;
        let change = match request.change {
            CorrectionChange::GiveBack => Change::GiveBack { amount },
            CorrectionChange::Charge => Change::Excess { amount },
        };
        let amendment = Amendment {
            account,
            id: Tag::of("correction", [Some(request.id.as_str())]),
            correction: Correction { meter, change },
        };
        let already = match self.store.amend(&amendment, STORE_TIME).await? {
            Amended::Done => false,
            Amended::Already => true,
            Amended::Conflict => return Err(conflict("id", "was used for another bucket or amount")),
        };
        let BucketName { tenant, limit, .. } = &request.bucket;
        let (id, change) = (&request.id, request.change);
        info!(target: "audit", tenant, limit, id, ?change, amount, already, "bucket corrected");
        let state = self.store.explain(account, Tag::model(None), &[meter], STORE_TIME).await?;
        let gauge = state.gauges.first().ok_or(StoreError::Format)?;
        Ok(CorrectionAnswer { already, used: gauge.used, remaining: gauge.left() })
    }

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

    fn target<'p>(
        &self,
        policy: &'p crate::policy::Policy,
        bucket: &BucketName,
    ) -> Result<Target<'p>, OperateError> {
        let now_ms = self.clock.now_ms();
        let overrides = self.overrides.load();
        bucket.find(policy, now_ms, |limit, plan| amount_for(limit, &overrides, plan, &bucket.tenant, now_ms))
    }
}

fn conflict(field: &str, message: &str) -> OperateError {
    OperateError::Conflict(field.to_owned(), message.to_owned())
}

fn check_id(field: &str, id: &str) -> Result<(), OperateError> {
    let plain = !id.is_empty() && id.len() <= LONGEST_ID && !id.chars().any(char::is_control);
    if plain { Ok(()) } else { Err(OperateError::bad(field, "must be 1 to 128 bytes of plain text")) }
}

/// Money where cost is counted, else a whole number; at least `least`.
pub(super) fn amount(
    count: Count,
    amount: Option<u64>,
    usd: Option<&str>,
    least: u64,
) -> Result<u64, OperateError> {
    let wrong = |field: &str, message: &str| Err(OperateError::bad(field, message));
    let countable = |amount: &u64| (least..=MAX_AMOUNT).contains(amount);
    match (count, amount, usd) {
        (_, Some(_), Some(_)) => wrong("usd", "takes the place of amount; give one of them"),
        (Count::Cost, None, Some(usd)) => match nano_dollars(usd).filter(countable) {
            Some(amount) => Ok(amount),
            None => {
                let above = if least > 0 { "above 0, " } else { "" };
                let message = format!(
                    "must be a number like \"25.00\" with at most 9 decimals, {above}at most 4503599.627370496"
                );
                wrong("usd", &message)
            }
        },
        (Count::Cost, ..) => wrong("usd", "is missing: the limit counts cost"),
        (_, None, Some(_)) => wrong("usd", "the limit does not count cost: give amount"),
        (_, Some(amount), None) if countable(&amount) => Ok(amount),
        (_, Some(_), None) => wrong("amount", &format!("must be at least {least} and at most 2^52")),
        (_, None, None) => wrong("amount", "is missing"),
    }
}
