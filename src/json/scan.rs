//! Reads JSON that arrives in pieces cut anywhere, in constant memory.
//!
//! Made for a provider's answers: it never fails, never buffers a value and never gives up. What is no JSON (a
//! literal like `NaN`, a comma too many, an invalid escape, nesting without end) is passed over, so that it hides
//! nothing that stands behind it; [`Scanner::is_suspect`] says that there was such a thing. What it meets goes to a
//! [`Visitor`] with its path.

use memchr::memchr2;

pub use super::name::Name;
use super::unescape::Unescape;

/// What is nested deeper is passed over.
const MAX_DEPTH: usize = 64;
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
    /// A number, `true`, `false`, `null` or what stands in the place of one, as written; empty when it is longer
    /// than any that we could use.
    fn scalar(&mut self, path: &[Frame], literal: &[u8]);

    /// Whether the object or array that was just opened is wanted as it is written. Then nothing within it is
    /// visited, and its bytes come by [`raw`](Self::raw).
    fn wants_raw(&self, _path: &[Frame]) -> bool {
        false
    }

    fn raw(&mut self, _path: &[Frame], _piece: &[u8]) {}

    /// A whole value was read, and another one begins behind it.
    fn next_value(&mut self) {}
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
    /// In what is nested too deep.
    Deep,
    InDeepText,
    Done,
}

pub struct Scanner {
    state: State,
    path: Vec<Frame>,
    /// Levels beyond the path.
    deep: usize,
    unescape: Unescape,
    /// The key or scalar being read.
    token: Vec<u8>,
    token_too_long: bool,
    /// The length of the path above the value that is wanted as it is written.
    raw_below: Option<usize>,
    /// Values read one behind the other.
    values: usize,
    is_suspect: bool,
}

impl Default for Scanner {
    fn default() -> Self {
        Self {
            state: State::Value,
            path: Vec::new(),
            deep: 0,
            unescape: Unescape::default(),
            token: Vec::new(),
            token_too_long: false,
            raw_below: None,
            values: 0,
            is_suspect: false,
        }
    }
}

impl Scanner {
    /// A whole value was read, and no other one begins behind it.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// What was read is one whole value and nothing else.
    pub fn is_one_value(&self) -> bool {
        self.is_done() && self.values == 1 && !self.is_suspect
    }

    /// Some of the text is no JSON.
    pub fn is_suspect(&self) -> bool {
        self.is_suspect
    }

    /// Inside a string or a key, where no line of JSON ends.
    pub fn is_in_string(&self) -> bool {
        matches!(self.state, State::InText | State::InKey | State::InDeepText)
    }

    /// A byte other than white space was read.
    pub fn has_begun(&self) -> bool {
        self.values > 0 || self.state != State::Value || !self.path.is_empty() || self.is_suspect
    }

    /// Forgets everything, ready for the next value.
    pub fn reset(&mut self) {
        self.state = State::Value;
        self.path.clear();
        self.deep = 0;
        self.unescape = Unescape::default();
        self.token.clear();
        self.token_too_long = false;
        self.raw_below = None;
        self.values = 0;
        self.is_suspect = false;
    }

    pub fn push(&mut self, bytes: &[u8], visitor: &mut impl Visitor) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let was_raw = self.raw_below;
            let after = self.advance(rest, visitor);
            if let Some(depth) = was_raw.or(self.raw_below) {
                let read = rest.get(..rest.len().saturating_sub(after.len())).unwrap_or(&[]);
                visitor.raw(self.path.get(..depth).unwrap_or(&self.path), read);
            }
            rest = after;
        }
    }

    /// Reads on; returns what follows.
    fn advance<'a>(&mut self, bytes: &'a [u8], visitor: &mut impl Visitor) -> &'a [u8] {
        let Some((&byte, after)) = bytes.split_first() else { return bytes };
        match self.state {
            State::InText | State::InKey | State::InDeepText => self.string(bytes, visitor),
            State::InScalar => self.scalar(bytes, visitor),
            State::Deep => {
                self.nested(byte);
                after
            }
            _ => {
                if !is_white_space(byte) {
                    self.structure(byte, visitor);
                }
                // The first byte of a number or literal is read again by `scalar`.
                if self.state == State::InScalar && self.token.is_empty() { bytes } else { after }
            }
        }
    }

    fn structure(&mut self, byte: u8, visitor: &mut impl Visitor) {
        self.state = match (self.state, byte) {
            (State::Done, b'{' | b'[') => {
                visitor.next_value();
                self.begin(byte, visitor)
            }
            (State::Value | State::ValueOrEnd, b'{' | b'[' | b'"') => self.begin(byte, visitor),
            (State::ValueOrEnd, b']') => self.close(Container::Array, visitor),
            (State::KeyOrEnd, b'}') => self.close(Container::Object, visitor),
            (State::KeyOrEnd | State::Key, b'"') => self.key(),
            (State::Colon, b':') => State::Value,
            (State::CommaOrEnd, b',') => self.next_element(),
            (State::CommaOrEnd, b'}') => self.close(Container::Object, visitor),
            (State::CommaOrEnd, b']') => self.close(Container::Array, visitor),
            (State::Value | State::ValueOrEnd, b',' | b':' | b'}' | b']') => self.passed_over(byte, visitor),
            (State::Value | State::ValueOrEnd, _) => {
                self.token.clear();
                self.token_too_long = false;
                State::InScalar
            }
            _ => self.passed_over(byte, visitor),
        };
    }

    /// What stands where it may not.
    fn passed_over(&mut self, byte: u8, visitor: &mut impl Visitor) -> State {
        self.is_suspect = true;
        match (self.state, byte) {
            (State::Done, _) => State::Done,
            (_, b'}') => self.close(Container::Object, visitor),
            (_, b']') => self.close(Container::Array, visitor),
            (_, b',') => self.next_element(),
            // A key without quotes.
            (State::Key | State::KeyOrEnd, b':') => {
                self.name(Name::Other);
                State::Value
            }
            // A key in the place of a comma.
            (State::CommaOrEnd, b'"') if matches!(self.path.last(), Some(Frame::Member(_))) => self.key(),
            (State::Key | State::KeyOrEnd | State::CommaOrEnd, b'{' | b'[') => {
                self.name(Name::Other);
                self.begin(byte, visitor)
            }
            (State::Colon | State::CommaOrEnd, b'{' | b'[' | b'"') => self.begin(byte, visitor),
            (state, _) => state,
        }
    }

    fn begin(&mut self, byte: u8, visitor: &mut impl Visitor) -> State {
        match byte {
            b'{' => self.open(Container::Object, visitor),
            b'[' => self.open(Container::Array, visitor),
            _ => State::InText,
        }
    }

    fn key(&mut self) -> State {
        self.token.clear();
        self.token_too_long = false;
        State::InKey
    }

    fn next_element(&self) -> State {
        if matches!(self.path.last(), Some(Frame::Member(_))) { State::Key } else { State::Value }
    }

    fn name(&mut self, name: Name) {
        if let Some(Frame::Member(slot)) = self.path.last_mut() {
            *slot = name;
        }
    }

    fn open(&mut self, container: Container, visitor: &mut impl Visitor) -> State {
        if self.path.len() >= MAX_DEPTH {
            self.deep = 1;
            return State::Deep;
        }
        if self.raw_below.is_none() {
            visitor.open(&self.path, container);
            if visitor.wants_raw(&self.path) {
                self.raw_below = Some(self.path.len());
            }
        }
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

    /// Closes the innermost container of this kind, and those within it that were left open.
    fn close(&mut self, container: Container, visitor: &mut impl Visitor) -> State {
        let kind = |frame: &Frame| match frame {
            Frame::Member(_) => Container::Object,
            Frame::Item => Container::Array,
        };
        let Some(depth) = self.path.iter().rposition(|frame| kind(frame) == container) else {
            return if self.path.is_empty() { State::Value } else { State::CommaOrEnd };
        };
        // Where only the outermost one is of this kind, it is rather the innermost that is meant.
        let depth = if depth == 0 { self.path.len().saturating_sub(1) } else { depth };
        while self.path.len() > depth {
            let Some(frame) = self.path.pop() else { break };
            self.is_suspect |= kind(&frame) != container;
            if self.raw_below.is_some_and(|below| self.path.len() <= below) {
                self.raw_below = None;
            }
            if self.raw_below.is_none() {
                visitor.close(&self.path, kind(&frame));
            }
        }
        self.after_value()
    }

    fn nested(&mut self, byte: u8) {
        match byte {
            b'{' | b'[' => self.deep = self.deep.saturating_add(1),
            b'}' | b']' => self.deep = self.deep.saturating_sub(1),
            b'"' => self.state = State::InDeepText,
            _ => {}
        }
        if self.deep == 0 {
            self.state = self.after_value();
        }
    }

    fn after_value(&mut self) -> State {
        if !self.path.is_empty() {
            return State::CommaOrEnd;
        }
        self.values = self.values.saturating_add(1);
        State::Done
    }

    /// Reads on inside a key or a string value; returns what follows.
    fn string<'a>(&mut self, bytes: &'a [u8], visitor: &mut impl Visitor) -> &'a [u8] {
        if self.unescape.is_open() {
            let (&byte, after) = match bytes.split_first() {
                Some(split) => split,
                None => return bytes,
            };
            let mut decoded = [0; Unescape::MAX_OUTPUT];
            let Some(piece) = self.unescape.push(byte, &mut decoded) else {
                // No escape: what follows the backslash is read as it stands.
                self.unescape = Unescape::default();
                self.is_suspect = true;
                self.emit("\u{fffd}".as_bytes(), visitor);
                return bytes;
            };
            let consumed = self.unescape.consumed_last();
            self.emit(piece, visitor);
            return if consumed { after } else { bytes };
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
        match self.state {
            _ if piece.is_empty() => {}
            State::InText if self.raw_below.is_none() => visitor.text(&self.path, piece),
            State::InKey if self.token.len() + piece.len() <= MAX_KEY => self.token.extend_from_slice(piece),
            State::InKey => self.token_too_long = true,
            _ => {}
        }
    }

    fn string_end(&mut self, visitor: &mut impl Visitor) {
        match self.state {
            State::InText => {
                if self.raw_below.is_none() {
                    visitor.text_end(&self.path);
                }
                self.state = self.after_value();
            }
            State::InDeepText => self.state = State::Deep,
            _ => {
                let name = if self.token_too_long { Name::Other } else { Name::of(&self.token) };
                self.name(name);
                self.state = State::Colon;
            }
        }
    }

    fn scalar<'a>(&mut self, bytes: &'a [u8], visitor: &mut impl Visitor) -> &'a [u8] {
        let is_part = |byte: &u8| !is_white_space(*byte) && !b",:{}[]\"".contains(byte);
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
            self.is_suspect |= !is_literal(&self.token) && !self.token_too_long;
            if self.raw_below.is_none() {
                visitor.scalar(&self.path, &self.token);
            }
            self.state = self.after_value();
        }
        rest
    }
}

fn is_literal(token: &[u8]) -> bool {
    matches!(token, b"true" | b"false" | b"null")
        || matches!(token.first(), Some(b'-' | b'0'..=b'9'))
            && token.iter().all(|b| b.is_ascii_digit() || b"+-.eE".contains(b))
}

#[cfg(test)]
#[path = "scan_tests.rs"]
mod tests;
