//! A piece of a text that arrives in parts, longer than what is kept of the text.

use super::Encoding;
use super::growing::Growing;
use super::split::contraction;
use super::split::run::{Next, Phase};
use super::vocabulary::Vocabulary;

/// What is left unread at the end of what is there: with it, the end of the piece is seen whole.
const AHEAD: usize = 16;

#[derive(Clone, Debug)]
pub struct Long {
    encoding: Encoding,
    phase: Phase,
    piece: Growing,
    fork: Option<Fork>,
}

/// What may be the piece's or a piece of its own. Both are counted until it is known which.
#[derive(Clone, Debug)]
struct Fork {
    /// Tokens of the piece without it.
    tokens: u64,
    own: Growing,
}

/// How much of a text was read.
#[derive(Default)]
struct Read {
    sure: usize,
    /// More than `sure` where it is not known yet whether it is the piece's.
    maybe: usize,
    /// The piece ends here.
    is_whole: bool,
}

impl Long {
    /// The piece that a text starts with. Removes what it reads.
    pub fn start(encoding: Encoding, text: &mut Vec<u8>) -> Option<Self> {
        let (phase, length) = Phase::start(encoding, text)?;
        let mut long = Self { encoding, phase, piece: Growing::default(), fork: None };
        long.take(text, length);
        Some(long)
    }

    /// Reads on and removes what it reads. Gives the piece's tokens when its end was there; the text then
    /// begins with the next piece.
    pub fn read(&mut self, text: &mut Vec<u8>) -> Option<u64> {
        let read = self.look(text, text.len().saturating_sub(AHEAD));
        self.take(text, read.sure);
        let maybe = read.maybe.saturating_sub(read.sure);
        if read.is_whole {
            return Some(self.end(text, maybe));
        }
        self.take_maybe(text, maybe);
        None
    }

    /// Tokens of the piece where the text ends, if it reaches as far. Removes what it reads.
    pub fn finish(mut self, text: &mut Vec<u8>) -> u64 {
        let read = self.look(text, text.len());
        if read.is_whole {
            self.take(text, read.sure);
            return self.end(text, read.maybe.saturating_sub(read.sure));
        }
        let vocabulary = Vocabulary::of(self.encoding);
        let is_one = self.phase == Phase::Lines && self.encoding == Encoding::Cl100kBase;
        // The last white space is held back for a word, and there is none.
        let sure = if self.phase == Phase::Blanks || is_one { text.len() } else { read.sure };
        self.take(text, sure);
        let rest = std::mem::take(text);
        let own = match self.fork {
            Some(mut fork) => {
                fork.own.push(vocabulary, &rest);
                return fork.tokens + fork.own.finish(vocabulary);
            }
            None => super::count_pieces(self.encoding, &rest),
        };
        self.piece.finish(vocabulary) + own
    }

    /// Bytes kept.
    #[cfg(test)]
    pub fn kept(&self) -> usize {
        self.piece.kept() + self.fork.as_ref().map_or(0, |fork| fork.own.kept())
    }

    /// Reads characters that begin before `limit`.
    fn look(&mut self, text: &[u8], limit: usize) -> Read {
        let mut read = Read::default();
        let mut at = 0;
        while at < limit {
            let (next, length) = self.phase.next(self.encoding, text, at);
            match next {
                Next::Sure(phase) => {
                    self.phase = phase;
                    // The last white space may go to the next piece.
                    read.sure = if phase == Phase::Blanks { at } else { at + length };
                }
                Next::Maybe => read.maybe = if self.phase == Phase::Lines { at } else { at + length },
                Next::End => {
                    read.is_whole = true;
                    break;
                }
                #[cfg(feature = "deepseek_v3")]
                Next::Apart => {
                    read.is_whole = true;
                    if self.phase == Phase::Blanks {
                        read.sure = at;
                    }
                    read.maybe = at;
                    break;
                }
            }
            at += length;
        }
        read
    }

    /// The first bytes are the piece's.
    fn take(&mut self, text: &mut Vec<u8>, length: usize) {
        if length > 0 {
            self.fork = None;
            self.piece.push(Vocabulary::of(self.encoding), text.get(..length).unwrap_or(&[]));
            text.drain(..length.min(text.len()));
        }
    }

    /// The first bytes may be.
    fn take_maybe(&mut self, text: &mut Vec<u8>, length: usize) {
        if length == 0 {
            return;
        }
        let vocabulary = Vocabulary::of(self.encoding);
        let piece = &self.piece;
        let fork = self.fork.get_or_insert_with(|| Fork {
            tokens: piece.clone().finish(vocabulary),
            own: Growing::default(),
        });
        let bytes = text.get(..length).unwrap_or(&[]);
        fork.own.push(vocabulary, bytes);
        self.piece.push(vocabulary, bytes);
        text.drain(..length.min(text.len()));
    }

    /// The piece ends: before the first bytes, or before what may be a piece of its own, what of it was taken
    /// already and the first `maybe` bytes.
    fn end(&mut self, text: &mut Vec<u8>, maybe: usize) -> u64 {
        let vocabulary = Vocabulary::of(self.encoding);
        match self.phase {
            // What may be ends with a word, and so does its piece.
            Phase::Both => self.take_maybe(text, maybe),
            // White space before a word is a piece less its last character. Where it was not taken yet, it is
            // as any other text.
            Phase::Lines if self.fork.is_some() => self.take_maybe(text, maybe),
            _ => {}
        }
        let is_word = matches!(self.phase, Phase::Uppers | Phase::Both | Phase::Lowers);
        let contracted =
            if is_word && self.encoding == Encoding::O200kBase { contraction(text, 0) } else { 0 };
        let ending: Vec<u8> = text.drain(..contracted.min(text.len())).collect();
        match self.fork.take() {
            Some(mut fork) => {
                fork.own.push(vocabulary, &ending);
                fork.tokens + fork.own.finish(vocabulary)
            }
            None => {
                self.piece.push(vocabulary, &ending);
                std::mem::take(&mut self.piece).finish(vocabulary)
            }
        }
    }
}
