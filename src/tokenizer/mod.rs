//! Token counts of texts, as the provider will count them.

mod breaks;
mod chat;
mod classes;
mod families;
mod growing;
pub mod image;
mod joined;
mod long;
mod merge;
#[cfg(test)]
mod oracles;
mod ranked;
mod rounds;
#[cfg(test)]
mod samples;
mod split;
#[cfg(test)]
mod tests;
pub mod tools;
mod trie;
#[cfg(feature = "llama3")]
mod unruly;
mod vocabulary;
mod work;

pub use chat::{HIDDEN_TOKENS, MEDIA_TOKENS, MESSAGE_OVERHEAD, NAME_OVERHEAD, PROMPT_OVERHEAD};
pub use joined::Joined;
#[cfg(test)]
pub use work::steps_of;

use merge::{Scratch, count_piece};
use vocabulary::Vocabulary;

/// For a model whose tokenizer is not here: the newest, whose count is then raised.
pub const FALLBACK: Encoding = Encoding::O200kBase;

/// A count by [`FALLBACK`] with a quarter more. The tokenizers in use today make up to about so many more
/// tokens of the same text.
pub fn raised(tokens: u64) -> u64 {
    tokens.saturating_add(tokens.div_ceil(4))
}

/// How the prompt of one model is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    pub encoding: Encoding,
    /// Tokens of a tool's definition beside its texts, where there is a rule for the model.
    per_function: Option<u64>,
}

impl Rules {
    /// For a model by its normalised name.
    pub fn new(encoding: Encoding, model: &str) -> Self {
        Self { encoding, per_function: tools::per_function(model) }
    }

    /// Tokens of the value of `tools`: by the published rule, or as it is written where that does not cover it.
    pub fn count_tools(self, raw: &str) -> u64 {
        let by_rule = self.per_function.and_then(|each| tools::tokens(self.encoding, each, raw));
        by_rule.unwrap_or_else(|| self.encoding.count(raw))
    }
}

/// A vocabulary with its split rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    O200kBase,
    Cl100kBase,
    #[cfg(feature = "llama3")]
    Llama3,
    #[cfg(feature = "qwen2")]
    Qwen2,
    #[cfg(feature = "deepseek_v3")]
    DeepSeekV3,
    #[cfg(feature = "mistral")]
    Mistral,
}

impl Encoding {
    /// Those that are built in.
    pub const ALL: &[Self] = &[
        Self::O200kBase,
        Self::Cl100kBase,
        #[cfg(feature = "llama3")]
        Self::Llama3,
        #[cfg(feature = "qwen2")]
        Self::Qwen2,
        #[cfg(feature = "deepseek_v3")]
        Self::DeepSeekV3,
        #[cfg(feature = "mistral")]
        Self::Mistral,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::O200kBase => "o200k_base",
            Self::Cl100kBase => "cl100k_base",
            #[cfg(feature = "llama3")]
            Self::Llama3 => "llama3",
            #[cfg(feature = "qwen2")]
            Self::Qwen2 => "qwen2",
            #[cfg(feature = "deepseek_v3")]
            Self::DeepSeekV3 => "deepseek_v3",
            #[cfg(feature = "mistral")]
            Self::Mistral => "mistral",
        }
    }

    /// Whether its tables have been made, which takes memory and some time, once.
    pub fn is_loaded(self) -> bool {
        Vocabulary::loaded(self).is_some()
    }

    pub fn by_name(name: &str) -> Option<Self> {
        match name {
            // Ordinary text has the same tokens in both; harmony only adds special ones.
            "o200k_harmony" => Some(Self::O200kBase),
            _ => Self::ALL.iter().copied().find(|encoding| encoding.name() == name),
        }
    }

    /// The built-in table: the encoding that is published for a normalised model name, if it is built in.
    pub fn for_model(name: &str) -> Option<Self> {
        const CL100K: [&str; 4] = ["gpt-4", "davinci-002", "babbage-002", "text-embedding-ada-002"];
        // Prefixes, the first that fits.
        const NEWER: [&str; 9] =
            ["o1", "o3", "o4-mini", "gpt-5", "gpt-4.5-", "gpt-4.1", "chatgpt-4o-", "gpt-4o", "gpt-oss-"];
        const OLDER: [&str; 4] = ["gpt-4-", "gpt-3.5-turbo", "gpt-35-turbo", "text-embedding-3-"];
        let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
        if CL100K.contains(&name) {
            Some(Self::Cl100kBase)
        } else if starts(&NEWER) {
            Some(Self::O200kBase)
        } else if starts(&OLDER) {
            Some(Self::Cl100kBase)
        } else {
            families::of(name)
        }
    }

    /// Tokens of ordinary text: the spelling of a special token is text like any other.
    ///
    /// The first call for an encoding takes a few milliseconds to make its table of merges.
    pub fn count(self, text: &str) -> u64 {
        count_pieces(self, text.as_bytes())
    }
}

/// The end of the piece that starts at `start`.
fn piece_end(encoding: Encoding, text: &[u8], start: usize) -> usize {
    match encoding {
        Encoding::O200kBase => split::o200k::piece_end::<3, true>(text, start),
        Encoding::Cl100kBase => split::cl100k::piece_end::<3, true>(text, start),
        #[cfg(feature = "llama3")]
        Encoding::Llama3 => split::cl100k::piece_end::<3, false>(text, start),
        #[cfg(feature = "qwen2")]
        Encoding::Qwen2 => split::cl100k::piece_end::<1, false>(text, start),
        #[cfg(feature = "deepseek_v3")]
        Encoding::DeepSeekV3 => split::deepseek::piece_end(text, start),
        #[cfg(feature = "mistral")]
        Encoding::Mistral => split::o200k::piece_end::<1, false>(text, start),
    }
}

fn count_pieces(encoding: Encoding, text: &[u8]) -> u64 {
    match encoding {
        Encoding::O200kBase => count_with(encoding, text, split::o200k::piece_end::<3, true>),
        Encoding::Cl100kBase => count_with(encoding, text, split::cl100k::piece_end::<3, true>),
        #[cfg(feature = "llama3")]
        Encoding::Llama3 => count_with(encoding, text, split::cl100k::piece_end::<3, false>),
        #[cfg(feature = "qwen2")]
        Encoding::Qwen2 => count_with(encoding, text, split::cl100k::piece_end::<1, false>),
        #[cfg(feature = "deepseek_v3")]
        Encoding::DeepSeekV3 => count_with(encoding, text, split::deepseek::piece_end),
        #[cfg(feature = "mistral")]
        Encoding::Mistral => count_with(encoding, text, split::o200k::piece_end::<1, false>),
    }
}

#[inline(always)]
fn count_with(encoding: Encoding, text: &[u8], piece_end: impl Fn(&[u8], usize) -> usize) -> u64 {
    let vocabulary = Vocabulary::of(encoding);
    let mut scratch = Scratch::default();
    let (mut count, mut at) = (0_u64, 0);
    while at < text.len() {
        let end = piece_end(text, at);
        count += count_piece(vocabulary, text.get(at..end).unwrap_or(&[]), &mut scratch);
        at = end;
    }
    count
}

#[cfg(test)]
mod model_tests {
    use super::*;

    #[test]
    fn models_of_the_published_table() {
        for name in ["gpt-4", "gpt-4-turbo", "gpt-4-0613", "gpt-3.5-turbo-0125", "text-embedding-3-large"] {
            assert_eq!(Encoding::for_model(name), Some(Encoding::Cl100kBase), "{name}");
        }
        for name in [
            "gpt-4o",
            "gpt-4o-mini",
            "gpt-4.1-mini",
            "gpt-4.5-preview",
            "o1",
            "o3-mini",
            "o4-mini",
            "gpt-5.1-codex",
            "gpt-oss-120b",
            "chatgpt-4o-latest",
        ] {
            assert_eq!(Encoding::for_model(name), Some(Encoding::O200kBase), "{name}");
        }
        for name in ["my-llama", "claude-opus-4", "", "gpt", "gpt-4x"] {
            assert_eq!(Encoding::for_model(name), None, "{name}");
        }
    }
}
