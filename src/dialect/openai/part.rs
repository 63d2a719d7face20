//! A part of a message's content.

use crate::json::walk::{Action, Kind};

/// A content part, as far as it was read. Of a member given twice the last one counts.
#[derive(Debug, Default)]
pub struct Part {
    pub at: usize,
    pub kind: PartKind,
    pub text: Option<Said>,
    pub refusal: Option<Said>,
    pub image: Option<Detail>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PartKind {
    #[default]
    Unknown,
    Text,
    Refusal,
    Image,
    Media,
}

#[derive(Clone, Copy, Debug)]
pub struct Said {
    pub at: usize,
    pub kind: Kind,
    /// Where it was counted already.
    pub tokens: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    Low,
    Full,
}

/// How a value is counted: a string by its text, anything else as it is written.
pub fn by_kind(kind: Kind) -> Action {
    if kind == Kind::Text { Action::Text } else { Action::Raw }
}
