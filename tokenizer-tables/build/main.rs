//! Makes the tables from the public API of tiktoken-rs, and of tiktoken for the vocabularies that are asked for by
//! feature, so that no vocabulary file is kept here.

mod classes;
mod splits;
mod trie;

use std::{env, fs, path::Path};

use tiktoken_rs::CoreBPE;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

struct Vocabulary {
    name: &'static str,
    /// The bytes of every token, lowest rank first.
    tokens: Vec<Vec<u8>>,
    /// Tokens that no merges lead to.
    alone: Vec<Vec<u8>>,
    /// The merges inside of every token must be in the order of the ranks.
    is_in_order: bool,
}

fn main() -> Result<()> {
    println!("cargo:rerun-if-changed=build");
    let out = env::var("OUT_DIR")?;
    let out = Path::new(&out);
    for (name, bpe) in [("o200k", tiktoken_rs::o200k_base()?), ("cl100k", tiktoken_rs::cl100k_base()?)] {
        write(out, Vocabulary { name, tokens: ordinary_tokens(&bpe), alone: Vec::new(), is_in_order: true })?;
    }
    #[cfg(feature = "llama3")]
    {
        // Its tokenizer looks a piece up before it merges; some tokens are found only so.
        let mut tokens = more::tokens("llama3", 0)?;
        let alone = splits::take_unreachable(&mut tokens);
        write(out, Vocabulary { name: "llama3", tokens, alone, is_in_order: false })?;
    }
    #[cfg(feature = "qwen2")]
    write(out, more::vocabulary("qwen2", "qwen2", 0)?)?;
    #[cfg(feature = "mistral")]
    write(out, more::vocabulary("mistral", "mistral_v3", 1_000)?)?;
    #[cfg(feature = "deepseek_v3")]
    {
        write(out, more::vocabulary("deepseek_v3", "deepseek_v3", 3)?)?;
        write_classes(out, "kind", classes::KINDS)?;
    }
    write_classes(out, "class", classes::CLASSES)
}

fn write_classes(out: &Path, name: &str, classes: &[(&str, u8)]) -> Result<()> {
    let classes = classes::classes(classes)?;
    fs::write(out.join(format!("{name}.blocks")), classes.blocks)?;
    fs::write(out.join(format!("{name}.index")), classes.index)?;
    Ok(())
}

fn write(out: &Path, vocabulary: Vocabulary) -> Result<()> {
    let Vocabulary { name, tokens, mut alone, is_in_order } = vocabulary;
    let splits = splits::splits(&tokens)?;
    if let (true, Some(rank)) = (is_in_order, splits.disordered.first()) {
        return Err(format!("{name}: the merges that lead to token {rank} are not in order").into());
    }
    let trie = trie::trie(&tokens)?;
    alone.sort_unstable();
    let length = |token: &Vec<u8>| u8::try_from(token.len());
    let alone: Vec<Vec<u8>> =
        alone.into_iter().map(|token| Ok([vec![length(&token)?], token].concat())).collect::<Result<_>>()?;
    for (part, bytes) in [
        ("units", trie.units),
        ("labels", trie.labels),
        ("ranks", trie.ranks),
        ("places", trie.places),
        ("tail_lengths", trie.tail_lengths),
        ("tail_ranks", trie.tail_ranks),
        ("tails", trie.tails),
        ("low", splits.low),
        ("high", splits.high),
        ("disordered", splits.disordered.into_iter().flat_map(u32::to_le_bytes).collect()),
        ("alone", alone.concat()),
    ] {
        fs::write(out.join(format!("{name}.{part}")), bytes)?;
    }
    Ok(())
}

/// The bytes of every rank from 0 on; a gap parts the ordinary tokens from the special ones.
fn ordinary_tokens(bpe: &CoreBPE) -> Vec<Vec<u8>> {
    (0..).map_while(|rank| bpe.decode_bytes(&[rank]).ok()).collect()
}

#[cfg(any(feature = "llama3", feature = "qwen2", feature = "deepseek_v3", feature = "mistral"))]
mod more {
    use super::Result;

    /// The ordinary tokens, which follow `special` special ones.
    pub fn tokens(name: &str, special: u32) -> Result<Vec<Vec<u8>>> {
        let bpe = tiktoken::get_encoding(name).ok_or_else(|| format!("tiktoken has no {name}"))?;
        let end = u32::try_from(bpe.vocab_size())?;
        Ok((special..end).map(|rank| bpe.decode(&[rank])).collect())
    }

    #[cfg(any(feature = "qwen2", feature = "deepseek_v3", feature = "mistral"))]
    pub fn vocabulary(name: &'static str, of_tiktoken: &str, special: u32) -> Result<super::Vocabulary> {
        Ok(super::Vocabulary {
            name,
            tokens: tokens(of_tiktoken, special)?,
            alone: Vec::new(),
            is_in_order: true,
        })
    }
}
