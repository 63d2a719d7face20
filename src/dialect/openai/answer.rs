//! Reads usage, errors and delivered text out of an answer, stream or not.
//!
//! A later report replaces what it says of an earlier one: vLLM sends running totals, others send the prompt's
//! tokens first and the output's later, or the same report twice.

use tokengate_api::{Usage, model_name};

use super::choice::{self, Kind};
use super::transcript::{Carrier, Source, Transcript};
use super::usage::Report;
use crate::json::scan::{Container, Frame, Name, Visitor};
use crate::tokenizer::Encoding;

use Frame::{Item, Member};

/// Text of one choice of one event that waits until the choice's index is known.
const MAX_WAITING: usize = 16 * 1024;
/// Pieces of it, each of another source than the one before.
const MAX_PIECES: usize = 64;
/// A name of a model or a tier is not longer.
const MAX_WORD: usize = 256;
/// A number in the form of a text is not longer.
const MAX_DIGITS: usize = 32;

pub struct Answer {
    transcript: Transcript,
    report: Report,
    /// Something says that the provider failed.
    failed: bool,
    /// Text came after the last report.
    has_text_behind: bool,
    /// There was output that cannot be counted.
    has_uncounted: bool,
    /// The mark that ends a stream was seen.
    has_end_mark: bool,
    model: Vec<u8>,
    service_tier: Vec<u8>,
    event: Event,
}

/// What is known of the event, or the JSON body, being read.
#[derive(Default)]
struct Event {
    is_object: bool,
    choices: Choices,
    usage_is_object: bool,
    /// Members that no usage chunk has.
    has_more: bool,
    /// What may say that the provider failed, where there are no choices.
    complains: bool,
    report: Report,
    index: Option<u64>,
    position: u64,
    waiting: Vec<(Source, Vec<u8>)>,
    waiting_bytes: usize,
    /// A short text that is read whole: a number, a name or a kind.
    word: Vec<u8>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Choices {
    /// Absent, null or empty.
    #[default]
    None,
    Some,
}

/// Whether an event is the chunk that a stream ends with when usage was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageChunk {
    No,
    /// It has nothing but the usage.
    Only,
    /// It has other members that the client may need.
    WithMore,
}

impl Answer {
    pub fn new(encoding: Encoding) -> Self {
        Self {
            transcript: Transcript::new(encoding),
            report: Report::default(),
            failed: false,
            has_text_behind: false,
            has_uncounted: false,
            has_end_mark: false,
            model: Vec::new(),
            service_tier: Vec::new(),
            event: Event::default(),
        }
    }

    /// What the provider reported, as far as it can be used.
    pub fn usage(&self) -> Option<Usage> {
        self.report.usage()
    }

    /// The reports say how many tokens there were in all, and no more.
    pub fn reports_sum_only(&self) -> bool {
        self.report.is_sum_only()
    }

    /// The provider said that it failed, and delivered nothing.
    pub fn only_failed(&self) -> bool {
        self.failed && !self.transcript.has_text() && !self.has_uncounted
    }

    /// There was output beside the text that is counted.
    pub fn has_uncounted(&self) -> bool {
        self.has_uncounted
    }

    /// Text came after the last report, which therefore may not know of it.
    pub fn has_text_behind_usage(&self) -> bool {
        self.has_text_behind
    }

    pub fn has_end_mark(&self) -> bool {
        self.has_end_mark
    }

    /// Tokens of all delivered text.
    pub fn delivered_tokens(&self) -> u64 {
        self.transcript.tokens()
    }

    /// The model that the answer names last, normalised.
    pub fn model(&self) -> Option<String> {
        let name =
            std::str::from_utf8(&self.model).ok().filter(|name| !name.chars().any(char::is_control))?;
        model_name::spellings(name).into_iter().next()
    }

    /// The `service_tier` that the answer names last.
    pub fn service_tier(&self) -> Option<String> {
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_".contains(byte);
        let tier = self.service_tier.as_slice();
        let tier = Some(tier).filter(|tier| (1..=64).contains(&tier.len()) && tier.iter().all(is_plain))?;
        std::str::from_utf8(tier).ok().map(str::to_ascii_lowercase)
    }

    pub fn event_is_usage_chunk(&self) -> UsageChunk {
        let Event { is_object, usage_is_object, choices, has_more, .. } = self.event;
        match is_object && usage_is_object && choices == Choices::None {
            false => UsageChunk::No,
            true if has_more => UsageChunk::WithMore,
            true => UsageChunk::Only,
        }
    }

    /// The event being read can still turn out to be that chunk.
    pub fn event_may_be_usage_chunk(&self) -> bool {
        self.event.is_object && self.event.choices != Choices::Some
    }

    /// The event's own name says that it tells of a failure.
    pub fn event_is_error(&mut self) {
        self.failed = true;
    }

    /// Forgets the event, ready for the next one.
    pub fn next_event(&mut self) {
        self.flush_choice();
        let event = std::mem::take(&mut self.event);
        self.failed |= event.complains && event.choices == Choices::None;
    }

    /// Hands the text of the current choice to the transcript.
    fn flush_choice(&mut self) {
        let choice = self.event.index.unwrap_or(self.event.position);
        // Where a `message` stands beside a `delta`, it repeats all text so far.
        let has_delta = self.event.waiting.iter().any(|(source, _)| source.carrier == Carrier::Delta);
        for (source, text) in self.event.waiting.drain(..) {
            if source.carrier == Carrier::Delta || !has_delta {
                self.transcript.push(choice, source, &text);
            }
        }
        self.event.waiting_bytes = 0;
    }

    fn delivered(&mut self, source: Source, piece: &[u8]) {
        self.has_text_behind = true;
        self.event.waiting_bytes += piece.len();
        match self.event.waiting.last_mut() {
            Some((last, text)) if *last == source => text.extend_from_slice(piece),
            _ => self.event.waiting.push((source, piece.to_vec())),
        }
        if self.event.waiting_bytes > MAX_WAITING || self.event.waiting.len() > MAX_PIECES {
            self.flush_choice();
        }
    }

    /// Takes a whole short text.
    fn word(&mut self, path: &[Frame]) {
        let word = std::mem::take(&mut self.event.word);
        match path {
            [Member(Name::Model)] if !word.is_empty() => self.model = word,
            [Member(Name::ServiceTier)] if !word.is_empty() => self.service_tier = word,
            [Member(Name::Object | Name::Type | Name::Status)] => {
                self.event.complains |= matches!(word.as_slice(), b"error" | b"failed");
            }
            [Member(Name::Choices), Item, Member(Name::FinishReason)] => self.failed |= word == b"error",
            _ => {
                if let Some(below) = usage(path) {
                    self.event.report.number(below, &word);
                }
            }
        }
    }

    /// Something that is not null and not empty stands at `path`.
    fn something(&mut self, path: &[Frame]) {
        match path {
            [Member(Name::Choices), Item, ..] => {
                let below = path.get(2..).unwrap_or(&[]);
                self.failed |= is_error(below) || matches!(below, [_, rest @ ..] if is_error(rest));
                self.has_uncounted |= choice::is_within_unknown(path);
            }
            [Member(Name::Error), ..] => self.failed = true,
            [Member(Name::BaseResponse), Member(Name::StatusCode)] | [Member(Name::Detail), ..] => {
                self.event.complains = true;
            }
            _ => self.event.complains |= is_error(path),
        }
    }

    /// A member of the event that is not null.
    fn member(&mut self, path: &[Frame]) {
        match path {
            [Member(name)] => {
                self.event.has_more |= !matches!(
                    name,
                    Name::Id
                        | Name::Object
                        | Name::Created
                        | Name::Model
                        | Name::SystemFingerprint
                        | Name::ServiceTier
                        | Name::Obfuscation
                        | Name::Choices
                        | Name::Usage
                );
            }
            [Member(Name::Choices), _] => self.event.choices = Choices::Some,
            _ => {}
        }
    }

    /// Where there should be choices is something that we cannot read.
    fn no_choices(&mut self, path: &[Frame]) {
        if matches!(path, [Member(Name::Choices)]) {
            self.event.choices = Choices::Some;
        }
    }
}

/// What stands in a list, as some servers send errors and usage, is read as if it stood alone.
fn alone(path: &[Frame]) -> &[Frame] {
    if let [Item, below @ ..] = path { below } else { path }
}

fn is_error(path: &[Frame]) -> bool {
    matches!(path, [Member(Name::Error | Name::ErrorLike), ..])
}

/// The path below a usage object, in all the places where servers report usage.
fn usage(path: &[Frame]) -> Option<&[Frame]> {
    match path {
        [Member(Name::Usage), below @ ..]
        | [Member(Name::XGroq | Name::Message | Name::Response), Member(Name::Usage), below @ ..]
        | [Member(Name::Choices), Item, Member(Name::Usage), below @ ..]
        | [
            Member(Name::Choices),
            Item,
            Member(Name::Delta | Name::Message),
            Member(Name::Usage),
            below @ ..,
        ] => Some(below),
        _ => None,
    }
}

/// Whether a short text at `path` is to be read whole.
fn is_word(path: &[Frame]) -> bool {
    matches!(
        path,
        [Member(Name::Model | Name::ServiceTier | Name::Object | Name::Type | Name::Status)]
            | [Member(Name::Choices), Item, Member(Name::FinishReason)]
    )
}

impl Visitor for Answer {
    fn open(&mut self, path: &[Frame], container: Container) {
        self.event.is_object |= path.is_empty() && container == Container::Object;
        self.event.usage_is_object |= matches!(path, [Member(Name::Usage)]) && container == Container::Object;
        self.member(path);
        if usage(alone(path)).is_some_and(<[Frame]>::is_empty) {
            self.event.report = Report::default();
        }
    }

    fn close(&mut self, path: &[Frame], container: Container) {
        let path = alone(path);
        if container == Container::Object && usage(path).is_some_and(<[Frame]>::is_empty) {
            self.has_text_behind &= !self.report.replace(&self.event.report);
        }
        if matches!(path, [Member(Name::Choices), Item]) {
            self.flush_choice();
            self.event.position += 1;
            self.event.index = None;
        }
    }

    fn text(&mut self, path: &[Frame], piece: &[u8]) {
        self.member(path);
        self.no_choices(path);
        let path = alone(path);
        if piece.iter().any(|byte| !byte.is_ascii_whitespace()) {
            self.something(path);
        }
        match choice::kind(path) {
            Some(Kind::Text(source)) => self.delivered(source, piece),
            Some(Kind::Unknown(source)) => {
                self.has_uncounted = true;
                self.delivered(source, piece);
            }
            Some(Kind::Opaque) => self.has_uncounted = true,
            Some(Kind::Nothing) | None => {
                let most = if is_word(path) { MAX_WORD } else { MAX_DIGITS };
                if is_word(path) || usage(path).is_some_and(Report::has) {
                    // One byte too many tells that it is too long.
                    let room = (most + 1).saturating_sub(self.event.word.len());
                    self.event.word.extend_from_slice(piece.get(..room).unwrap_or(piece));
                }
            }
        }
    }

    fn text_end(&mut self, path: &[Frame]) {
        self.member(path);
        self.word(alone(path));
    }

    fn scalar(&mut self, path: &[Frame], literal: &[u8]) {
        if path == [Item] && literal == b"DONE" {
            self.has_end_mark = true;
        }
        if literal == b"null" && path.len() == 1 {
            return;
        }
        self.member(path);
        self.no_choices(path);
        let path = alone(path);
        if !matches!(literal, b"null" | b"false" | b"0") {
            self.something(path);
        }
        match path {
            [Member(Name::Choices), Item, Member(Name::Index)] => {
                self.event.index = std::str::from_utf8(literal).ok().and_then(|text| text.parse().ok());
            }
            _ => {
                if let Some(below) = usage(path) {
                    self.event.report.number(below, literal);
                }
            }
        }
    }

    fn wants_raw(&self, path: &[Frame]) -> bool {
        choice::is_arguments(alone(path))
    }

    fn raw(&mut self, path: &[Frame], piece: &[u8]) {
        if let Some(Kind::Text(source)) = choice::kind(alone(path)) {
            self.delivered(source, piece);
        }
    }

    fn next_value(&mut self) {
        self.next_event();
    }
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
