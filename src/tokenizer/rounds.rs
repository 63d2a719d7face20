//! Merges of a text that repeats itself: all that make one token in one go through the text. The tokens are the
//! same as if they were made one by one, lowest rank first, from the left.

use super::{vocabulary::Vocabulary, work};

/// No token.
pub const NONE: u32 = u32::MAX;

/// Going through the text once more must make it shorter by this part of it, so that all of them together take no
/// longer than a few.
const SHARE: usize = 8;

/// A token so far.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    pub token: u32,
    /// In bytes.
    pub length: u32,
    /// What it would be together with the part after it.
    pub merged: u32,
    /// The parts around it, once some are out of the list.
    pub before: u32,
    pub after: u32,
}

/// Sets the parts to the bytes, given as tokens.
pub fn fill(parts: &mut Vec<Part>, vocabulary: &Vocabulary, bytes: impl IntoIterator<Item = u32>) {
    parts.clear();
    parts.extend(bytes.into_iter().map(|token| Part {
        token,
        length: 1,
        merged: NONE,
        before: NONE,
        after: NONE,
    }));
    let mut last = (NONE, NONE, NONE);
    let mut rest = parts.as_mut_slice();
    while let [left, others @ ..] = rest {
        let Some(right) = others.first() else { break };
        if (last.0, last.1) != (left.token, right.token) {
            last = (left.token, right.token, merged(vocabulary, left.token, right.token));
        }
        left.merged = last.2;
        rest = others;
    }
}

/// Does merges while many parts merge to one token.
pub fn run(parts: &mut Vec<Part>, vocabulary: &Vocabulary) {
    while let Some(token) = lowest(parts) {
        let before = parts.len();
        merge_all(parts, vocabulary, token);
        if (before - parts.len()) * SHARE < before {
            return;
        }
    }
}

/// The token of lowest rank that two parts merge to.
fn lowest(parts: &[Part]) -> Option<u32> {
    let merged = parts.iter().map(|part| {
        work::step();
        part.merged
    });
    merged.min().filter(|&token| token != NONE)
}

fn merge_all(parts: &mut Vec<Part>, vocabulary: &Vocabulary, token: u32) {
    let (mut kept, mut at) = (0_usize, 0_usize);
    // Something of lower rank has come up. Only where a token's rank is lower than that of a part of it.
    let mut is_over = false;
    while let Some(&part) = parts.get(at) {
        work::step();
        let right = parts.get(at + 1).filter(|_| part.merged == token && !is_over);
        let new = if let Some(right) = right {
            let length = part.length + right.length;
            at += 2;
            if let Some(left) = kept.checked_sub(1).and_then(|left| parts.get_mut(left)) {
                left.merged = merged(vocabulary, left.token, token);
                is_over |= left.merged < token;
            }
            // Where the part after it is merged next, this is looked at then.
            let next = parts.get(at).filter(|next| is_over || next.merged != token);
            let merged = next.map_or(NONE, |next| merged(vocabulary, token, next.token));
            is_over |= merged < token;
            Part { token, length, merged, ..part }
        } else {
            at += 1;
            part
        };
        if let Some(place) = parts.get_mut(kept) {
            *place = new;
        }
        kept += 1;
    }
    parts.truncate(kept);
}

#[inline]
fn merged(vocabulary: &Vocabulary, left: u32, right: u32) -> u32 {
    vocabulary.merged(left, right).unwrap_or(NONE)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]

    use proptest::prelude::*;

    use super::super::{Encoding, ranked::Ranked, vocabulary::Vocabulary};

    /// One merge after the other, as they are defined.
    fn one_by_one(vocabulary: &Vocabulary, bytes: &[u8]) -> Vec<(u32, usize)> {
        let mut parts: Vec<(u32, usize)> =
            bytes.iter().map(|&byte| (vocabulary.trie.byte(byte), 1)).collect();
        let merge = |parts: &[(u32, usize)]| {
            let pairs = parts.windows(2).enumerate();
            pairs.filter_map(|(at, pair)| Some((vocabulary.merged(pair[0].0, pair[1].0)?, at))).min()
        };
        while let Some((token, at)) = merge(&parts) {
            parts[at] = (token, parts[at].1 + parts[at + 1].1);
            parts.remove(at + 1);
        }
        parts
    }

    proptest! {
        #[test]
        fn as_one_by_one(text in "[ab]{0,99}|( {0,150}|-{0,99})[=a\t]{0,3} {0,99}|(\\PC{1,3}){30}|([a-d ]{1,9}){20}", times in 1..4_usize) {
            let text = text.repeat(times);
            for &encoding in Encoding::ALL {
                let vocabulary = Vocabulary::of(encoding);
                let merged: Vec<_> = Ranked::default().tokens(vocabulary, text.as_bytes()).collect();
                prop_assert_eq!(merged, one_by_one(vocabulary, text.as_bytes()));
            }
        }
    }
}
