use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Reason, ReservationId, whole};

/// Body of `POST /v1/reserve`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReserveRequest {
    pub id: ReservationId,
    /// 1, or 2 for the one repeat after a connection failure.
    #[serde(default = "first", deserialize_with = "whole::number")]
    pub attempt: u8,
    /// How long the filter still waits for the answer, in milliseconds.
    #[serde(deserialize_with = "whole::number")]
    pub deadline_ms: u32,
    /// SHA-256 of the caller's API key, 64 lower-case hex digits; empty with `identity`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key_hash: String,
    /// A caller whom the proxy has verified; it takes the place of a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<VerifiedIdentity>,
    /// Values of the headers, by lower-case name, by which a key may say who its own caller is.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub asserted: BTreeMap<String, String>,
    /// The client's address, as the proxy trusts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,
    /// The client's model name, normalised; absent on endpoints without a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Other models that the request names and that may answer in the place of `model`, normalised; at most 8.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
    /// The request's `service_tier`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_tier: Option<String>,
    /// The wire format the caller speaks, `openai`.
    pub dialect: String,
    /// The canonical endpoint, for example `chat.completions`.
    pub endpoint: String,
    #[serde(deserialize_with = "whole::number")]
    pub prompt_tokens: u64,
    /// Output limit per choice the client gave; absent when it gave none.
    #[serde(default, deserialize_with = "whole::optional")]
    pub max_output_tokens: Option<u64>,
    #[serde(default = "one", deserialize_with = "whole::number")]
    pub choices: u32,
    #[serde(default)]
    pub stream: bool,
    /// The filter can still write a smaller output limit into the request.
    #[serde(default)]
    pub can_clamp: bool,
    /// For logs only; never a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

/// Who a caller is by a verified token's claims or a client certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VerifiedIdentity {
    pub tenant: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
}

fn first() -> u8 {
    1
}

fn one() -> u32 {
    1
}

/// Answer of `POST /v1/reserve`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReserveResponse {
    pub decision: Decision,
    /// Opaque routing tag: settle and extend give it back. Empty when nothing was held.
    #[serde(default)]
    pub account: String,
    /// The canonical quota name of the model. On a deny for a model that the request names beside `model`: that name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default)]
    pub grant: Grant,
    /// Set on deny.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// Name of the entry of `limits` that the reason speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_by: Option<String>,
    /// When this very amount fits if nothing else changes; absent when unknown or never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// Nobody can know the time: it is worth a try.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retry_after_estimated: bool,
    #[serde(default)]
    pub degraded: bool,
    /// Every limit that applies, after the hold.
    #[serde(default)]
    pub limits: Vec<LimitState>,
    pub policy_version: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    Allow,
    Deny,
    /// The reservation was closed before it was made, or its id stands for another request; nothing is held for this one.
    Gone,
}

/// What an allowed request may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Grant {
    /// Output tokens per choice that are held. The filter lowers the client's own limit to it.
    #[serde(default)]
    pub max_output_tokens: Option<u64>,
    /// The reservation holds a slot that ends after so many milliseconds unless it is extended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
}

/// One limit as it stands for this caller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LimitState {
    pub name: String,
    /// Dimension → value; API keys as the first 8 hex digits of their hash.
    pub scope: BTreeMap<String, String>,
    pub metric: Metric,
    pub limit: u64,
    /// Never below 0 nor above `limit`.
    pub remaining: u64,
    /// What open holds take of the limit, as far as it is known: settles may give some of it back soon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<u64>,
    /// Until the limit is whole again.
    pub reset_ms: u64,
    pub window_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    #[serde(default)]
    pub shadow: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    Requests,
    Tokens,
    /// Nano-dollars.
    Cost,
    /// Requests under way.
    Concurrency,
    /// A metric of a newer service.
    #[serde(other)]
    Other,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_metric_of_a_newer_service_can_be_read() {
        for (word, expected) in [
            ("requests", Metric::Requests),
            ("tokens", Metric::Tokens),
            ("cost", Metric::Cost),
            ("concurrency", Metric::Concurrency),
            ("something_new", Metric::Other),
        ] {
            assert_eq!(serde_json::from_value::<Metric>(word.into()).unwrap(), expected);
        }
        assert_eq!(serde_json::to_value(Metric::Concurrency).unwrap(), "concurrency");
    }
}
