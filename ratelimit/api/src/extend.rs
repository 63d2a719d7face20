use serde::{Deserialize, Serialize};

use crate::{ReservationId, whole};

/// One entry of the array that is the body of `POST /v1/extend`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExtendItem {
    pub id: ReservationId,
    /// The tag of the reserve's answer.
    pub account: String,
    /// The total of all choices that is to be held, so that a repeat changes nothing; absent to leave it.
    #[serde(default, deserialize_with = "whole::optional", skip_serializing_if = "Option::is_none")]
    pub hold_output_tokens: Option<u64>,
    /// Renew the lease of the reservation's slots.
    #[serde(default)]
    pub lease: bool,
}

/// Answer of `POST /v1/extend`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExtendResponse {
    /// One per item, in the same order.
    pub results: Vec<ExtendResult>,
    pub policy_version: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExtendResult {
    pub id: ReservationId,
    pub status: ExtendStatus,
    /// Output tokens held in all, after an `allow`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_output_tokens: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ExtendStatus {
    Allow,
    /// It does not fit, or what is held cannot be read; nothing changed.
    Deny,
    /// There is no such open reservation.
    Unknown,
}
