//! Counts tokens with tiktoken-rs alone: the oracle of the end-to-end tests, which shares nothing with the
//! filter. Reads lines of `{"encoding": "o200k_base", "text": "…"}`, writes one count per line.

use std::io::{BufRead, Write};

#[derive(serde::Deserialize)]
struct Question {
    encoding: String,
    text: String,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let question: Question = serde_json::from_str(&line?)?;
        let encoding = match question.encoding.as_str() {
            "o200k_base" => tiktoken_rs::o200k_base_singleton(),
            "cl100k_base" => tiktoken_rs::cl100k_base_singleton(),
            other => return Err(format!("unknown encoding {other}").into()),
        };
        writeln!(out, "{}", encoding.encode_ordinary(&question.text).len())?;
        out.flush()?;
    }
    Ok(())
}
