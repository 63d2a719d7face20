//! Texts: as many tokens as tiktoken-rs counts, and as many in parts as at once.

use tiktoken_rs::{CoreBPE, cl100k_base_singleton, o200k_base_singleton};
use tokengate::tokenizer::{Encoding, Joined};

use super::chunks::cuts;
use super::{magnitude, signature};
use crate::rng::Rng;

/// The oracle takes far longer for longer ones.
const MAX_EXACT: usize = 2 * 1024;
/// Longer than anything that is kept of a text in parts.
const LONG: usize = 24 * 1024;

pub fn run(input: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(input);
    let oracles: [(Encoding, &CoreBPE); 2] =
        [(Encoding::O200kBase, o200k_base_singleton()), (Encoding::Cl100kBase, cl100k_base_singleton())];
    let mut counts = [0; 2];
    for ((encoding, oracle), count) in oracles.into_iter().zip(&mut counts) {
        *count = encoding.count(&text);
        if text.len() <= MAX_EXACT {
            assert_eq!(*count, oracle.encode_ordinary(&text).len() as u64, "{encoding:?}");
        }
        for chunks in cuts(text.as_bytes()) {
            assert_eq!(in_parts(encoding, &chunks, 0), *count, "{encoding:?} in {} parts", chunks.len());
        }
        // A piece of it again and again is what long pieces are made of.
        let mut rng = Rng::of(input);
        let starts: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
        let (a, b) = (starts[rng.below(starts.len())], starts[rng.below(starts.len())]);
        let unit = &text[a.min(b)..a.max(b)];
        if !unit.is_empty() && rng.one_in(8) {
            let long = format!("{}{}{}", &text[..a], unit.repeat(LONG / unit.len()), &text[b..]);
            let parts: Vec<&[u8]> = long.as_bytes().chunks(1 + rng.below(5_000)).collect();
            let keep = rng.below(9_000);
            assert_eq!(in_parts(encoding, &parts, keep), encoding.count(&long), "{encoding:?}, {keep} kept");
        }
    }
    let classes: Vec<bool> = text.chars().take(6).map(char::is_alphanumeric).collect();
    signature((counts.map(magnitude), counts[0] == counts[1], magnitude(text.len() as u64), classes))
}

fn in_parts(encoding: Encoding, parts: &[&[u8]], keep: usize) -> u64 {
    let mut joined = Joined::default();
    for part in parts {
        joined.push(part);
        joined.compact(encoding, keep);
    }
    joined.total(encoding)
}
