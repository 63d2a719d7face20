//! How many tokens a piece has.
//!
//! Byte-pair encoding merges the lowest rank first. The same tokens come out from left to right: tokens
//! are what the merges make of a text exactly if every two neighbours, merged by themselves, stay apart.
//! So this takes the longest token that stays apart from the one before, and where none does it takes one
//! back and goes on with a shorter one. No end is tried twice, which makes it linear.

use super::{trie::Prefixes, vocabulary::Vocabulary};

/// Pieces up to this long need no memory beyond the stack.
const SHORT: usize = 256;
const BITS: usize = 64;
/// A token this long is tried again before longer ones.
const REPEATED: usize = 8;

/// Memory used again from piece to piece.
#[derive(Debug, Default)]
pub struct Scratch {
    prefixes: Prefixes,
    long: Vec<Marks>,
}

/// What is known of 64 places of a piece.
#[derive(Clone, Copy, Debug, Default)]
struct Marks {
    /// A token starts here.
    starts: u64,
    /// Nothing that follows can stay apart from what ends here.
    dead: u64,
}

/// Tokens of one piece. A piece that is a token is one token, however the merges would go.
#[inline]
pub fn count_piece(vocabulary: &Vocabulary, piece: &[u8], scratch: &mut Scratch) -> u64 {
    vocabulary.trie.prefixes(piece, &mut scratch.prefixes);
    if scratch.prefixes.longest() == piece.len() {
        return 1;
    }
    if piece.len() < SHORT {
        merge(vocabulary, piece, &mut scratch.prefixes, &mut [Marks::default(); SHORT / BITS])
    } else {
        scratch.long.clear();
        scratch.long.resize(piece.len() / BITS + 1, Marks::default());
        merge(vocabulary, piece, &mut scratch.prefixes, &mut scratch.long)
    }
}

/// Takes the tokens that the piece starts with.
fn merge(vocabulary: &Vocabulary, piece: &[u8], found: &mut Prefixes, marks: &mut [Marks]) -> u64 {
    let mut count = 0;
    let mut at = 0;
    let mut before = None;
    loop {
        let fits = |&(token, length): &(u32, usize)| {
            !is_dead(marks, at + length)
                && before.is_none_or(|(before, _)| vocabulary.stay_apart(before, token))
        };
        // In a long run, longer tokens stay apart from the one before too, but only at its end.
        let again = before.filter(|&(_, length)| length >= REPEATED && found.has(length));
        let again = again.filter(|&(_, length)| repeats(piece, at, length)).filter(fits);
        let next = again.or_else(|| std::iter::from_fn(|| found.pop(&vocabulary.trie)).find(fits));
        if let Some((token, length)) = next {
            mark(marks, at, |marks, bit| marks.starts |= bit);
            count += 1;
            before = Some((token, length));
            at += length;
            if at == piece.len() {
                return count;
            }
            vocabulary.trie.prefixes(piece.get(at..).unwrap_or(&[]), found);
        } else {
            // Every byte is a token, so this is not reached at the start.
            let Some(start) = last_start(marks, at) else { return count };
            mark(marks, at, |marks, bit| marks.dead |= bit);
            mark(marks, start, |marks, bit| marks.starts &= !bit);
            count -= 1;
            before = last_start(marks, start).and_then(|before| {
                vocabulary.trie.prefixes(piece.get(before..start).unwrap_or(&[]), found);
                found.pop(&vocabulary.trie)
            });
            // Longer tokens than the one taken back have been tried, unless it came first as a repetition.
            let is_again = before.is_some_and(|(_, length)| length >= REPEATED && length == at - start);
            let tried = if is_again { piece.len() } else { at - 1 };
            vocabulary.trie.prefixes(piece.get(start..tried).unwrap_or(&[]), found);
            at = start;
        }
    }
}

/// Whether the bytes before `at` come again.
fn repeats(piece: &[u8], at: usize, length: usize) -> bool {
    piece.get(at - length..at) == piece.get(at..at + length)
}

fn is_dead(marks: &[Marks], at: usize) -> bool {
    marks.get(at / BITS).is_some_and(|marks| marks.dead >> (at % BITS) & 1 != 0)
}

fn mark(marks: &mut [Marks], at: usize, set: impl FnOnce(&mut Marks, u64)) {
    if let Some(marks) = marks.get_mut(at / BITS) {
        set(marks, 1 << (at % BITS));
    }
}

/// Where the last token before `at` starts.
fn last_start(marks: &[Marks], at: usize) -> Option<usize> {
    let word = at / BITS;
    let below = marks.get(word)?.starts & ((1 << (at % BITS)) - 1);
    if below != 0 {
        return Some(word * BITS + below.ilog2() as usize);
    }
    let (word, marks) = marks.get(..word)?.iter().enumerate().rfind(|(_, marks)| marks.starts != 0)?;
    Some(word * BITS + marks.starts.ilog2() as usize)
}
