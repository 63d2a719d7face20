//! A value that no rule covers: text as it is written, and binary data that must not be taken for text.

use crate::json::Binary;

/// Less than this, in bytes, is taken for a setting, a name or an address.
const SHORT: usize = 256;

/// What is too short to count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Threshold {
    /// Nothing.
    #[default]
    None,
    /// Short text beside media.
    Text,
    /// A value that is short as a whole.
    Whole,
}

#[derive(Debug, Default)]
pub struct Loose {
    binary: Binary,
    threshold: Threshold,
    /// As it is written.
    length: usize,
    /// Text that may turn out to be too short. Empty once it is not.
    kept: Vec<u8>,
    is_long: bool,
}

impl Loose {
    /// For the value of the member with this name.
    pub fn new(key: &[u8], threshold: Threshold) -> Self {
        Self {
            binary: Binary::under(key),
            threshold,
            is_long: threshold == Threshold::None,
            ..Self::default()
        }
    }

    pub fn threshold(&self) -> Threshold {
        self.threshold
    }

    /// Reads on and hands out the text that counts.
    pub fn push(&mut self, piece: &[u8], mut text: impl FnMut(&[u8])) {
        self.length = self.length.saturating_add(piece.len());
        let Self { binary, kept, is_long, .. } = self;
        binary.push(piece, |piece| {
            if !*is_long && kept.len() + piece.len() <= SHORT {
                return kept.extend_from_slice(piece);
            }
            *is_long = true;
            text(&std::mem::take(kept));
            text(piece);
        });
    }

    /// How many pieces of media it held, and whether it counts as a whole.
    pub fn end(self, mut text: impl FnMut(&[u8])) -> (u64, bool) {
        let counts = self.length > SHORT;
        if self.threshold == Threshold::Whole && counts {
            text(&self.kept);
        }
        (self.binary.found(), counts)
    }
}
