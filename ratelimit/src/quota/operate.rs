//! What operators change by hand. Each change is one line of the log with the target `audit`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokengate_api::whole;
use tracing::info;

use super::amount::amount;
use super::target::{BucketName, Target};
use super::{Quota, STORE_TIME};
use crate::limits::{Account, Algorithm};
use crate::store::{Amended, Amendment, Change, Correction, StoreError, TopUp, ToppedUp};
use crate::subject::amount_for;
use crate::tag::Tag;

/// The longest id that an operator may choose, in characters.
pub const LONGEST_ID: usize = 128;

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
    /// Chosen by the caller, 1 to 128 characters; the same grant counts once, for good.
    pub grant_id: String,
    /// In what the limit counts.
    #[serde(default, deserialize_with = "whole::optional")]
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
    /// Chosen by the caller, 1 to 128 characters; the same correction of a tenant counts once within 30 days.
    pub id: String,
    pub change: CorrectionChange,
    /// In what the limit counts.
    #[serde(default, deserialize_with = "whole::optional")]
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
    let plain = !id.is_empty() && id.chars().count() <= LONGEST_ID && !id.chars().any(char::is_control);
    if plain { Ok(()) } else { Err(OperateError::bad(field, "must be 1 to 128 characters of plain text")) }
}
