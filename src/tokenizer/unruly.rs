//! Tokens of a vocabulary that was extended: some of those added do not come out of their bytes by merges of lower
//! rank, and some not by any merges.

use std::collections::HashSet;

use tokengate_tables as tables;

use super::{ranked::Ranked, vocabulary::Vocabulary};

#[derive(Debug)]
pub struct Unruly {
    disordered: HashSet<u32>,
    /// Only a whole piece is one of these.
    alone: HashSet<&'static [u8]>,
}

impl Unruly {
    pub fn new(tables: &tables::Vocabulary) -> Self {
        let (disordered, _) = tables.disordered.as_chunks();
        let mut rest = tables.alone;
        let alone = std::iter::from_fn(|| {
            let (&length, tokens) = rest.split_first()?;
            let (token, tokens) = tokens.split_at_checked(length.into())?;
            rest = tokens;
            Some(token)
        });
        Self {
            disordered: disordered.iter().copied().map(u32::from_le_bytes).collect(),
            alone: alone.collect(),
        }
    }

    #[inline]
    pub fn is_disordered(&self, rank: u32) -> bool {
        // Without any, there is nothing to hash.
        !self.disordered.is_empty() && self.disordered.contains(&rank)
    }

    pub fn is_alone(&self, piece: &[u8]) -> bool {
        !self.alone.is_empty() && self.alone.contains(piece)
    }
}

/// Whether the merges of the two tokens' bytes leave just these two tokens: by doing them.
pub fn stay_apart(vocabulary: &Vocabulary, left: u32, right: u32) -> bool {
    let mut bytes = Vec::new();
    // Those whose bytes are still to come, the next one last.
    let mut rest = vec![right, left];
    while let Some(token) = rest.pop() {
        match vocabulary.parts(token) {
            (first, _) if first == token => bytes.push(token),
            (first, second) => rest.extend([second, first]),
        }
    }
    Ranked::default().merge(vocabulary, bytes).map(|(token, _)| token).eq([left, right])
}
