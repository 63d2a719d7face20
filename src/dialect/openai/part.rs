//! A part of a message's content.

use crate::json::walk::{Action, Kind};

/// A content part, as far as it was read.
#[derive(Debug, Default)]
pub struct Part {
    pub at: usize,
    pub kind: PartKind,
    pub text: Option<Said>,
    pub refusal: Option<Said>,
    pub has_image: bool,
    /// Something else that is no text stands under a name that says so.
    pub has_media: bool,
    /// The detail beside the image is low, where the part is of the kind that has it there.
    pub is_low_outside: bool,
    pub is_low_inside: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PartKind {
    #[default]
    Unknown,
    Text,
    Refusal,
    Image,
    /// An image with its detail beside it.
    InputImage,
    /// An image in a shape of which no rule is published.
    OtherImage,
    Media,
}

impl PartKind {
    /// By the part's `type`.
    pub fn of(word: &[u8]) -> Self {
        match word {
            b"text" | b"input_text" | b"output_text" => Self::Text,
            b"refusal" => Self::Refusal,
            b"image_url" => Self::Image,
            b"input_image" => Self::InputImage,
            b"image" => Self::OtherImage,
            b"input_audio" | b"audio" | b"audio_url" | b"input_video" | b"video" | b"video_url"
            | b"input_file" | b"file" | b"file_url" | b"document" | b"document_url" | b"input_document"
            | b"media" | b"pdf" | b"image_embeds" | b"audio_embeds" | b"video_embeds" | b"image_pil" => {
                Self::Media
            }
            _ => Self::Unknown,
        }
    }
}

/// What of a part is to be added, beside what is read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worth {
    Said(Option<Said>),
    Image {
        is_low: bool,
    },
    /// Media, and what long texts stand beside it.
    Media,
    /// Nobody knows: as it is written, and an image if it holds one.
    AsWritten {
        has_image: bool,
    },
}

impl Part {
    pub fn worth(&self) -> Worth {
        match self.kind {
            PartKind::Text => Worth::Said(self.text),
            PartKind::Refusal => Worth::Said(self.refusal),
            PartKind::Image if self.has_image => Worth::Image { is_low: self.is_low_inside },
            PartKind::Image => Worth::Said(None),
            PartKind::InputImage if self.has_image => Worth::Image { is_low: self.is_low_outside },
            PartKind::OtherImage if self.has_image => Worth::Image { is_low: false },
            PartKind::InputImage | PartKind::OtherImage | PartKind::Media => Worth::Media,
            PartKind::Unknown if self.has_media => Worth::Media,
            PartKind::Unknown => Worth::AsWritten { has_image: self.has_image },
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said {
    pub at: usize,
    pub kind: Kind,
    /// Where it was counted already.
    pub tokens: Option<u64>,
}

/// How a value is counted: a string by its text, anything else as it is written.
pub fn by_kind(kind: Kind) -> Action {
    if kind == Kind::Text { Action::Text } else { Action::Raw }
}
