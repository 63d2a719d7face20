//! What the counts are compared with, in the tests and in `examples/proof_tokens.rs`: tiktoken-rs, and tiktoken for
//! the vocabularies that are built in by feature.

use std::ops::Range;

use super::Encoding;

pub struct Oracle {
    pub encoding: Encoding,
    pub count: fn(&str) -> u64,
    /// The bytes of a token by its rank.
    pub token: fn(u32) -> Vec<u8>,
    pub ranks: Range<u32>,
}

macro_rules! tiktoken_rs {
    ($encoding:ident, $singleton:ident, $ranks:expr) => {
        Oracle {
            encoding: Encoding::$encoding,
            count: |text| tiktoken_rs::$singleton().encode_ordinary(text).len() as u64,
            token: |rank| tiktoken_rs::$singleton().decode_bytes(&[rank]).unwrap_or_default(),
            ranks: $ranks,
        }
    };
}

#[cfg(any(feature = "llama3", feature = "qwen2", feature = "deepseek_v3", feature = "mistral"))]
macro_rules! tiktoken {
    ($encoding:ident, $name:literal, $ranks:expr) => {
        Oracle {
            encoding: Encoding::$encoding,
            count: |text| tiktoken::get_encoding($name).map_or(0, |bpe| bpe.count(text) as u64),
            token: |rank| tiktoken::get_encoding($name).map_or_else(Vec::new, |bpe| bpe.decode(&[rank])),
            ranks: $ranks,
        }
    };
}

/// One for each encoding that is built in.
pub fn oracles() -> Vec<Oracle> {
    vec![
        tiktoken_rs!(O200kBase, o200k_base_singleton, 0..199_998),
        tiktoken_rs!(Cl100kBase, cl100k_base_singleton, 0..100_256),
        #[cfg(feature = "llama3")]
        tiktoken!(Llama3, "llama3", 0..128_000),
        #[cfg(feature = "qwen2")]
        tiktoken!(Qwen2, "qwen2", 0..151_643),
        #[cfg(feature = "deepseek_v3")]
        tiktoken!(DeepSeekV3, "deepseek_v3", 3..128_000),
        #[cfg(feature = "mistral")]
        tiktoken!(Mistral, "mistral_v3", 1_000..131_072),
    ]
}
