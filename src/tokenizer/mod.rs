//! Token counts of texts, as the provider will count them.

mod chat;
mod image;
mod joined;
mod pieces;

pub use chat::{PROMPT_OVERHEAD, count_message, count_raw};
pub use joined::Joined;

/// A vocabulary with its split rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    O200kBase,
    Cl100kBase,
}

impl Encoding {
    pub fn by_name(name: &str) -> Option<Self> {
        match name {
            // Ordinary text has the same tokens in both; harmony only adds special ones.
            "o200k_base" | "o200k_harmony" => Some(Self::O200kBase),
            "cl100k_base" => Some(Self::Cl100kBase),
            _ => None,
        }
    }

    /// The built-in table: the encoding that OpenAI publishes for a normalised model name. A name it
    /// does not know gets the newest.
    pub fn for_model(name: &str) -> Self {
        const CL100K_EXACT: [&str; 4] = ["gpt-4", "davinci-002", "babbage-002", "text-embedding-ada-002"];
        const NEWER: [&str; 3] = ["gpt-4o", "gpt-4.", "chatgpt-4o"];
        const CL100K_PREFIX: [&str; 4] = ["gpt-4-", "gpt-3.5-turbo", "gpt-35-turbo", "text-embedding-3-"];
        let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
        if CL100K_EXACT.contains(&name) || (!starts(&NEWER) && starts(&CL100K_PREFIX)) {
            Self::Cl100kBase
        } else {
            Self::O200kBase
        }
    }

    /// Tokens of ordinary text: the spelling of a special token is text like any other.
    ///
    /// The first call for an encoding loads it, which takes a few tenths of a second.
    pub fn count(self, text: &str) -> u64 {
        let vocabulary = match self {
            Self::O200kBase => tiktoken_rs::o200k_base_singleton(),
            Self::Cl100kBase => tiktoken_rs::cl100k_base_singleton(),
        };
        pieces::pieces(text).map(|piece| vocabulary.count_ordinary(piece) as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_counts() {
        let a = "a".repeat(100_000);
        let spaces = " ".repeat(100_000);
        for (text, cl100k, o200k) in [
            ("hello world", 2, 2),
            ("tiktoken is great!", 6, 6),
            ("<|endoftext|>", 7, 7),
            ("<|im_start|>system<|im_end|>", 13, 13),
            ("你好世界", 5, 2),
            ("お誕生日おめでとう", 9, 8),
            ("héllo 🙂 wörld", 7, 6),
            ("", 0, 0),
        ] {
            assert_eq!(Encoding::Cl100kBase.count(text), cl100k, "{text}");
            assert_eq!(Encoding::O200kBase.count(text), o200k, "{text}");
        }
        // A run without a break may be off by one per cut.
        for (text, exact) in [(a.as_str(), 12_500), (spaces.as_str(), 782)] {
            let counted = Encoding::O200kBase.count(text);
            assert!(counted.abs_diff(exact) <= 4, "{counted} instead of {exact}");
        }
    }

    #[test]
    fn white_space_that_makes_tiktoken_panic_is_counted() {
        for space in [" ", "\t", "\n", "\u{3000}", "\r\n"] {
            let text = space.repeat(1_200_000 / space.len());
            let counted = Encoding::O200kBase.count(&text);
            assert!((1..=text.len() as u64).contains(&counted));
        }
    }

    /// What makes regular expressions go back over the same text, and merges go on and on.
    #[test]
    fn hostile_texts_are_counted() {
        let units = [
            "a", "A", "aA", "'", "'s", "/", "0", "1\n", " ", "\t", "\n", "\r", "\n ", "  a", " \u{301}",
            "\u{301}", "^", "的", "🙂", "\u{3000}", "\u{200d}", "!?", " !", "a\u{301}", "\u{a0} ", "\r\n\t",
            "Ωа", "\0", "\u{feff}", "x' ", "'LL",
        ];
        for unit in units {
            let run = unit.repeat(70_000 / unit.len());
            for text in [run.clone(), format!("{run}x"), format!("x{run}\n x")] {
                for encoding in [Encoding::O200kBase, Encoding::Cl100kBase] {
                    let counted = encoding.count(&text);
                    assert!((1..=text.len() as u64).contains(&counted), "{unit:?}");
                }
            }
        }
    }

    #[test]
    fn models_of_the_published_table() {
        for name in ["gpt-4", "gpt-4-turbo", "gpt-4-0613", "gpt-3.5-turbo-0125", "text-embedding-3-large"] {
            assert_eq!(Encoding::for_model(name), Encoding::Cl100kBase, "{name}");
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
            "my-llama",
            "",
        ] {
            assert_eq!(Encoding::for_model(name), Encoding::O200kBase, "{name}");
        }
    }
}
