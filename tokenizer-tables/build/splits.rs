//! The last merge that makes each token.

use std::collections::HashMap;

#[derive(Default)]
pub struct Splits {
    /// Per token: the lower 16 bits of the left part's rank, then of the right part's.
    pub low: Vec<u8>,
    /// Per token: the left part's higher bits in the low half, the right part's in the high half.
    pub high: Vec<u8>,
    /// The tokens whose bytes do not merge in the order of the ranks.
    pub disordered: Vec<u32>,
}

/// A token's parts before its last merge.
struct Merge {
    left: u32,
    right: u32,
    /// All merges that lead to it were of lower rank, each of lower rank than the next.
    is_in_order: bool,
}

/// A single byte is its own left and right part.
///
/// The counter relies on what is checked here: every token comes out of its bytes by merges.
pub fn splits(tokens: &[Vec<u8>]) -> Result<Splits, String> {
    let ranks = ranks(tokens);
    let mut splits = Splits::default();
    for (token, rank) in tokens.iter().zip(0_u32..) {
        let merge = match token.len() {
            1 => Merge { left: rank, right: rank, is_in_order: true },
            _ => last_merge(token, rank, &ranks).ok_or_else(|| format!("token {rank} is out of reach"))?,
        };
        let ([left_low, left_high, ..], [right_low, right_high, ..]) =
            (merge.left.to_le_bytes(), merge.right.to_le_bytes());
        splits.low.extend([left_low, left_high, right_low, right_high]);
        let high = (merge.left >> 16) | (merge.right >> 16) << 4;
        splits.high.push(u8::try_from(high).map_err(|error| error.to_string())?);
        splits.disordered.extend((!merge.is_in_order).then_some(rank));
    }
    Ok(splits)
}

/// Takes out the tokens that no merges lead to. As the merges inside of a token never look beyond it, none leads
/// to such a token in any text, and the others' merges are the same without them.
#[cfg(feature = "llama3")]
pub fn take_unreachable(tokens: &mut Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let ranks = ranks(tokens);
    let is_reachable =
        |(token, rank): (&Vec<u8>, u32)| token.len() == 1 || last_merge(token, rank, &ranks).is_some();
    let mut reachable = tokens.iter().zip(0..).map(is_reachable).collect::<Vec<_>>().into_iter();
    tokens.extract_if(.., |_| reachable.next() == Some(false)).collect()
}

fn ranks(tokens: &[Vec<u8>]) -> HashMap<&[u8], u32> {
    tokens.iter().zip(0..).map(|(token, rank)| (token.as_slice(), rank)).collect()
}

/// Merges the bytes of a token, lowest rank first, until two parts are left.
fn last_merge(token: &[u8], rank: u32, ranks: &HashMap<&[u8], u32>) -> Option<Merge> {
    let find = |from: usize, to: usize| token.get(from..to).and_then(|bytes| ranks.get(bytes)).copied();
    let mut cuts: Vec<usize> = (0..=token.len()).collect();
    let (mut latest, mut is_in_order) = (0, true);
    while cuts.len() > 3 {
        let pairs = cuts.windows(3).enumerate();
        let merges = pairs.filter_map(|(at, cut)| Some((find(*cut.first()?, *cut.last()?)?, at)));
        let (merged, at) = merges.min()?;
        is_in_order &= merged >= latest;
        latest = merged;
        cuts.remove(at + 1);
    }
    match cuts.as_slice() {
        &[start, middle, end] => {
            let (left, right) = (find(start, middle)?, find(middle, end)?);
            Some(Merge { left, right, is_in_order: is_in_order && rank > latest })
        }
        _ => None,
    }
}
