//! The last merge that makes each token.

use std::collections::HashMap;

pub struct Splits {
    /// Per token: the low byte of the left part's rank, then of the right part's.
    pub low: Vec<u8>,
    /// The next bytes, likewise: they compress better apart.
    pub middle: Vec<u8>,
    /// Per token: the left part's higher bits in the low half, the right part's in the high half.
    pub high: Vec<u8>,
}

/// A single byte is its own left and right part.
///
/// The counter relies on what is checked here: every token comes out of its bytes by merges of lower rank.
pub fn splits(tokens: &[Vec<u8>]) -> Result<Splits, String> {
    let ranks: HashMap<&[u8], u32> =
        tokens.iter().zip(0..).map(|(token, rank)| (token.as_slice(), rank)).collect();
    let mut splits = Splits { low: Vec::new(), middle: Vec::new(), high: Vec::new() };
    for (token, rank) in tokens.iter().zip(0_u32..) {
        let (left, right) = match token.len() {
            1 => (rank, rank),
            _ => last_merge(token, rank, &ranks).ok_or_else(|| format!("token {rank} is out of reach"))?,
        };
        let ([left_low, left_middle, ..], [right_low, right_middle, ..]) =
            (left.to_le_bytes(), right.to_le_bytes());
        splits.low.extend([left_low, right_low]);
        splits.middle.extend([left_middle, right_middle]);
        let high = (left >> 16) | (right >> 16) << 4;
        splits.high.push(u8::try_from(high).map_err(|error| error.to_string())?);
    }
    Ok(splits)
}

/// Merges the bytes of a token, lowest rank first, until two parts are left.
fn last_merge(token: &[u8], rank: u32, ranks: &HashMap<&[u8], u32>) -> Option<(u32, u32)> {
    let find = |from: usize, to: usize| token.get(from..to).and_then(|bytes| ranks.get(bytes)).copied();
    let mut cuts: Vec<usize> = (0..=token.len()).collect();
    while cuts.len() > 3 {
        let pairs = cuts.windows(3).enumerate();
        let merges = pairs.filter_map(|(at, cut)| Some((find(*cut.first()?, *cut.last()?)?, at)));
        let (_, at) = merges.filter(|(merged, _)| *merged < rank).min()?;
        cuts.remove(at + 1);
    }
    match cuts.as_slice() {
        &[start, middle, end] => {
            let (left, right) = (find(start, middle)?, find(middle, end)?);
            (left < rank && right < rank).then_some((left, right))
        }
        _ => None,
    }
}
