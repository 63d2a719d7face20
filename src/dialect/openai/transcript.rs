//! The text that an answer delivered, for counting it when the provider reports no usage.

use crate::json::scan::Name;
use crate::tokenizer::{Encoding, Joined};

/// Text that waits to be counted, of the whole answer.
const MAX_KEPT: usize = 16 * 1024;
/// Choices kept apart: as many as a request can ask for. Further ones join the last.
const MAX_CHOICES: usize = 128;

/// One text of a choice: pieces of the same channel are joined before they are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    Content,
    Reasoning,
    Refusal,
    ToolName,
    ToolArguments,
    Other,
}

/// The member of a choice that texts stand in. Servers that send a text in two of them send it twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    Delta,
    Message,
    Text,
}

/// Where a text stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    pub carrier: Carrier,
    pub channel: Channel,
    /// Of the member. The same reasoning may stand under several names.
    pub name: Name,
}

/// The texts of one choice.
#[derive(Debug)]
struct Choice {
    number: u64,
    carrier: Carrier,
    reasoning: Option<Name>,
    channels: Channels,
}

#[derive(Debug, Default)]
struct Channels {
    content: Joined,
    reasoning: Joined,
    refusal: Joined,
    tool_name: Joined,
    tool_arguments: Joined,
    other: Joined,
}

#[derive(Debug)]
pub struct Transcript {
    encoding: Encoding,
    choices: Vec<Choice>,
    kept: usize,
}

impl Transcript {
    pub fn new(encoding: Encoding) -> Self {
        Self { encoding, choices: Vec::new(), kept: 0 }
    }

    /// Whether any text was delivered.
    pub fn has_text(&self) -> bool {
        !self.choices.is_empty()
    }

    /// Takes a piece of a choice's text, unless it is one that the choice has in another place already.
    pub fn push(&mut self, number: u64, source: Source, piece: &[u8]) {
        if piece.is_empty() {
            return;
        }
        let at = self.choices.iter().position(|choice| choice.number == number);
        if at.is_none() && self.choices.len() < MAX_CHOICES {
            self.choices.push(Choice::new(number, source.carrier));
        }
        let last = self.choices.len().saturating_sub(1);
        let Some(choice) = self.choices.get_mut(at.unwrap_or(last)) else { return };
        if source.carrier != choice.carrier {
            return;
        }
        if source.channel == Channel::Reasoning && *choice.reasoning.get_or_insert(source.name) != source.name
        {
            return;
        }
        choice.channels.joined(source.channel).push(piece);
        self.kept += piece.len();
        if self.kept > MAX_KEPT {
            self.compact();
        }
    }

    fn compact(&mut self) {
        let all = self.choices.iter().flat_map(|choice| choice.channels.all());
        let keep = MAX_KEPT / 2 / all.filter(|joined| joined.kept() > 0).count().max(1);
        self.kept = 0;
        for joined in self.choices.iter_mut().flat_map(|choice| choice.channels.all_mut()) {
            joined.compact(self.encoding, keep);
            self.kept += joined.kept();
        }
    }

    /// Output tokens of all that was delivered.
    pub fn tokens(&self) -> u64 {
        let all = self.choices.iter().flat_map(|choice| choice.channels.all());
        all.map(|joined| joined.total(self.encoding)).fold(0, u64::saturating_add)
    }
}

impl Choice {
    fn new(number: u64, carrier: Carrier) -> Self {
        Self { number, carrier, reasoning: None, channels: Channels::default() }
    }
}

impl Channels {
    fn joined(&mut self, channel: Channel) -> &mut Joined {
        match channel {
            Channel::Content => &mut self.content,
            Channel::Reasoning => &mut self.reasoning,
            Channel::Refusal => &mut self.refusal,
            Channel::ToolName => &mut self.tool_name,
            Channel::ToolArguments => &mut self.tool_arguments,
            Channel::Other => &mut self.other,
        }
    }

    fn all(&self) -> [&Joined; 6] {
        let Self { content, reasoning, refusal, tool_name, tool_arguments, other } = self;
        [content, reasoning, refusal, tool_name, tool_arguments, other]
    }

    fn all_mut(&mut self) -> [&mut Joined; 6] {
        let Self { content, reasoning, refusal, tool_name, tool_arguments, other } = self;
        [content, reasoning, refusal, tool_name, tool_arguments, other]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTENT: Source =
        Source { carrier: Carrier::Delta, channel: Channel::Content, name: Name::Content };

    #[test]
    fn channels_are_joined_apart() {
        let mut transcript = Transcript::new(Encoding::O200kBase);
        for (choice, piece) in [(0, "inter"), (1, "quick"), (0, "nationalization"), (1, " brown")] {
            transcript.push(choice, CONTENT, piece.as_bytes());
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
            transcript.push(0, CONTENT, piece.as_bytes());
        }
        assert!(transcript.kept <= MAX_KEPT);
        assert_eq!(transcript.tokens(), Encoding::O200kBase.count(&piece.repeat(5_000)));
        for choice in 0..100_000 {
            transcript.push(choice, CONTENT, b"x ");
        }
        assert!(transcript.choices.len() <= MAX_CHOICES && transcript.kept <= 2 * MAX_KEPT);
    }
}
