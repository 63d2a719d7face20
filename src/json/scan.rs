//! Reads JSON that arrives in pieces cut anywhere, in constant memory.
//!
//! Made for a provider's answers: it never fails and never buffers a value. What it meets goes to a
//! [`Visitor`] with its path; text that is not JSON stops it ([`Scanner::is_broken`]).

use memchr::memchr2;

use super::unescape::Unescape;

/// Deeper nesting than this is given up on: no provider sends it.
const MAX_DEPTH: usize = 1024;
/// A number or literal longer than this is no number we could use.
const MAX_SCALAR: usize = 64;
/// A longer key is none of [`Name`].
const MAX_KEY: usize = 64;

/// One level of nesting above the current value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// An array.
    Item,
    /// An object, at the member of this name.
    Member(Name),
}

macro_rules! names {
    ($($variant:ident = $text:literal),* $(,)?) => {
        /// The member names that some answer's reader asks for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Name { $($variant,)* Other }

        impl Name {
            fn of(key: &[u8]) -> Self {
                $(if key == $text.as_bytes() { return Self::$variant; })*
                Self::Other
            }
        }
    };
}

names! {
    Arguments = "arguments",
    CacheWriteTokens = "cache_write_tokens",
    CachedTokens = "cached_tokens",
    Choices = "choices",
    CompletionTokens = "completion_tokens",
    CompletionTokensDetails = "completion_tokens_details",
    Content = "content",
    Delta = "delta",
    Error = "error",
    Function = "function",
    FunctionCall = "function_call",
    Index = "index",
    Message = "message",
    Name = "name",
    PromptTokens = "prompt_tokens",
    PromptTokensDetails = "prompt_tokens_details",
    Reasoning = "reasoning",
    ReasoningContent = "reasoning_content",
    ReasoningTokens = "reasoning_tokens",
    Refusal = "refusal",
    Text = "text",
    ToolCalls = "tool_calls",
    TotalTokens = "total_tokens",
    Usage = "usage",
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Container {
    Object,
    Array,
}

/// What a [`Scanner`] meets. `path` holds the frames above the value, outermost first.
pub trait Visitor {
    fn open(&mut self, path: &[Frame], container: Container);
    fn close(&mut self, path: &[Frame], container: Container);
    /// A piece of a string's text, unescaped. It may be cut inside a UTF-8 character.
    fn text(&mut self, path: &[Frame], piece: &[u8]);
    fn text_end(&mut self, path: &[Frame]);
    /// A number, `true`, `false` or `null`, as written; empty when it is longer than any that we could use.
    fn scalar(&mut self, path: &[Frame], literal: &[u8]);
}

/// What may stand between the parts of JSON. A form feed may not.
pub fn is_white_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A value must begin.
    Value,
    /// After `[`.
    ValueOrEnd,
    /// After `{`.
    KeyOrEnd,
    /// After `,` in an object.
    Key,
    InKey,
    Colon,
    InText,
    InScalar,
    /// After a value inside a container.
    CommaOrEnd,
    Done,
    Broken,
}

pub struct Scanner {
    state: State,
    path: Vec<Frame>,
    unescape: Unescape,
    /// The key or scalar being read.
    token: Vec<u8>,
    token_too_long: bool,
}

impl Default for Scanner {
    fn default() -> Self {
        Self {
            state: State::Value,
            path: Vec::new(),
            unescape: Unescape::default(),
            token: Vec::new(),
            token_too_long: false,
        }
    }
}

impl Scanner {
    /// One whole value was read, and nothing but white space followed it.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// The text is not JSON; the rest of it is ignored.
    pub fn is_broken(&self) -> bool {
        self.state == State::Broken
    }

    /// A byte other than white space was read.
    pub fn has_begun(&self) -> bool {
        self.state != State::Value || !self.path.is_empty()
    }

    /// Forgets everything, ready for the next value.
    pub fn reset(&mut self) {
        self.state = State::Value;
        self.path.clear();
        self.unescape = Unescape::default();
        self.token.clear();
        self.token_too_long = false;
    }

    pub fn push(&mut self, bytes: &[u8], visitor: &mut impl Visitor) {
        let mut rest = bytes;
        while let Some((&byte, after)) = rest.split_first() {
            rest = match self.state {
                State::Broken => return,
                State::InText | State::InKey => self.string(rest, visitor),
                State::InScalar => self.scalar(rest, visitor),
                _ => {
                    if !is_white_space(byte) {
                        self.structure(byte, visitor);
                    }
                    // The first byte of a number or literal is read again by `scalar`.
                    if self.state == State::InScalar && self.token.is_empty() { rest } else { after }
                }
            };
        }
    }

    fn structure(&mut self, byte: u8, visitor: &mut impl Visitor) {
        self.state = match (self.state, byte) {
            (State::Value | State::ValueOrEnd, b'{') => self.open(Container::Object, visitor),
            (State::Value | State::ValueOrEnd, b'[') => self.open(Container::Array, visitor),
            (State::Value | State::ValueOrEnd, b'"') => State::InText,
            (State::Value | State::ValueOrEnd, b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => {
                self.token.clear();
                self.token_too_long = false;
                State::InScalar
            }
            (State::ValueOrEnd, b']') => self.close(Container::Array, visitor),
            (State::KeyOrEnd, b'}') => self.close(Container::Object, visitor),
            (State::KeyOrEnd | State::Key, b'"') => {
                self.token.clear();
                self.token_too_long = false;
                State::InKey
            }
            (State::Colon, b':') => State::Value,
            (State::CommaOrEnd, b',') => match self.path.last() {
                Some(Frame::Item) => State::Value,
                Some(Frame::Member(_)) => State::Key,
                None => State::Broken,
            },
            (State::CommaOrEnd, b'}') => self.close(Container::Object, visitor),
            (State::CommaOrEnd, b']') => self.close(Container::Array, visitor),
            _ => State::Broken,
        };
    }

    fn open(&mut self, container: Container, visitor: &mut impl Visitor) -> State {
        if self.path.len() >= MAX_DEPTH {
            return State::Broken;
        }
        visitor.open(&self.path, container);
        match container {
            Container::Object => {
                self.path.push(Frame::Member(Name::Other));
                State::KeyOrEnd
            }
            Container::Array => {
                self.path.push(Frame::Item);
                State::ValueOrEnd
            }
        }
    }

    fn close(&mut self, container: Container, visitor: &mut impl Visitor) -> State {
        match (self.path.pop(), container) {
            (Some(Frame::Member(_)), Container::Object) | (Some(Frame::Item), Container::Array) => {
                visitor.close(&self.path, container);
                self.after_value()
            }
            _ => State::Broken,
        }
    }

    fn after_value(&self) -> State {
        if self.path.is_empty() { State::Done } else { State::CommaOrEnd }
    }

    /// Reads on inside a key or a string value; returns what follows.
    fn string<'a>(&mut self, bytes: &'a [u8], visitor: &mut impl Visitor) -> &'a [u8] {
        if self.unescape.is_open() {
            let (&byte, after) = match bytes.split_first() {
                Some(split) => split,
                None => return bytes,
            };
            let mut decoded = [0; Unescape::MAX_OUTPUT];
            match self.unescape.push(byte, &mut decoded) {
                Some(piece) => {
                    let consumed = self.unescape.consumed_last();
                    self.emit(piece, visitor);
                    return if consumed { after } else { bytes };
                }
                None => {
                    self.state = State::Broken;
                    return after;
                }
            }
        }
        match memchr2(b'"', b'\\', bytes) {
            None => {
                self.emit(bytes, visitor);
                &[]
            }
            Some(at) => {
                let (plain, rest) = bytes.split_at_checked(at).unwrap_or((bytes, &[]));
                self.emit(plain, visitor);
                match rest.split_first() {
                    Some((b'"', after)) => {
                        self.string_end(visitor);
                        after
                    }
                    Some((_, after)) => {
                        self.unescape.begin();
                        after
                    }
                    None => rest,
                }
            }
        }
    }

    fn emit(&mut self, piece: &[u8], visitor: &mut impl Visitor) {
        if piece.is_empty() {
            return;
        }
        if self.state == State::InText {
            visitor.text(&self.path, piece);
        } else if self.token.len() + piece.len() <= MAX_KEY {
            self.token.extend_from_slice(piece);
        } else {
            self.token_too_long = true;
        }
    }

    fn string_end(&mut self, visitor: &mut impl Visitor) {
        if self.state == State::InText {
            visitor.text_end(&self.path);
            self.state = self.after_value();
            return;
        }
        let name = if self.token_too_long { Name::Other } else { Name::of(&self.token) };
        if let Some(frame) = self.path.last_mut() {
            *frame = Frame::Member(name);
        }
        self.state = State::Colon;
    }

    fn scalar<'a>(&mut self, bytes: &'a [u8], visitor: &mut impl Visitor) -> &'a [u8] {
        let is_part = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.');
        let length = bytes.iter().position(|b| !is_part(b)).unwrap_or(bytes.len());
        let (part, rest) = bytes.split_at_checked(length).unwrap_or((bytes, &[]));
        if self.token.len() + part.len() <= MAX_SCALAR {
            self.token.extend_from_slice(part);
        } else {
            self.token_too_long = true;
        }
        // At the end of the piece the number may go on in the next one.
        if !rest.is_empty() {
            if self.token_too_long {
                self.token.clear();
            }
            visitor.scalar(&self.path, &self.token);
            self.state = self.after_value();
        }
        rest
    }
}

#[cfg(test)]
#[path = "scan_tests.rs"]
mod tests;
