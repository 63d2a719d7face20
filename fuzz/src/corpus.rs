//! The seeds of a target in `corpus/<target>/`, the mutants that showed something new, and what broke it.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::rng::{Rng, hash};

/// Mutants that are kept for further mutation.
const MAX_LEARNT: usize = 2_000;

pub struct Corpus {
    seeds: Vec<Vec<u8>>,
    learnt: Vec<Vec<u8>>,
    signatures: HashSet<u64>,
}

impl Corpus {
    /// In the order of their names, so that a run can be repeated.
    pub fn read(target: &str) -> Result<Self, String> {
        // Requests are what prompts are counted in.
        let folder = folder("corpus").join(if target == "prompt" { "request" } else { target });
        let error = |error: std::io::Error| format!("{}: {error}", folder.display());
        let mut files: Vec<PathBuf> =
            fs::read_dir(&folder).map_err(error)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
        files.sort();
        let seeds = files.iter().map(fs::read).collect::<Result<Vec<_>, _>>().map_err(error)?;
        if seeds.is_empty() {
            return Err(format!("{} is empty", folder.display()));
        }
        Ok(Self { seeds, learnt: Vec::new(), signatures: HashSet::new() })
    }

    pub fn seed(&self, number: usize) -> Option<&[u8]> {
        self.seeds.get(number).map(Vec::as_slice)
    }

    /// A seed or a mutant that was kept.
    pub fn any(&self, rng: &mut Rng) -> &[u8] {
        match self.learnt.is_empty() || rng.one_in(3) {
            true => &self.seeds[rng.below(self.seeds.len())],
            false => &self.learnt[rng.below(self.learnt.len())],
        }
    }

    /// Keeps an input that was taken in a way not seen before.
    pub fn learn(&mut self, signature: u64, input: Vec<u8>) {
        if self.signatures.len() < MAX_LEARNT && self.signatures.insert(signature) {
            self.learnt.push(input);
        }
    }

    /// Ways in which inputs were taken.
    pub fn kinds(&self) -> usize {
        self.signatures.len()
    }
}

pub fn save_crash(target: &str, seed: u64, input: &[u8]) -> Result<PathBuf, String> {
    let folder = folder("crashes");
    let file = folder.join(format!("{target}-{seed}-{:016x}", hash(input)));
    fs::create_dir_all(&folder)
        .and_then(|()| fs::write(&file, input))
        .map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(file)
}

/// Beside this package's sources when they are where they were built, else below the working directory.
fn folder(name: &str) -> PathBuf {
    let here = Path::new("fuzz");
    let built = Path::new(env!("CARGO_MANIFEST_DIR"));
    if here.join("corpus").is_dir() { here.join(name) } else { built.join(name) }
}
