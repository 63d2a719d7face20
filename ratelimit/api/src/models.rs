use serde::{Deserialize, Serialize};

/// Answer of `GET /v1/models`: what the filter needs to choose a tokenizer and to bound the output.
///
/// It decides nothing else: name, plan and limits of a request are the service's own lookup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ModelList {
    pub policy_version: String,
    pub models: Vec<ModelInfo>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ModelInfo {
    /// The canonical quota name.
    pub name: String,
    /// Normalised client names: exact, or a prefix followed by `*`. Exact wins, then the longest prefix.
    #[serde(rename = "match")]
    pub patterns: Vec<String>,
    /// `auto`, or the name of an encoding.
    #[serde(default = "auto")]
    pub tokenizer: String,
    /// Tokens per choice that the provider can produce at most.
    #[serde(default)]
    pub max_output_tokens: Option<u64>,
    /// Tokens per choice to hold when the client gives no limit.
    #[serde(default)]
    pub default_output_tokens: Option<u64>,
    #[serde(default)]
    pub output_limit: OutputLimit,
    /// The model spends output tokens that are never delivered as text.
    #[serde(default)]
    pub reasoning: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OutputLimit {
    #[serde(default)]
    pub missing: MissingOutputLimit,
}

/// What to hold when the client gives no output limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum MissingOutputLimit {
    /// `default_output_tokens`; the request is forwarded as it is and may end in debt.
    #[default]
    HoldDefault,
}

fn auto() -> String {
    "auto".to_owned()
}
