use serde::{Deserialize, Serialize};

use crate::VerifiedIdentity;

/// Body of `POST /v1/identify`: asks whether a caller is known, before its request's body costs anything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct IdentifyRequest {
    /// SHA-256 of the caller's API key, 64 lower-case hex digits; empty with `identity`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key_hash: String,
    /// A caller whom the proxy has verified; it takes the place of a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<VerifiedIdentity>,
}

/// Answer of `POST /v1/identify`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct IdentifyResponse {
    /// A reserve of this caller would not be refused for who it is.
    pub known: bool,
    pub policy_version: String,
}
