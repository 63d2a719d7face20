//! Models whose tokenizers are built in only where a feature asks for them.

use super::Encoding;

/// Names of model families. What a model's name has after it begins with a hyphen or a colon: a later version
/// may well have another tokenizer.
type Family = (Encoding, &'static [&'static str]);

const FAMILIES: &[Family] = &[
    #[cfg(feature = "llama3")]
    (
        Encoding::Llama3,
        &[
            "llama-3",
            "llama-3.1",
            "llama-3.2",
            "llama-3.3",
            "llama3",
            "llama3.1",
            "llama3.2",
            "llama3.3",
            "meta-llama-3",
            "meta-llama-3.1",
            "meta.llama3",
            "meta.llama3-1",
            "meta.llama3-2",
            "meta.llama3-3",
        ],
    ),
    #[cfg(feature = "qwen2")]
    (Encoding::Qwen2, &["qwen2", "qwen2.5", "qwen3", "qwq"]),
    #[cfg(feature = "deepseek_v3")]
    (
        Encoding::DeepSeekV3,
        &[
            "deepseek-chat",
            "deepseek-reasoner",
            "deepseek-v3",
            "deepseek-v3.1",
            "deepseek-v3.2",
            "deepseek-r1",
        ],
    ),
    // Some of this maker's models have an older tokenizer.
    #[cfg(feature = "mistral")]
    (
        Encoding::Mistral,
        &[
            "mistral-nemo",
            "open-mistral-nemo",
            "ministral-8b",
            "pixtral-12b",
            "mistral-small-2501",
            "mistral-small-2503",
            "mistral-small-2506",
        ],
    ),
];

pub fn of(name: &str) -> Option<Encoding> {
    let is_of = |family: &&str| {
        name.strip_prefix(*family).is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', ':']))
    };
    // Another model that was taught by the one it is named after.
    let is_other = name.contains("-distill");
    FAMILIES
        .iter()
        .filter(|_| !is_other)
        .find(|(_, names)| names.iter().any(is_of))
        .map(|(encoding, _)| *encoding)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each only where it is built in.
    #[test]
    fn models_of_families() {
        for (name, encoding) in [
            ("llama-3.1-70b-instruct", "llama3"),
            ("llama3", "llama3"),
            ("llama3.2:1b", "llama3"),
            ("meta-llama-3-8b", "llama3"),
            ("meta.llama3-1-70b-instruct-v1:0", "llama3"),
            ("qwen2.5-coder-32b-instruct", "qwen2"),
            ("qwen3:8b", "qwen2"),
            ("qwq-32b", "qwen2"),
            ("deepseek-chat", "deepseek_v3"),
            ("deepseek-r1-0528", "deepseek_v3"),
            ("mistral-nemo", "mistral"),
            ("open-mistral-nemo-2407", "mistral"),
        ] {
            assert_eq!(of(name), Encoding::by_name(encoding), "{name}");
        }
        for name in [
            "llama-30b",
            "llama-4-scout",
            "qwen",
            "qwen3.5-plus",
            "qwen-max",
            "mistral-7b",
            "mixtral-8x7b",
            "deepseek-r1-distill-llama-70b",
        ] {
            assert_eq!(of(name), None, "{name}");
        }
    }
}
