//! Counts tokens with tiktoken-rs alone, and with tiktoken for the vocabularies that are asked for by feature: the
//! oracle of the end-to-end tests, which shares nothing with the filter. Reads lines of
//! `{"encoding": "o200k_base", "text": "…"}`, writes one count per line.

use std::io::{BufRead, Write};

#[derive(serde::Deserialize)]
struct Question {
    encoding: String,
    text: String,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let Question { encoding, text } = serde_json::from_str(&line?)?;
        let count = match encoding.as_str() {
            "o200k_base" => tiktoken_rs::o200k_base_singleton().encode_ordinary(&text).len(),
            "cl100k_base" => tiktoken_rs::cl100k_base_singleton().encode_ordinary(&text).len(),
            name => by_feature(name, &text).ok_or_else(|| format!("unknown encoding {name}"))?,
        };
        writeln!(out, "{count}")?;
        out.flush()?;
    }
    Ok(())
}

#[cfg(any(feature = "llama3", feature = "qwen2", feature = "deepseek_v3", feature = "mistral"))]
fn by_feature(name: &str, text: &str) -> Option<usize> {
    // Its `mistral` is an older one.
    let name = if name == "mistral" { "mistral_v3" } else { name };
    Some(tiktoken::get_encoding(name)?.count(text))
}

#[cfg(not(any(feature = "llama3", feature = "qwen2", feature = "deepseek_v3", feature = "mistral")))]
fn by_feature(_: &str, _: &str) -> Option<usize> {
    None
}
