//! A piece that is too long to be kept: it is counted while it grows, and only its end is kept.

use super::merge::{AHEAD, BITS, Marks, Place, Scratch, Search, count_piece};
use super::vocabulary::Vocabulary;

#[derive(Clone, Debug, Default)]
pub struct Growing {
    bytes: Vec<u8>,
    marks: Vec<Marks>,
    place: Place,
    is_cut: bool,
}

impl Growing {
    /// Bytes that are kept before the place that the search has come to. It never goes back nearly as far.
    const KEPT: usize = 2 * 1024;
    /// Closer to the cut it cannot go back.
    const FLOOR: usize = 256;
    /// Bytes that are taken in between two searches.
    const STEP: usize = 4 * 1024;

    pub fn push(&mut self, vocabulary: &Vocabulary, bytes: &[u8]) {
        for step in bytes.chunks(Self::STEP) {
            self.bytes.extend_from_slice(step);
            if self.bytes.len() >= self.place.at + Self::STEP + AHEAD {
                self.search(vocabulary, self.bytes.len() - AHEAD);
                self.cut();
            }
        }
    }

    #[cfg(test)]
    pub fn kept(&self) -> usize {
        self.bytes.capacity() + self.marks.capacity() * size_of::<Marks>()
    }

    /// Tokens of the piece, which ends here.
    pub fn finish(mut self, vocabulary: &Vocabulary) -> u64 {
        if self.place.at == 0 && !self.is_cut {
            return count_piece(vocabulary, &self.bytes, &mut Scratch::default());
        }
        self.search(vocabulary, self.bytes.len());
        self.place.count
    }

    fn search(&mut self, vocabulary: &Vocabulary, stop: usize) {
        if self.place.at >= stop {
            return;
        }
        self.marks.resize(self.bytes.len() / BITS + 1, Marks::default());
        let Scratch { mut prefixes, mut ranked, .. } = Scratch::default();
        let mut search = Search::new(vocabulary, &self.bytes, &mut self.marks);
        search.place = self.place;
        search.floor = if self.is_cut { Self::FLOOR } else { 0 };
        vocabulary.trie.prefixes(search.rest(), &mut prefixes);
        search.run(&mut prefixes, &mut ranked, stop);
        debug_assert!(!search.is_lost, "the search went back over {} bytes", Self::KEPT);
        self.place = search.place;
    }

    /// Forgets what the search has left behind.
    fn cut(&mut self) {
        let words = self.place.at.saturating_sub(Self::KEPT) / BITS;
        if words == 0 {
            return;
        }
        self.marks.drain(..words.min(self.marks.len()));
        self.bytes.drain(..words * BITS);
        self.place.at -= words * BITS;
        self.place.furthest = self.place.furthest.saturating_sub(words * BITS);
        self.place.ask_at = self.place.ask_at.saturating_sub(words * BITS);
        self.is_cut = true;
    }
}
