//! The ways in which bytes can arrive.

use crate::rng::Rng;

/// Ways to cut `bytes`: whole, one byte at a time (if short), in two, and at random, some pieces empty.
pub fn cuts(bytes: &[u8]) -> Vec<Vec<&[u8]>> {
    let mut rng = Rng::of(bytes);
    let mut all = vec![vec![bytes]];
    if bytes.len() <= 2_048 {
        all.push(bytes.chunks(1).collect());
    }
    for _ in 0..3 {
        let (a, b) = bytes.split_at(rng.below(bytes.len() + 1));
        all.push(vec![a, b]);
    }
    for longest in [3, 40, 1_500] {
        let (mut rest, mut pieces) = (bytes, Vec::new());
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rng.below(longest + 1).min(rest.len()));
            pieces.push(piece);
            rest = after;
        }
        all.push(pieces);
    }
    all
}
