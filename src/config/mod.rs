//! The plugin configuration. An unknown field or a bad value refuses it, with its path and the reason.

mod source;

use std::fmt;

use serde::{Deserialize, Deserializer, de::Error as _};

use crate::identity::FOREIGN_HEADERS;
pub use source::{ApiKey, Claim, Jwt, Mtls, Source, TrustedHeader};

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("configuration: {path}: {source}")]
    Field { path: String, source: serde_json::Error },
    #[error(
        "configuration: it is empty or no JSON text; give it as a google.protobuf.StringValue that holds JSON, not as a Struct"
    )]
    NotText,
    #[error("configuration: {path}: {reason}")]
    Value { path: &'static str, reason: String },
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    pub quota: Quota,
    pub failure_mode: FailureMode,
    pub mode: Mode,
    pub hold_at: HoldAt,
    pub identity: Identity,
    pub paths: Paths,
    pub max_body_bytes: MaxBodyBytes,
    pub missing_usage: MissingUsage,
    pub overrun: Overrun,
    pub headers: Headers,
    pub outbox: Outbox,
}

impl Config {
    pub fn parse(json: &[u8]) -> Result<Self, ConfigError> {
        // Envoy hands a Struct over as its JSON text only when the plugin takes no StringValue; anything
        // else that is no JSON object is a configuration of another kind.
        if !json.trim_ascii_start().starts_with(b"{") {
            return Err(ConfigError::NotText);
        }
        let mut text = serde_json::Deserializer::from_slice(json);
        let config: Self = serde_path_to_error::deserialize(&mut text).map_err(|error| {
            ConfigError::Field { path: error.path().to_string(), source: error.into_inner() }
        })?;
        text.end().map_err(|source| ConfigError::Field { path: "end".to_owned(), source })?;
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), ConfigError> {
        let in_range = |path, value: u64, range: std::ops::RangeInclusive<u64>, unit| {
            if range.contains(&value) {
                return Ok(());
            }
            let reason = format!("{value} is not in {} to {} {unit}", range.start(), range.end());
            Err(ConfigError::Value { path, reason })
        };
        in_range("quota.timeout_ms", u64::from(self.quota.timeout_ms), 1..=10_000, "milliseconds")?;
        in_range("max_body_bytes", self.max_body_bytes.0 as u64, 1..=67_108_864, "bytes")?;
        in_range("outbox.tick_ms", u64::from(self.outbox.tick_ms), 10..=1_000, "milliseconds")?;
        in_range("outbox.max_items", self.outbox.max_items as u64, 16..=65_536, "items")?;
        for (path, text) in
            [("quota.cluster", &self.quota.cluster), ("quota.authority", &self.quota.authority)]
        {
            if text.is_empty() || text.bytes().any(|b| b.is_ascii_control() || b == b' ') {
                return Err(ConfigError::Value { path, reason: "give a name without spaces".to_owned() });
            }
        }
        if self.identity.sources.is_empty() {
            let reason = "give at least one source, for example {\"api_key\": {}}".to_owned();
            return Err(ConfigError::Value { path: "identity.sources", reason });
        }
        let is_unknown = |name: &&String| !FOREIGN_HEADERS.contains(&name.as_str());
        if let Some(name) = self.identity.keep_headers.iter().find(is_unknown) {
            let reason = format!("{name:?} cannot be kept; give some of {}", FOREIGN_HEADERS.join(", "));
            return Err(ConfigError::Value { path: "identity.keep_headers", reason });
        }
        Ok(())
    }
}

/// How the quota service is reached.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Quota {
    /// Envoy cluster.
    pub cluster: String,
    /// `:authority` of the calls.
    pub authority: String,
    /// Deadline of a reserve, its one repeat included.
    pub timeout_ms: u32,
    /// Environment variable (`vm_config.environment_variables`) that holds the service's bearer token.
    pub token_env: String,
}

impl Default for Quota {
    fn default() -> Self {
        Self {
            cluster: "tokengate_quota".to_owned(),
            authority: "tokengate-ratelimit".to_owned(),
            timeout_ms: 100,
            token_env: String::new(),
        }
    }
}

/// What happens to a request when the quota service gives no usable answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FailureMode {
    /// 503 `quota_unavailable`.
    #[default]
    Closed,
    /// Served, marked, and charged when the service is back.
    Open,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    #[default]
    Enforce,
    /// Measures everything and refuses nothing; a header says what would have happened.
    Observe,
}

/// What is kept back until a request is decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HoldAt {
    /// Everything. Needs `allow_on_headers_stop_iteration`.
    #[default]
    Headers,
    /// The body; the headers go on at once. Envoy's own `buffer` filter behind ours holds them back.
    Body,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Identity {
    /// Tried in order; the first that has a value wins.
    pub sources: Vec<Source>,
    pub credential: Credential,
    /// Of the headers that are removed beside credentials, those that stay.
    pub keep_headers: Vec<String>,
}

impl Default for Identity {
    fn default() -> Self {
        Self { sources: vec![Source::default()], credential: Credential::Strip, keep_headers: Vec::new() }
    }
}

/// What becomes of the caller's credential before the request goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Credential {
    /// Removed; Envoy adds the provider's own.
    #[default]
    Strip,
    /// Left: callers bring provider keys.
    Forward,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Paths {
    /// Identity and request limits, no tokens.
    pub allow: Vec<ListedPath>,
    pub other: OtherPaths,
    pub preflight: Preflight,
}

impl Default for Paths {
    fn default() -> Self {
        let listed =
            |path: &str, is_prefix| ListedPath { method: "GET".to_owned(), path: path.to_owned(), is_prefix };
        Self {
            allow: vec![listed("/v1/models", false), listed("/v1/models/", true)],
            other: OtherPaths::Deny,
            preflight: Preflight::Other,
        }
    }
}

/// `METHOD /path`, or `METHOD /path/*` for all below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedPath {
    pub method: String,
    pub path: String,
    pub is_prefix: bool,
}

impl<'de> Deserialize<'de> for ListedPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bad =
            || D::Error::custom(format!("{text:?}: write it as \"GET /v1/models\" or \"GET /v1/models/*\""));
        let (method, path) = text.split_once(' ').ok_or_else(bad)?;
        let (path, is_prefix) = match path.strip_suffix('*') {
            Some(prefix) => (prefix, true),
            None => (path, false),
        };
        let path_is_good = path.starts_with('/') && !path.contains(['*', ' ', '?', '#']);
        if method.is_empty() || !method.bytes().all(|b| b.is_ascii_uppercase()) || !path_is_good {
            return Err(bad());
        }
        Ok(Self { method: method.to_owned(), path: path.to_owned(), is_prefix })
    }
}

/// What happens to a request of an endpoint that is neither metered nor listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OtherPaths {
    /// 404 `unknown_endpoint`.
    #[default]
    Deny,
    /// Treated as listed.
    Requests,
    /// Not metered at all.
    Pass,
}

/// What happens to a CORS preflight that reaches us: Envoy's own `cors` filter in front answers it before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Preflight {
    /// Like any other request to its path.
    #[default]
    Other,
    /// It goes on without an identity and without a body: the provider answers it.
    Pass,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct MaxBodyBytes(pub usize);

impl Default for MaxBodyBytes {
    fn default() -> Self {
        Self(8 * 1024 * 1024)
    }
}

impl fmt::Display for MaxBodyBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What is charged when an answer shows no usage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MissingUsage {
    /// `estimate` for a stream of a model that is not marked reasoning, else `hold`.
    #[default]
    Auto,
    /// The counted prompt and the tokens of all delivered text.
    Estimate,
    /// What was held.
    Hold,
}

/// What becomes of a stream whose output runs over what was held for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Overrun {
    /// It goes on; the excess is charged, as debt.
    #[default]
    Allow,
    /// More is held as it comes; when that is refused, the stream ends.
    Stop,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Headers {
    pub rate_limit: RateLimit,
    pub reset: Reset,
}

/// What becomes of the provider's own `x-ratelimit-*` headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RateLimit {
    #[default]
    Replace,
    Keep,
}

/// How `x-ratelimit-reset-*` is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reset {
    /// `0.2s`
    #[default]
    Duration,
    /// `0.2`
    Seconds,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Outbox {
    /// How often waiting settles are sent.
    pub tick_ms: u32,
    /// Settles that may wait; beyond it the oldest is dropped and its hold stays charged.
    pub max_items: usize,
}

impl Default for Outbox {
    fn default() -> Self {
        Self { tick_ms: 50, max_items: 4_096 }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_documented_configuration_is_the_default() {
        let documented = br#"{
            "quota": {"cluster": "tokengate_quota", "authority": "tokengate-ratelimit", "timeout_ms": 100, "token_env": ""},
            "failure_mode": "closed", "mode": "enforce", "hold_at": "headers",
            "identity": {"sources": [{"api_key": {"headers": ["Authorization", "x-api-key", "api-key"]}}], "credential": "strip",
                         "keep_headers": []},
            "paths": {"allow": ["GET /v1/models", "GET /v1/models/*"], "other": "deny", "preflight": "other"},
            "max_body_bytes": 8388608, "missing_usage": "auto", "overrun": "allow",
            "headers": {"rate_limit": "replace", "reset": "duration"},
            "outbox": {"tick_ms": 50, "max_items": 4096}}"#;
        assert_eq!(Config::parse(documented).unwrap(), Config::default());
        assert_eq!(Config::parse(b"{}").unwrap(), Config::default());
    }

    #[test]
    fn bad_configurations_are_refused_by_name() {
        for (json, expected) in [
            ("", "StringValue"),
            ("[]", "StringValue"),
            ("{\"quota\": {\"cluster\": 1}}", "quota.cluster"),
            ("{\"quotas\": {}}", "quotas"),
            ("{\"quota\": {\"timeout_ms\": 0}}", "quota.timeout_ms"),
            ("{\"quota\": {\"timeout_ms\": 8589934592}}", "quota.timeout_ms"),
            ("{\"quota\": {\"cluster\": \"\"}}", "quota.cluster"),
            ("{\"mode\": \"watch\"}", "unknown variant `watch`"),
            ("{\"hold_at\": \"never\"}", "unknown variant `never`"),
            ("{\"failure_mode\": \"ajar\"}", "failure_mode"),
            ("{\"max_body_bytes\": 0}", "max_body_bytes"),
            ("{\"overrun\": \"warn\"}", "overrun"),
            ("{\"identity\": {\"sources\": []}}", "identity.sources"),
            ("{\"identity\": {\"sources\": [{\"jwt\": {}}]}}", "identity.sources[0]"),
            ("{\"identity\": {\"sources\": [{\"api_key\": {\"headers\": [\"a b\"]}}]}}", "no header name"),
            ("{\"paths\": {\"allow\": [\"/v1/models\"]}}", "paths.allow[0]"),
            ("{\"paths\": {\"other\": \"maybe\"}}", "paths.other"),
            ("{\"paths\": {\"preflight\": \"deny\"}}", "paths.preflight"),
            ("{\"identity\": {\"keep_headers\": [\"authorization\"]}}", "identity.keep_headers"),
            ("{\"outbox\": {\"max_items\": 1}}", "outbox.max_items"),
            ("{} {}", "trailing"),
        ] {
            let error = Config::parse(json.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected), "{json}: {error}");
        }
    }
}
