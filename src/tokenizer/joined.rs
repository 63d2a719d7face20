//! The token count of a text that arrives in parts. Adding the counts of the parts would be wrong: `qu`
//! and `ick` are two tokens, `quick` is one.

use super::{Encoding, breaks::last_safe_break};

/// Text joined so far, counted as far as it need not be kept.
#[derive(Debug, Default)]
pub struct Joined {
    counted: u64,
    pending: Vec<u8>,
}

impl Joined {
    pub fn push(&mut self, part: &[u8]) {
        self.pending.extend_from_slice(part);
    }

    /// Bytes kept.
    pub fn kept(&self) -> usize {
        self.pending.len()
    }

    /// Counts all that is kept up to its last safe break, so that little is kept. The count stays exact
    /// where there is a break.
    pub fn compact(&mut self, encoding: Encoding) {
        let end = last_safe_break(&self.pending).unwrap_or_else(|| whole_characters(&self.pending));
        let done = self.pending.get(..end).unwrap_or(&[]);
        self.counted = self.counted.saturating_add(encoding.count(&String::from_utf8_lossy(done)));
        self.pending.drain(..end.min(self.pending.len()));
    }

    /// Counts what is kept up to its last safe break, if there is one.
    pub fn compact_at_break(&mut self, encoding: Encoding) {
        if let Some(end) = last_safe_break(&self.pending) {
            let done = self.pending.get(..end).unwrap_or(&[]);
            self.counted = self.counted.saturating_add(encoding.count(&String::from_utf8_lossy(done)));
            self.pending.drain(..end.min(self.pending.len()));
        }
    }

    /// Tokens of the whole text.
    pub fn total(&self, encoding: Encoding) -> u64 {
        self.counted.saturating_add(encoding.count(&String::from_utf8_lossy(&self.pending)))
    }
}

/// The length without a character that is cut at the end.
fn whole_characters(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        _ => bytes.len(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing)]
    use super::*;

    #[test]
    fn parts_are_counted_joined() {
        let mut joined = Joined::default();
        for part in ["The", " qu", "ick", " bro", "wn", " fo", "x"] {
            joined.push(part.as_bytes());
        }
        assert_eq!(joined.total(Encoding::O200kBase), 4);
    }

    #[test]
    fn compacting_keeps_the_count() {
        let text = "Words of 价格 and 🙂 with numbers 12345, again. ".repeat(300);
        let (mut joined, mut largest) = (Joined::default(), 0);
        for part in text.as_bytes().chunks(7) {
            joined.push(part);
            if joined.kept() > 512 {
                joined.compact(Encoding::O200kBase);
            }
            largest = largest.max(joined.kept());
        }
        assert!(largest < 600);
        assert_eq!(joined.total(Encoding::O200kBase), Encoding::O200kBase.count(&text));
    }

    #[test]
    fn a_run_without_a_break_is_cut_at_a_character() {
        let mut joined = Joined::default();
        joined.push(&"价".repeat(100).as_bytes()[..298]);
        joined.compact(Encoding::O200kBase);
        assert_eq!(joined.kept(), 1);
    }
}
