//! Walks down a JSON object that arrives in pieces cut anywhere, in constant memory, and hands out the values
//! that a [`Visitor`] asks for.
//!
//! Made for request bodies, which are read once more as a whole before anything is done with them: text that
//! is no JSON gives anything here, but never an error.

use memchr::memchr2;

use super::unescape::Unescape;

/// Containers that can be entered, one in the other.
pub const MAX_DEPTH: usize = 8;
/// A longer key is shown as an empty one.
const MAX_KEY: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Null,
    Text,
    Object,
    Array,
    /// A number, `true` or `false`.
    Scalar,
}

/// What to do with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Skip,
    /// Hand out the text of a string, unescaped.
    Text,
    /// Hand out the value as it is written.
    Raw,
    /// Look at what an object or array holds.
    Enter,
}

/// Where a value is.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// Containers around it.
    pub depth: usize,
    /// Its key, unescaped; empty in an array.
    pub key: &'a [u8],
    /// Its first byte, from the start of the body.
    pub at: usize,
    /// Where its key begins.
    pub key_at: usize,
}

/// A value to go back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Again {
    pub at: usize,
    pub kind: Kind,
    pub action: Action,
}

pub trait Visitor {
    fn value(&mut self, place: Place<'_>, kind: Kind) -> Action;
    /// A piece of a value whose action was `Text` or `Raw`. It may be cut inside a UTF-8 character.
    fn piece(&mut self, piece: &[u8]);
    /// The end of such a value. `true` stops the walk after it.
    fn end(&mut self) -> bool;
    /// The end of a container that was entered, whose values were `depth` deep. A value in it can be read
    /// again before the walk goes on.
    fn close(&mut self, depth: usize) -> Option<Again>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Start,
    /// A value, or the end of an array.
    Value,
    /// A key, or the end of an object.
    Key,
    InKey,
    Colon,
    InText,
    /// In an object, array or string that is not looked into.
    InRaw,
    InScalar,
    AfterValue,
    /// After the object, or after what is no JSON.
    Done,
}

#[derive(Debug)]
pub struct Walker {
    /// The next byte to read.
    at: usize,
    state: State,
    depth: usize,
    /// A bit for each container that was entered: it is an object.
    objects: u32,
    key: Vec<u8>,
    key_at: usize,
    unescape: Unescape,
    /// Whether the value that is not looked into is handed out.
    is_shown: bool,
    raw_depth: usize,
    in_string: bool,
    is_escaped: bool,
    /// Where to go on after a value that is read again.
    resume_at: Option<usize>,
}

impl Default for Walker {
    fn default() -> Self {
        Self {
            at: 0,
            state: State::Start,
            depth: 0,
            objects: 0,
            key: Vec::new(),
            key_at: 0,
            unescape: Unescape::default(),
            is_shown: false,
            raw_depth: 0,
            in_string: false,
            is_escaped: false,
            resume_at: None,
        }
    }
}

impl Walker {
    /// The byte of the body that must come next. It goes back where a value is read again.
    pub fn at(&self) -> usize {
        self.at
    }

    /// The object's end was read.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Goes back to a key of the outermost object.
    pub fn go_back_to_member(&mut self, key_at: usize) {
        *self = Self { at: key_at, state: State::Key, depth: 1, objects: 1, ..Self::default() };
    }

    /// Reads on in `bytes`, which begin at `start` of the body; `true` when the visitor stopped it.
    pub fn push(&mut self, start: usize, bytes: &[u8], visitor: &mut impl Visitor) -> bool {
        loop {
            let rest = self.at.checked_sub(start).and_then(|offset| bytes.get(offset..));
            let Some((&byte, _)) = rest.and_then(<[u8]>::split_first) else { return false };
            let rest = rest.unwrap_or(&[]);
            if self.resume_at.is_some_and(|end| self.at >= end) {
                // What is read again must end where it ended: else this is no JSON.
                self.state = State::Done;
            }
            let stops = match self.state {
                State::InKey | State::InText => self.string(rest, visitor),
                State::InRaw => self.raw(rest, visitor),
                State::InScalar => self.scalar(rest, visitor),
                State::Done => {
                    self.at += rest.len();
                    false
                }
                _ if matches!(byte, b' ' | b'\t' | b'\n' | b'\r') => {
                    self.at += 1;
                    false
                }
                _ => {
                    self.structure(byte, visitor);
                    false
                }
            };
            if stops {
                return true;
            }
        }
    }

    fn structure(&mut self, byte: u8, visitor: &mut impl Visitor) {
        let is_object = self.objects >> self.depth.saturating_sub(1) & 1 != 0;
        match (self.state, byte) {
            (State::Start, b'{') => self.begin(Kind::Object, Action::Enter),
            (State::Key, b'"') => {
                self.key.clear();
                self.key_at = self.at;
                self.at += 1;
                self.state = State::InKey;
            }
            (State::Colon, b':') => {
                self.at += 1;
                self.state = State::Value;
            }
            (State::AfterValue, b',') => {
                self.at += 1;
                self.state = if is_object { State::Key } else { State::Value };
            }
            (State::Key | State::AfterValue, b'}') if is_object => self.close(visitor),
            (State::Value | State::AfterValue, b']') if !is_object => self.close(visitor),
            (State::Value, _) => {
                let kind = match byte {
                    b'"' => Kind::Text,
                    b'{' => Kind::Object,
                    b'[' => Kind::Array,
                    b'n' => Kind::Null,
                    _ => Kind::Scalar,
                };
                let key = if is_object { self.key.as_slice() } else { &[] };
                let key = if key.len() > MAX_KEY { &[] } else { key };
                let place = Place { depth: self.depth, key, at: self.at, key_at: self.key_at };
                let action = visitor.value(place, kind);
                self.begin(kind, action);
            }
            _ => self.state = State::Done,
        }
    }

    /// Begins the value that is next.
    fn begin(&mut self, kind: Kind, action: Action) {
        match (kind, action) {
            (Kind::Object | Kind::Array, Action::Enter) if self.depth < MAX_DEPTH => {
                let bit = 1 << self.depth;
                let is_object = kind == Kind::Object;
                self.objects = if is_object { self.objects | bit } else { self.objects & !bit };
                self.state = if is_object { State::Key } else { State::Value };
                self.depth += 1;
                self.at += 1;
            }
            (Kind::Text, Action::Text) => {
                self.state = State::InText;
                self.at += 1;
            }
            _ => {
                self.is_shown = matches!(action, Action::Text | Action::Raw);
                (self.raw_depth, self.in_string, self.is_escaped) = (0, false, false);
                self.state =
                    if matches!(kind, Kind::Null | Kind::Scalar) { State::InScalar } else { State::InRaw };
            }
        }
    }

    fn close(&mut self, visitor: &mut impl Visitor) {
        let depth = self.depth;
        self.at += 1;
        self.depth = depth.saturating_sub(1);
        self.state = if self.depth == 0 { State::Done } else { State::AfterValue };
        if let Some(again) = visitor.close(depth) {
            self.resume_at = Some(self.at);
            self.at = again.at;
            self.begin(again.kind, again.action);
        }
    }

    fn end(&mut self, visitor: &mut impl Visitor, is_shown: bool) -> bool {
        self.state = State::AfterValue;
        if let Some(at) = self.resume_at.take() {
            self.at = at;
        }
        is_shown && visitor.end()
    }

    fn string(&mut self, bytes: &[u8], visitor: &mut impl Visitor) -> bool {
        if self.unescape.is_open() {
            let mut decoded = [0; Unescape::MAX_OUTPUT];
            let byte = bytes.first().copied().unwrap_or(0);
            let Some(piece) = self.unescape.push(byte, &mut decoded) else {
                self.state = State::Done;
                return false;
            };
            self.at += usize::from(self.unescape.consumed_last());
            self.show(piece, visitor);
            return false;
        }
        let end = memchr2(b'"', b'\\', bytes);
        let plain = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or(&[]);
        self.show(plain, visitor);
        self.at += plain.len() + usize::from(end.is_some());
        match end.and_then(|end| bytes.get(end)) {
            Some(b'\\') => self.unescape.begin(),
            Some(_) if self.state == State::InText => return self.end(visitor, true),
            Some(_) => self.state = State::Colon,
            None => {}
        }
        false
    }

    fn show(&mut self, piece: &[u8], visitor: &mut impl Visitor) {
        if self.state == State::InText {
            visitor.piece(piece);
        } else if self.key.len() <= MAX_KEY {
            let room = piece.len().min(MAX_KEY + 1 - self.key.len());
            self.key.extend_from_slice(piece.get(..room).unwrap_or(&[]));
        }
    }

    fn raw(&mut self, bytes: &[u8], visitor: &mut impl Visitor) -> bool {
        let (length, is_whole) = self.raw_length(bytes);
        self.at += length;
        if self.is_shown {
            visitor.piece(bytes.get(..length).unwrap_or(&[]));
        }
        is_whole && self.end(visitor, self.is_shown)
    }

    /// How much of the value is here, and whether it ends here.
    fn raw_length(&mut self, bytes: &[u8]) -> (usize, bool) {
        let mut at = 0;
        loop {
            let rest = bytes.get(at..).unwrap_or(&[]);
            if rest.is_empty() {
                return (bytes.len(), false);
            }
            if self.is_escaped {
                self.is_escaped = false;
                at += 1;
                continue;
            }
            let next = match self.in_string {
                true => memchr2(b'"', b'\\', rest),
                false => rest.iter().position(|byte| matches!(byte, b'"' | b'{' | b'}' | b'[' | b']')),
            };
            let Some(next) = next else { return (bytes.len(), false) };
            at += next + 1;
            match rest.get(next) {
                Some(b'"') => self.in_string = !self.in_string,
                Some(b'\\') => self.is_escaped = true,
                Some(b'{' | b'[') => self.raw_depth += 1,
                _ => self.raw_depth = self.raw_depth.saturating_sub(1),
            }
            if self.raw_depth == 0 && !self.in_string {
                return (at, true);
            }
        }
    }

    fn scalar(&mut self, bytes: &[u8], visitor: &mut impl Visitor) -> bool {
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
        let end = bytes.iter().position(|byte| !is_part(byte));
        let part = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or(&[]);
        self.at += part.len();
        if self.is_shown {
            visitor.piece(part);
        }
        end.is_some() && self.end(visitor, self.is_shown)
    }
}
