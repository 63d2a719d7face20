use serde::{Deserialize, Serialize};

use crate::{ReservationId, ReserveRequest, whole};

/// One entry of the array that is the body of `POST /v1/settle`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SettleItem {
    pub id: ReservationId,
    /// The tag of the reserve's answer; absent when that answer was never seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    pub outcome: Outcome,
    /// Something was sent to the provider, so that the request itself stays counted.
    pub sent: bool,
    /// Present with `used` and `estimated`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// The model that the answer names, normalised; absent when it names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The answer's `service_tier`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_tier: Option<String>,
    /// Since the reserve was sent.
    #[serde(deserialize_with = "whole::number")]
    pub age_ms: u64,
    /// Since the item was queued.
    #[serde(deserialize_with = "whole::number")]
    pub queued_ms: u64,
    /// The reserve's body, whenever its answer was never seen or was `degraded`: lets usage without a hold be booked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserve: Option<ReserveRequest>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// `usage` is the provider's report.
    Used,
    /// `usage` is the filter's own count.
    Estimated,
    /// Nothing is known: what was held is charged.
    Held,
    /// Nothing is owed. The request itself is given back only when nothing was sent.
    Released,
}

/// Token classes are disjoint: `input` is without cache, `output` is without reasoning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Usage {
    #[serde(default, deserialize_with = "whole::number")]
    pub input: u64,
    #[serde(default, deserialize_with = "whole::number")]
    pub cache_read: u64,
    #[serde(default, deserialize_with = "whole::number")]
    pub cache_write: u64,
    #[serde(default, deserialize_with = "whole::number")]
    pub output: u64,
    #[serde(default, deserialize_with = "whole::number")]
    pub reasoning: u64,
}

impl Usage {
    /// Sum of all classes.
    pub fn total(&self) -> u64 {
        self.input
            .saturating_add(self.cache_read)
            .saturating_add(self.cache_write)
            .saturating_add(self.output)
            .saturating_add(self.reasoning)
    }
}

/// Answer of `POST /v1/settle`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SettleResponse {
    /// One per item, in the same order.
    pub results: Vec<SettleResult>,
    pub policy_version: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SettleResult {
    pub id: ReservationId,
    pub status: SettleStatus,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SettleStatus {
    /// The hold was replaced.
    Settled,
    /// An earlier settle of this id was there; nothing changed.
    AlreadySettled,
    /// There was no hold; the usage was charged to the current windows.
    Booked,
    /// Older than a booking may be; nothing changed.
    Late,
    /// No such reservation. A later reserve of this id will be answered `gone`.
    Unknown,
}
