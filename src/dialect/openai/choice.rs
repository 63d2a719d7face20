//! What the strings of an answer's choice are: text that the model wrote, or not.

use super::transcript::{Carrier, Channel, Source};
use crate::json::scan::{Frame, Name};

use Frame::{Item, Member};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Text(Source),
    /// Text, and of a member that is not known: there may be more that cannot be counted.
    Unknown(Source),
    /// Output that is no text: media, or text that is encrypted.
    Opaque,
    /// Of the choice, and no output: roles, ids, signatures, what is quoted.
    Nothing,
}

/// The kind of a string, by the path that leads to it; `None` outside of choices.
pub fn kind(path: &[Frame]) -> Option<Kind> {
    let (carrier, members) = match path {
        [Member(Name::Choices), Item, Member(Name::Delta), members @ ..] => (Carrier::Delta, members),
        [Member(Name::Choices), Item, Member(Name::Message), members @ ..] => (Carrier::Message, members),
        // As text completions have it.
        [Member(Name::Choices), Item, Member(Name::Text)] => {
            return Some(Kind::Text(source(Carrier::Text, Channel::Content, Name::Text)));
        }
        _ => return None,
    };
    let innermost = members.iter().rev().find_map(|frame| match frame {
        Member(name) => Some(*name),
        Item => None,
    })?;
    let [Member(member), below @ ..] = members else { return None };
    let member = *member;
    Some(match (member, innermost) {
        (_, Name::Role | Name::Id | Name::Type | Name::Signature | Name::ThoughtSignature) => Kind::Nothing,
        (_, Name::ToolCallId | Name::CallId | Name::Format | Name::Object | Name::Status) => Kind::Nothing,
        (_, Name::FinishReason) => Kind::Nothing,
        (Name::Annotations | Name::Citations | Name::Logprobs | Name::ProviderSpecificFields, _) => {
            Kind::Nothing
        }
        (Name::Usage | Name::Error | Name::ErrorLike, _) => Kind::Nothing,
        (Name::ToolCalls | Name::FunctionCall, Name::Name) => text(carrier, Channel::ToolName, member),
        (Name::ToolCalls | Name::FunctionCall, _) => text(carrier, Channel::ToolArguments, member),
        (_, Name::Data | Name::B64Json | Name::EncryptedContent | Name::FileData | Name::Url) => Kind::Opaque,
        (Name::Content, _) => match below.iter().find_map(reasoning) {
            Some(name) => text(carrier, Channel::Reasoning, name),
            None => text(carrier, Channel::Content, member),
        },
        (Name::Refusal, _) => text(carrier, Channel::Refusal, member),
        (Name::Audio, Name::Transcript) => Kind::Unknown(source(carrier, Channel::Other, member)),
        (member, _) if reasoning(&Member(member)).is_some() => text(carrier, Channel::Reasoning, member),
        _ => Kind::Unknown(source(carrier, Channel::Other, member)),
    })
}

/// Whether the object or array at `path` is what a tool is called with, which counts as it is written.
pub fn is_arguments(path: &[Frame]) -> bool {
    matches!(
        path,
        [
            Member(Name::Choices),
            Item,
            Member(Name::Delta | Name::Message),
            Member(Name::ToolCalls | Name::FunctionCall),
            ..,
            Member(Name::Arguments | Name::Input)
        ]
    )
}

/// Whether a number, `true` or `false` at `path` stands within a member that is not known.
pub fn is_within_unknown(path: &[Frame]) -> bool {
    matches!(
        path,
        [Member(Name::Choices), Item, Member(Name::Delta | Name::Message), Member(Name::Other), _, ..]
    )
}

fn text(carrier: Carrier, channel: Channel, name: Name) -> Kind {
    Kind::Text(source(carrier, channel, name))
}

fn source(carrier: Carrier, channel: Channel, name: Name) -> Source {
    Source { carrier, channel, name }
}

/// A name that servers give to reasoning.
fn reasoning(frame: &Frame) -> Option<Name> {
    match frame {
        Member(
            name @ (Name::Reasoning
            | Name::ReasoningContent
            | Name::ReasoningDetails
            | Name::ReasoningText
            | Name::Thinking
            | Name::ThinkingBlocks
            | Name::Thoughts),
        ) => Some(*name),
        _ => None,
    }
}
