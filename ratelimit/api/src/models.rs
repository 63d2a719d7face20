use serde::{Deserialize, Serialize};

/// Answer of `GET /v1/models`: what the filter needs to choose a tokenizer and to bound the output.
///
/// It decides nothing else: name, plan and limits of a request are the service's own lookup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ModelList {
    pub policy_version: String,
    pub models: Vec<ModelInfo>,
    /// Canonical name of the model that a name matching none is taken for; absent: such a name is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown_model: Option<String>,
    /// Request headers, in lower case, by which some key may say who its own caller is. The filter takes them
    /// off every request and sends their values with the reserve; which key may say what is the service's
    /// decision.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asserted_headers: Vec<String>,
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
    #[serde(default)]
    pub usage_chunk: UsageChunk,
}

/// Whether a stream's usage is asked for where the client does not ask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum UsageChunk {
    /// `stream_options` is left alone, for the provider refuses it: a stream without usage is charged by its text.
    Never,
    /// `stream_options.include_usage` is added. Also what a word of a newer service means.
    #[default]
    #[serde(other)]
    Ask,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OutputLimit {
    #[serde(default)]
    pub missing: MissingOutputLimit,
}

/// What to do when the client gives no output limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum MissingOutputLimit {
    /// Hold `default_output_tokens` and write it into the request.
    WriteDefault,
    /// Hold `max_output_tokens`; the request is forwarded as it is.
    HoldMax,
    /// The request is refused: it has to name a limit.
    Refuse,
    /// Hold `default_output_tokens`; the request is forwarded as it is and may end in debt. Also what a
    /// word of a newer service means.
    #[default]
    #[serde(other)]
    HoldDefault,
}

fn auto() -> String {
    "auto".to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_list_of_another_version_can_be_read() {
        let read = |text: &str| serde_json::from_str::<ModelList>(text).unwrap();
        let old = read(r#"{"policy_version": "1", "models": [{"name": "a", "match": ["a"]}]}"#);
        assert_eq!((old.unknown_model, old.asserted_headers.len()), (None, 0));
        assert_eq!(old.models.first().unwrap().output_limit.missing, MissingOutputLimit::HoldDefault);
        for (word, expected) in [
            ("hold_default", MissingOutputLimit::HoldDefault),
            ("write_default", MissingOutputLimit::WriteDefault),
            ("hold_max", MissingOutputLimit::HoldMax),
            ("refuse", MissingOutputLimit::Refuse),
            ("something_new", MissingOutputLimit::HoldDefault),
        ] {
            let missing: MissingOutputLimit = serde_json::from_value(word.into()).unwrap();
            assert_eq!(missing, expected, "{word}");
            let written = serde_json::to_value(missing).unwrap();
            assert_eq!(written == word, word != "something_new");
        }
    }
}
