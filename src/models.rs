//! What the filter knows of the policy's models: which tokenizer to use and how far output is bounded.

use tokengate_api::{ModelInfo, ModelList, model_name};

use crate::tokenizer::{Encoding, Rules};

/// The last good copy of the service's model list; empty until the first one is there.
#[derive(Clone, Debug, Default)]
pub struct Models {
    list: ModelList,
}

/// A model as one request sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// The canonical name, or the client's own spelling while there is no list.
    pub name: String,
    pub encoding: Encoding,
    pub max_output_tokens: Option<u64>,
    pub default_output_tokens: Option<u64>,
    pub reasoning: bool,
}

impl Model {
    /// How its prompts are counted.
    pub fn rules(&self) -> Rules {
        Rules::new(self.encoding, &self.name)
    }
}

impl Models {
    pub fn new(list: ModelList) -> Self {
        Self { list }
    }

    pub fn policy_version(&self) -> &str {
        &self.list.policy_version
    }

    /// Looks up a client's model name. A name that is in no list gets the built-in table and no bounds:
    /// whether it exists is the service's answer.
    pub fn find(&self, raw: &str) -> Model {
        match model_name::find(raw, &self.list.models, |model| &model.patterns) {
            Some(info) => Self::listed(info),
            None => {
                let name = model_name::spellings(raw).pop().unwrap_or_default();
                Model {
                    encoding: Encoding::for_model(&name),
                    name,
                    max_output_tokens: None,
                    default_output_tokens: None,
                    reasoning: false,
                }
            }
        }
    }

    fn listed(info: &ModelInfo) -> Model {
        Model {
            name: info.name.clone(),
            encoding: Encoding::by_name(&info.tokenizer).unwrap_or_else(|| Encoding::for_model(&info.name)),
            max_output_tokens: info.max_output_tokens,
            default_output_tokens: info.default_output_tokens,
            reasoning: info.reasoning,
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
        assert_eq!(models.find("").encoding, Encoding::O200kBase);
    }
}
