//! Makes the tables from tiktoken-rs's public API, so that no vocabulary file is kept here.

mod classes;
mod splits;
mod trie;

use std::{env, fs, path::Path};

use tiktoken_rs::CoreBPE;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=build");
    let out = env::var("OUT_DIR")?;
    let out = Path::new(&out);
    for (name, bpe) in [("o200k", tiktoken_rs::o200k_base()?), ("cl100k", tiktoken_rs::cl100k_base()?)] {
        let tokens = ordinary_tokens(&bpe);
        let splits = splits::splits(&tokens)?;
        let trie = trie::trie(&tokens)?;
        for (part, bytes) in [
            ("labels", trie.labels),
            ("counts", trie.counts),
            ("values", trie.values),
            ("bases", trie.bases),
            ("ranks", trie.ranks),
        ] {
            fs::write(out.join(format!("{name}.{part}")), bytes)?;
        }
        fs::write(out.join(format!("{name}.size")), trie.units.to_string())?;
        fs::write(out.join(format!("{name}.low")), splits.low)?;
        fs::write(out.join(format!("{name}.middle")), splits.middle)?;
        fs::write(out.join(format!("{name}.high")), splits.high)?;
    }
    let classes = classes::classes()?;
    fs::write(out.join("class.blocks"), classes.blocks)?;
    fs::write(out.join("class.index"), classes.index)?;
    Ok(())
}

/// The bytes of every rank from 0 on; a gap parts the ordinary tokens from the special ones.
fn ordinary_tokens(bpe: &CoreBPE) -> Vec<Vec<u8>> {
    (0..).map_while(|rank| bpe.decode_bytes(&[rank]).ok()).collect()
}
