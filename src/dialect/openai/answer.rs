//! Reads usage, errors and delivered text out of an answer, stream or not.
//!
//! Every report replaces the one before: vLLM sends running totals, others send the same report twice.

use tokengate_api::Usage;

use super::transcript::{Channel, Transcript};
use crate::json::scan::{Container, Frame, Name, Visitor};
use crate::tokenizer::Encoding;

use Frame::{Item, Member};

/// Above this a number of tokens is no number of tokens.
const ABSURD: u64 = 1 << 40;
/// Text of one choice of one event that waits until the choice's index is known.
const MAX_WAITING: usize = 16 * 1024;

pub struct Answer {
    transcript: Transcript,
    /// The last usable report.
    usage: Option<Usage>,
    /// An error object was seen before any text.
    failed_at_once: bool,
    event: Event,
}

/// What is known of the event, or the JSON body, being read.
#[derive(Default)]
struct Event {
    is_object: bool,
    choices: Choices,
    usage_is_object: bool,
    report: Report,
    index: Option<u64>,
    position: u64,
    waiting: Vec<(Channel, Vec<u8>)>,
    waiting_bytes: usize,
    number_text: Vec<u8>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Choices {
    #[default]
    Unseen,
    Empty,
    Some,
}

/// The numbers of one usage object, as far as they are numbers.
#[derive(Clone, Copy, Default)]
struct Report {
    prompt: Option<u64>,
    completion: Option<u64>,
    total: Option<u64>,
    cached: Option<u64>,
    cache_write: Option<u64>,
    reasoning: Option<u64>,
}

impl Report {
    fn slot(&mut self, path: &[Frame]) -> Option<&mut Option<u64>> {
        match path {
            [Member(Name::Usage), Member(Name::PromptTokens)] => Some(&mut self.prompt),
            [Member(Name::Usage), Member(Name::CompletionTokens)] => Some(&mut self.completion),
            [Member(Name::Usage), Member(Name::TotalTokens)] => Some(&mut self.total),
            [Member(Name::Usage), Member(Name::PromptTokensDetails), Member(Name::CachedTokens)] => {
                Some(&mut self.cached)
            }
            [Member(Name::Usage), Member(Name::PromptTokensDetails), Member(Name::CacheWriteTokens)] => {
                Some(&mut self.cache_write)
            }
            [Member(Name::Usage), Member(Name::CompletionTokensDetails), Member(Name::ReasoningTokens)] => {
                Some(&mut self.reasoning)
            }
            _ => None,
        }
    }

    /// The classes made disjoint; `None` when there is no number to use.
    fn usage(&self) -> Option<Usage> {
        let rest = |part: Option<u64>| part.and_then(|part| self.total?.checked_sub(part));
        let prompt = self.prompt.or_else(|| rest(self.completion)).or(self.total).unwrap_or(0);
        let completion = self.completion.or_else(|| rest(self.prompt)).unwrap_or(0);
        if (prompt, completion) == (0, 0) || prompt > ABSURD || completion > ABSURD {
            return None;
        }
        let cache_read = self.cached.unwrap_or(0).min(prompt);
        let cache_write = self.cache_write.unwrap_or(0).min(prompt - cache_read);
        let reasoning = self.reasoning.unwrap_or(0).min(completion);
        Some(Usage {
            input: prompt - cache_read - cache_write,
            cache_read,
            cache_write,
            output: completion - reasoning,
            reasoning,
        })
    }
}

impl Answer {
    pub fn new(encoding: Encoding) -> Self {
        Self {
            transcript: Transcript::new(encoding),
            usage: None,
            failed_at_once: false,
            event: Event::default(),
        }
    }

    /// The provider's last usable report.
    pub fn usage(&self) -> Option<Usage> {
        self.usage
    }

    /// The provider failed before it delivered any text.
    pub fn failed_at_once(&self) -> bool {
        self.failed_at_once
    }

    /// Tokens of all delivered text.
    pub fn delivered_tokens(&self) -> u64 {
        self.transcript.tokens()
    }

    /// The event just read is the chunk that a stream ends with when usage was asked for.
    pub fn event_is_usage_chunk(&self) -> bool {
        self.event.is_object && self.event.usage_is_object && self.event.choices == Choices::Empty
    }

    /// The event being read can still turn out to be that chunk.
    pub fn event_may_be_usage_chunk(&self) -> bool {
        self.event.is_object && self.event.choices != Choices::Some
    }

    /// Forgets the event, ready for the next one.
    pub fn next_event(&mut self) {
        self.flush_choice();
        self.event = Event::default();
    }

    /// Hands the text of the current choice to the transcript.
    fn flush_choice(&mut self) {
        let choice = self.event.index.unwrap_or(self.event.position);
        for (channel, text) in self.event.waiting.drain(..) {
            self.transcript.push(choice, channel, &text);
        }
        self.event.waiting_bytes = 0;
    }

    fn number(&mut self, path: &[Frame], literal: &[u8]) {
        if let Some(slot) = self.event.report.slot(path) {
            *slot = std::str::from_utf8(literal).ok().and_then(crate::json::number);
        }
    }
}

/// Which text of a choice a path leads to. `message` and `delta` have the same members.
fn channel(path: &[Frame]) -> Option<Channel> {
    let [Member(Name::Choices), Item, Member(Name::Delta | Name::Message), member @ ..] = path else {
        return None;
    };
    match member {
        [Member(Name::Content)] => Some(Channel::Content),
        // Content parts of newer servers.
        [Member(Name::Content), Item, Member(Name::Text)] => Some(Channel::Content),
        [Member(Name::Reasoning | Name::ReasoningContent)] => Some(Channel::Reasoning),
        [Member(Name::Refusal)] => Some(Channel::Refusal),
        [Member(Name::ToolCalls), Item, Member(Name::Function), Member(Name::Name)]
        | [Member(Name::FunctionCall), Member(Name::Name)] => Some(Channel::ToolName),
        [Member(Name::ToolCalls), Item, Member(Name::Function), Member(Name::Arguments)]
        | [Member(Name::FunctionCall), Member(Name::Arguments)] => Some(Channel::ToolArguments),
        _ => None,
    }
}

impl Visitor for Answer {
    fn open(&mut self, path: &[Frame], container: Container) {
        match (path, container) {
            ([], Container::Object) => self.event.is_object = true,
            ([Member(Name::Usage)], Container::Object) => {
                self.event.usage_is_object = true;
                self.event.report = Report::default();
            }
            ([Member(Name::Error)], Container::Object) => self.failed(),
            ([Member(Name::Choices)], Container::Array) => self.event.choices = Choices::Empty,
            _ => self.choice_begins(path),
        }
    }

    fn close(&mut self, path: &[Frame], container: Container) {
        match (path, container) {
            ([Member(Name::Usage)], Container::Object) => {
                if let Some(usage) = self.event.report.usage() {
                    self.usage = Some(usage);
                }
            }
            ([Member(Name::Choices), Item], Container::Object) => {
                self.flush_choice();
                self.event.position += 1;
                self.event.index = None;
            }
            _ => {}
        }
    }

    fn text(&mut self, path: &[Frame], piece: &[u8]) {
        if let Some(channel) = channel(path) {
            self.event.waiting_bytes += piece.len();
            match self.event.waiting.last_mut() {
                Some((last, text)) if *last == channel => text.extend_from_slice(piece),
                _ => self.event.waiting.push((channel, piece.to_vec())),
            }
            if self.event.waiting_bytes > MAX_WAITING {
                self.flush_choice();
            }
        } else if self.event.report.slot(path).is_some() && self.event.number_text.len() < 32 {
            self.event.number_text.extend_from_slice(piece);
        } else {
            self.choice_begins(path);
        }
    }

    fn text_end(&mut self, path: &[Frame]) {
        match path {
            [Member(Name::Error)] => self.failed(),
            _ => {
                let digits = std::mem::take(&mut self.event.number_text);
                self.number(path, &digits);
                self.choice_begins(path);
            }
        }
    }

    fn scalar(&mut self, path: &[Frame], literal: &[u8]) {
        match path {
            [Member(Name::Choices), Item, Member(Name::Index)] => {
                self.event.index = std::str::from_utf8(literal).ok().and_then(crate::json::number);
            }
            _ => {
                self.number(path, literal);
                self.choice_begins(path);
            }
        }
    }
}

impl Answer {
    fn choice_begins(&mut self, path: &[Frame]) {
        if matches!(path, [Member(Name::Choices), Item]) {
            self.event.choices = Choices::Some;
        }
    }

    fn failed(&mut self) {
        self.flush_choice();
        if !self.transcript.has_text() {
            self.failed_at_once = true;
        }
    }
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
