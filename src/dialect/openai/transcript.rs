//! The text that an answer delivered, for counting it when the provider reports no usage.

use crate::tokenizer::{Encoding, Joined};

/// Text that waits to be counted, of the whole answer.
const MAX_KEPT: usize = 16 * 1024;
/// Channels kept apart; 128 choices with content and reasoning each. Further ones join the last.
const MAX_CHANNELS: usize = 256;

/// One text of a choice: pieces of the same channel are joined before they are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    Content,
    Reasoning,
    Refusal,
    ToolName,
    ToolArguments,
}

#[derive(Debug)]
pub struct Transcript {
    encoding: Encoding,
    channels: Vec<((u64, Channel), Joined)>,
    kept: usize,
    has_text: bool,
}

impl Transcript {
    pub fn new(encoding: Encoding) -> Self {
        Self { encoding, channels: Vec::new(), kept: 0, has_text: false }
    }

    /// Whether any text was delivered.
    pub fn has_text(&self) -> bool {
        self.has_text
    }

    pub fn push(&mut self, choice: u64, channel: Channel, piece: &[u8]) {
        if piece.is_empty() {
            return;
        }
        self.has_text = true;
        let key = (choice, channel);
        let at = self.channels.iter().position(|(other, _)| *other == key);
        if at.is_none() && self.channels.len() < MAX_CHANNELS {
            self.channels.push((key, Joined::default()));
        }
        let last = self.channels.len().saturating_sub(1);
        if let Some((_, joined)) = self.channels.get_mut(at.unwrap_or(last)) {
            joined.push(piece);
            self.kept += piece.len();
        }
        if self.kept > MAX_KEPT {
            let keep = MAX_KEPT / 2 / self.channels.len().max(1);
            for (_, joined) in &mut self.channels {
                joined.compact(self.encoding, keep);
            }
            self.kept = self.channels.iter().map(|(_, joined)| joined.kept()).sum();
        }
    }

    /// Output tokens of all that was delivered.
    pub fn tokens(&self) -> u64 {
        self.channels.iter().map(|(_, joined)| joined.total(self.encoding)).fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_are_joined_apart() {
        let mut transcript = Transcript::new(Encoding::O200kBase);
        for (choice, piece) in [(0, "inter"), (1, "quick"), (0, "nationalization"), (1, " brown")] {
            transcript.push(choice, Channel::Content, piece.as_bytes());
        }
        let expected =
            Encoding::O200kBase.count("internationalization") + Encoding::O200kBase.count("quick brown");
        assert_eq!(transcript.tokens(), expected);
    }

    #[test]
    fn long_texts_are_not_kept() {
        let mut transcript = Transcript::new(Encoding::O200kBase);
        let piece = "some more words of an endless answer ";
        for _ in 0..5_000 {
            transcript.push(0, Channel::Content, piece.as_bytes());
        }
        assert!(transcript.kept <= MAX_KEPT);
        assert_eq!(transcript.tokens(), Encoding::O200kBase.count(&piece.repeat(5_000)));
        for choice in 0..100_000 {
            transcript.push(choice, Channel::Content, b"x ");
        }
        assert!(transcript.channels.len() <= MAX_CHANNELS && transcript.kept <= 2 * MAX_KEPT);
    }
}
