//! What the filter knows of the policy's models: which tokenizer to use and how far output is bounded.

use tokengate_api::{MissingOutputLimit, ModelInfo, ModelList, UsageChunk, model_name};

use crate::tokenizer::{Encoding, FALLBACK, Rules, raised};

/// Of the policy: the built-in table.
const AUTO: &str = "auto";

/// The last good copy of the service's model list; empty until the first one is there.
#[derive(Clone, Debug, Default)]
pub struct Models {
    list: ModelList,
    is_known: bool,
}

/// A model as one request sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// The canonical name, or the client's own spelling where the list has none.
    pub name: String,
    /// The name is the policy's.
    pub is_listed: bool,
    pub encoding: Encoding,
    /// The encoding is not the model's own, which is not known or not here.
    pub is_fallback: bool,
    pub max_output_tokens: Option<u64>,
    pub default_output_tokens: Option<u64>,
    /// What to do when the client gives no output limit.
    pub missing_limit: MissingOutputLimit,
    pub reasoning: bool,
    /// Whether a stream's usage is asked for where the client does not.
    pub usage_chunk: UsageChunk,
}

impl Model {
    /// For metrics and logs, where a client's own text has no place.
    pub fn label(&self) -> &str {
        if self.is_listed { &self.name } else { "unlisted" }
    }

    /// A prompt's tokens as they are held, from the count by the model's encoding.
    pub fn held(&self, counted: u64) -> u64 {
        if self.is_fallback { raised(counted) } else { counted }
    }

    /// How its prompts are counted.
    pub fn rules(&self) -> Rules {
        Rules::new(self.encoding, &self.name)
    }
}

impl Models {
    pub fn new(list: ModelList) -> Self {
        Self { list, is_known: true }
    }

    /// There was a list.
    pub fn are_known(&self) -> bool {
        self.is_known
    }

    pub fn policy_version(&self) -> &str {
        &self.list.policy_version
    }

    /// Headers, in lower case, by which some key may say who its own caller is.
    pub fn asserted_headers(&self) -> &[String] {
        &self.list.asserted_headers
    }

    /// Whether the policy has a model of this canonical name.
    pub fn is_listed(&self, name: &str) -> bool {
        self.list.models.iter().any(|model| model.name == name)
    }

    /// The policy's name for the model that goes by `raw`; none stands in for it.
    pub fn canonical(&self, raw: &str) -> Option<&str> {
        model_name::find(raw, &self.list.models, |model| &model.patterns).map(|model| model.name.as_str())
    }

    /// Looks up a client's model name. A name that is in no list is taken for the policy's `unknown_model`;
    /// without one it gets the built-in table and no bounds: whether it exists is the service's answer.
    pub fn find(&self, raw: &str) -> Model {
        let models = &self.list.models;
        let stands_in = || {
            let name = self.list.unknown_model.as_ref()?;
            models.iter().find(|model| model.name == *name)
        };
        match model_name::find(raw, models, |model| &model.patterns).or_else(stands_in) {
            Some(info) => Self::listed(info, raw),
            None => {
                let name = model_name::spellings(raw).pop().unwrap_or_default();
                let encoding = Encoding::for_model(&name);
                Model {
                    encoding: encoding.unwrap_or(FALLBACK),
                    is_fallback: encoding.is_none(),
                    name,
                    is_listed: false,
                    max_output_tokens: None,
                    default_output_tokens: None,
                    missing_limit: MissingOutputLimit::default(),
                    reasoning: false,
                    usage_chunk: UsageChunk::default(),
                }
            }
        }
    }

    /// The policy's tokenizer; else that of the model's name, or of the client's, which the provider gets.
    fn listed(info: &ModelInfo, raw: &str) -> Model {
        let of_client = || model_name::spellings(raw).iter().find_map(|name| Encoding::for_model(name));
        let encoding = Encoding::by_name(&info.tokenizer)
            .or_else(|| Encoding::for_model(&info.name).filter(|_| info.tokenizer == AUTO))
            .or_else(|| of_client().filter(|_| info.tokenizer == AUTO));
        Model {
            name: info.name.clone(),
            is_listed: true,
            encoding: encoding.unwrap_or(FALLBACK),
            is_fallback: encoding.is_none(),
            max_output_tokens: info.max_output_tokens,
            default_output_tokens: info.default_output_tokens,
            missing_limit: info.output_limit.missing,
            reasoning: info.reasoning,
            usage_chunk: info.usage_chunk,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_policy_wins_over_the_built_in_table() {
        let list = serde_json::from_str(
            r#"{"policy_version": "1", "models": [
                {"name": "house", "match": ["house*"], "tokenizer": "cl100k_base", "max_output_tokens": 10},
                {"name": "gpt-4", "match": ["gpt-4"]}]}"#,
        );
        let models = Models::new(list.unwrap());
        let house = models.find("House-Model");
        assert_eq!((house.name.as_str(), house.encoding), ("house", Encoding::Cl100kBase));
        assert_eq!(house.max_output_tokens, Some(10));
        assert_eq!(models.find("gpt-4").encoding, Encoding::Cl100kBase);
        let unknown = models.find("openai/gpt-3.5-turbo");
        assert_eq!((unknown.name.as_str(), unknown.encoding), ("gpt-3.5-turbo", Encoding::Cl100kBase));
        assert!(!unknown.is_fallback && unknown.held(10) == 10);
    }

    #[test]
    fn a_model_without_its_tokenizer_is_counted_higher() {
        let list = serde_json::from_str(
            r#"{"policy_version": "1", "models": [{"name": "house", "match": ["house", "gpt-4"]},
                {"name": "other", "match": ["other"], "tokenizer": "llama3"}]}"#,
        );
        let models = Models::new(list.unwrap());
        // Only where it is built in.
        let other = Encoding::by_name("llama3");
        for (name, encoding, held) in [
            ("house", FALLBACK, 13),
            ("gpt-4", Encoding::Cl100kBase, 10),
            ("other", other.unwrap_or(FALLBACK), if other.is_some() { 10 } else { 13 }),
            ("my-llama", FALLBACK, 13),
            ("", FALLBACK, 13),
        ] {
            let model = models.find(name);
            assert_eq!((model.encoding, model.held(10)), (encoding, held), "{name}");
        }
    }
    #[test]
    fn an_unknown_name_is_taken_for_the_model_that_stands_in() {
        let list = serde_json::from_str(
            r#"{"policy_version": "1", "unknown_model": "house", "models": [
                {"name": "gpt-4o", "match": ["gpt-4o"]},
                {"name": "house", "match": [], "tokenizer": "cl100k_base", "max_output_tokens": 10,
                 "output_limit": {"missing": "hold_max"}}]}"#,
        );
        let models = Models::new(list.unwrap());
        assert_eq!(models.find("gpt-4o").name, "gpt-4o");
        let unknown = models.find("whatever-1");
        assert_eq!((unknown.label(), unknown.encoding), ("house", Encoding::Cl100kBase));
        assert_eq!(unknown.missing_limit, MissingOutputLimit::HoldMax);
    }
}
