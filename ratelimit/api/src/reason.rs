use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a reserve was denied: the `code` of the answer the caller gets.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(from = "String", into = "String")]
pub enum Reason {
    /// A request limit of any window that is not a billing period.
    RpmLimitExceeded,
    /// A token limit of any window that is not a billing period.
    TpmLimitExceeded,
    /// Too many requests are under way.
    ConcurrencyLimitExceeded,
    /// The tokens or requests of a billing period, or a prepaid balance of them, are used up.
    QuotaExceeded,
    /// The money of a billing period, or a prepaid balance, is used up.
    BudgetExceeded,
    /// The amount is above the whole limit: waiting does not help.
    RequestExceedsLimit,
    UnknownKey,
    /// What was said of the caller cannot be: a user, tenant or plan that the policy does not allow.
    InvalidIdentity,
    ModelNotFound,
    ModelNotAllowed,
    /// So many models may answer that more limits apply than one request can be held by.
    TooManyModels,
    /// The store gave no answer and an enforcing limit is closed.
    QuotaUnavailable,
    /// A reason of a newer service.
    Other(String),
}

impl Reason {
    pub fn as_str(&self) -> &str {
        match self {
            Self::RpmLimitExceeded => "rpm_limit_exceeded",
            Self::TpmLimitExceeded => "tpm_limit_exceeded",
            Self::ConcurrencyLimitExceeded => "concurrency_limit_exceeded",
            Self::QuotaExceeded => "quota_exceeded",
            Self::BudgetExceeded => "budget_exceeded",
            Self::RequestExceedsLimit => "request_exceeds_limit",
            Self::UnknownKey => "unknown_key",
            Self::InvalidIdentity => "invalid_identity",
            Self::ModelNotFound => "model_not_found",
            Self::ModelNotAllowed => "model_not_allowed",
            Self::TooManyModels => "too_many_models",
            Self::QuotaUnavailable => "quota_unavailable",
            Self::Other(text) => text,
        }
    }
}

impl From<String> for Reason {
    fn from(text: String) -> Self {
        match text.as_str() {
            "rpm_limit_exceeded" => Self::RpmLimitExceeded,
            "tpm_limit_exceeded" => Self::TpmLimitExceeded,
            "concurrency_limit_exceeded" => Self::ConcurrencyLimitExceeded,
            "quota_exceeded" => Self::QuotaExceeded,
            "budget_exceeded" => Self::BudgetExceeded,
            "request_exceeds_limit" => Self::RequestExceedsLimit,
            "unknown_key" => Self::UnknownKey,
            "invalid_identity" => Self::InvalidIdentity,
            "model_not_found" => Self::ModelNotFound,
            "model_not_allowed" => Self::ModelNotAllowed,
            "too_many_models" => Self::TooManyModels,
            "quota_unavailable" => Self::QuotaUnavailable,
            _ => Self::Other(text),
        }
    }
}

impl From<Reason> for String {
    fn from(reason: Reason) -> String {
        match reason {
            Reason::Other(text) => text,
            known => known.as_str().to_owned(),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
