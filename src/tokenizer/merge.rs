//! How many tokens a piece has.
//!
//! Byte-pair encoding merges the lowest rank first. The same tokens come out from left to right: tokens
//! are what the merges make of a text exactly if every two neighbours, merged by themselves, stay apart.
//! So this takes the longest token that stays apart from the one before, and where none does it takes one
//! back and goes on with a shorter one. No end is tried twice, which makes it linear.

use super::{ranked::Ranked, trie::Prefixes, vocabulary::Vocabulary};

/// Pieces up to this long need no memory beyond the stack.
const SHORT: usize = 256;
pub const BITS: usize = 64;
/// A token this long is tried again before longer ones.
const REPEATED: usize = 8;

/// After so many tokens that did not fit, the ranked merges are asked for the way: they take about as long
/// as some hundred misses, as some dozen where the text repeats itself,
const MAX_MISSES: usize = 24;
/// for so many bytes ahead,
const WINDOW: usize = 1_024;
/// and not much of the last of them is sure,
const WINDOW_EDGE: usize = 128;
/// but not again before this many bytes later.
const ASK_AGAIN: usize = 256;

/// What a search needs to see ahead of where it is, so that it goes on as if it saw all of the piece.
pub const AHEAD: usize = WINDOW + WINDOW_EDGE;

/// Memory used again from piece to piece.
#[derive(Debug, Default)]
pub struct Scratch {
    pub prefixes: Prefixes,
    pub ranked: Ranked,
    long: Vec<Marks>,
}

/// What is known of 64 places of a piece.
#[derive(Clone, Copy, Debug, Default)]
pub struct Marks {
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
    #[cfg(feature = "llama3")]
    if vocabulary.is_alone(piece) {
        return 1;
    }
    let Scratch { prefixes, ranked, long } = scratch;
    if piece.len() < SHORT {
        Search::new(vocabulary, piece, &mut [Marks::default(); SHORT / BITS]).run(
            prefixes,
            ranked,
            piece.len(),
        )
    } else {
        long.clear();
        long.resize(piece.len() / BITS + 1, Marks::default());
        Search::new(vocabulary, piece, long).run(prefixes, ranked, piece.len())
    }
}

/// The tokens of the piece up to a place, all staying apart.
pub struct Search<'a> {
    vocabulary: &'a Vocabulary,
    piece: &'a [u8],
    marks: &'a mut [Marks],
    pub place: Place,
    /// What comes before is not here any more.
    pub floor: usize,
    /// It would have had to go back there.
    pub is_lost: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Place {
    pub count: u64,
    pub at: usize,
    /// The last token and its length.
    before: Option<(u32, usize)>,
    /// Tokens that did not fit, less the bytes that were come further.
    misses: usize,
    pub furthest: usize,
    /// Where it may ask for the ranked merges again.
    pub ask_at: usize,
}

impl<'a> Search<'a> {
    #[inline(always)]
    pub fn new(vocabulary: &'a Vocabulary, piece: &'a [u8], marks: &'a mut [Marks]) -> Self {
        Self { vocabulary, piece, marks, place: Place::default(), floor: 0, is_lost: false }
    }

    /// Takes the tokens from here to `stop`, the piece's end or less by what must be seen ahead. `found` are the
    /// tokens that the rest starts with.
    pub fn run(&mut self, found: &mut Prefixes, ranked: &mut Ranked, stop: usize) -> u64 {
        loop {
            let next = self.repetition(found).or_else(|| {
                std::iter::from_fn(|| found.pop(&self.vocabulary.trie)).find(|&next| {
                    let fits = self.fits(next);
                    self.place.misses += usize::from(!fits);
                    fits
                })
            });
            match next {
                Some(next) => {
                    self.take(next);
                    self.place.misses =
                        self.place.misses.saturating_sub(self.place.at.saturating_sub(self.place.furthest));
                    self.place.furthest = self.place.furthest.max(self.place.at);
                }
                // Every byte is a token, so there is one to take back.
                None if !self.take_back(found) => return self.place.count,
                None => continue,
            }
            if self.place.misses > MAX_MISSES && self.place.at >= self.place.ask_at {
                self.ask(found, ranked);
            }
            if self.place.at >= stop {
                return self.place.count;
            }
            self.vocabulary.trie.prefixes(self.rest(), found);
        }
    }

    pub fn rest(&self) -> &'a [u8] {
        self.piece.get(self.place.at..).unwrap_or(&[])
    }

    fn fits(&self, (token, length): (u32, usize)) -> bool {
        !is_dead(self.marks, self.place.at + length)
            && self.place.before.is_none_or(|(before, _)| self.vocabulary.stay_apart(before, token))
    }

    /// In a long run, longer tokens stay apart from the one before too, but only at its end.
    fn repetition(&self, found: &Prefixes) -> Option<(u32, usize)> {
        let again = self.place.before.filter(|&(_, length)| length >= REPEATED && found.has(length));
        again
            .filter(|&(_, length)| repeats(self.piece, self.place.at, length))
            .filter(|&again| self.fits(again))
    }

    fn take(&mut self, (token, length): (u32, usize)) {
        mark(self.marks, self.place.at, |marks, bit| marks.starts |= bit);
        self.place.count += 1;
        self.place.before = Some((token, length));
        self.place.at += length;
    }

    /// Forgets the last token, and says where it started.
    fn forget(&mut self) -> Option<usize> {
        let start = last_start(self.marks, self.place.at)?;
        self.is_lost |= start < self.floor;
        mark(self.marks, start, |marks, bit| marks.starts &= !bit);
        self.place.count -= 1;
        self.place.at = start;
        Some(start)
    }

    /// Takes the last token back, as nothing fits after it, and finds what else there is.
    fn take_back(&mut self, found: &mut Prefixes) -> bool {
        let end = self.place.at;
        let Some(start) = self.forget() else { return false };
        mark(self.marks, end, |marks, bit| marks.dead |= bit);
        self.find_before(found);
        // Longer tokens than the one taken back have been tried, unless it came first as a repetition.
        let is_again =
            self.place.before.is_some_and(|(_, length)| length >= REPEATED && length == end - start);
        let tried = if is_again { self.piece.len() } else { end - 1 };
        self.vocabulary.trie.prefixes(self.piece.get(start..tried).unwrap_or(&[]), found);
        true
    }

    fn find_before(&mut self, found: &mut Prefixes) {
        self.place.before = last_start(self.marks, self.place.at).and_then(|before| {
            self.vocabulary.trie.prefixes(self.piece.get(before..self.place.at).unwrap_or(&[]), found);
            found.pop(&self.vocabulary.trie)
        });
    }

    /// Has the ranked merges show the way from a place some way back. Their tokens stay apart, so where the
    /// first one also stays apart from the token before, the tokens are what the merges make of the text so
    /// far, like any others. The last ones may change with what follows and are left out.
    fn ask(&mut self, found: &mut Prefixes, ranked: &mut Ranked) {
        self.place.misses = 0;
        self.place.ask_at = self.place.at + ASK_AGAIN;
        let asked = self.place.at;
        while asked - self.place.at < WINDOW_EDGE && self.forget().is_some() {}
        self.find_before(found);
        let window = self.rest().get(..WINDOW).unwrap_or(self.rest());
        let is_last = self.place.at + window.len() == self.piece.len();
        let edge = self.place.at + if is_last { window.len() } else { window.len() - WINDOW_EDGE };
        let mut tokens = ranked.tokens(self.vocabulary, window).peekable();
        let first = tokens.peek().copied();
        if let (Some((before, _)), Some((first, _))) = (self.place.before, first)
            && !self.vocabulary.stay_apart(before, first)
        {
            return;
        }
        for token in tokens {
            if self.place.at + token.1 > edge {
                break;
            }
            self.take(token);
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
