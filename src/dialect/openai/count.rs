//! What of a request's values counts, and how.

use super::part::{Detail, Part, PartKind, Said, by_kind};
use crate::json::walk::{Action, Again, Kind, Place, Visitor};
use crate::tokenizer::{Joined, MEDIA_TOKENS, MESSAGE_OVERHEAD, NAME_OVERHEAD, Rules};

/// Members that the provider turns into prompt tokens by rules of its own: counted as they are written, but for
/// the tools that a published rule covers.
const COUNTED_RAW: [&[u8]; 3] = [b"tools", b"functions", b"response_format"];
/// A longer text is no model's name and no type.
const MAX_SHORT: usize = 1_024;
/// Longer tool definitions are counted as they are written.
const MAX_TOOLS: usize = 16 * 1024;
/// Text that is kept before it is counted, and that is looked at in one go.
const MAX_KEPT: usize = 16 * 1024;
const STEP: usize = 8 * 1024;

#[derive(Debug, Default)]
pub struct Count {
    /// Unknown until the model is.
    pub rules: Option<Rules>,
    pub total: u64,
    pub images: u64,
    pub low_images: u64,
    text: Joined,
    purpose: Purpose,
    /// A value that is looked at: the model, the type of a part, the detail of an image, the tools.
    short: Vec<u8>,
    pub model: Option<String>,
    /// The first member that counts and was passed over while the rules were unknown.
    pub skipped_at: Option<usize>,
    part: Part,
}

/// What the value being handed out is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Purpose {
    #[default]
    Total,
    PartText,
    PartRefusal,
    Model,
    Tools,
    PartType,
    Detail,
}

impl Visitor for Count {
    fn value(&mut self, place: Place<'_>, kind: Kind) -> Action {
        self.purpose = Purpose::Total;
        match place.depth {
            1 => self.member(place, kind),
            // The messages.
            2 if kind == Kind::Object => {
                self.add(MESSAGE_OVERHEAD);
                Action::Enter
            }
            3 => match (place.key, kind) {
                (_, Kind::Null) => Action::Skip,
                (b"content", Kind::Array) => Action::Enter,
                (b"name", _) => {
                    self.add(NAME_OVERHEAD);
                    by_kind(kind)
                }
                _ => by_kind(kind),
            },
            // The parts of a content.
            4 => match kind {
                Kind::Null => Action::Skip,
                Kind::Object => {
                    self.part = Part { at: place.at, ..Part::default() };
                    Action::Enter
                }
                _ => by_kind(kind),
            },
            5 => self.part_member(place, kind),
            6 if place.key == b"detail" && kind == Kind::Text => self.look_at(Purpose::Detail),
            _ => Action::Skip,
        }
    }

    fn piece(&mut self, piece: &[u8]) {
        match self.purpose {
            Purpose::Total | Purpose::PartText | Purpose::PartRefusal => self.push(piece),
            Purpose::Tools if self.short.len() + piece.len() > MAX_TOOLS => {
                // More than is looked at.
                self.purpose = Purpose::Total;
                let start = std::mem::take(&mut self.short);
                self.push(&start);
                self.push(piece);
            }
            Purpose::Tools => self.short.extend_from_slice(piece),
            Purpose::Model | Purpose::PartType | Purpose::Detail if self.short.len() <= MAX_SHORT => {
                let room = piece.len().min(MAX_SHORT + 1 - self.short.len());
                self.short.extend_from_slice(piece.get(..room).unwrap_or(&[]));
            }
            Purpose::Model | Purpose::PartType | Purpose::Detail => {}
        }
    }

    fn end(&mut self) -> bool {
        let short = std::mem::take(&mut self.short);
        match self.purpose {
            Purpose::Total => {
                let tokens = self.take_text();
                self.add(tokens);
            }
            Purpose::PartText => {
                let tokens = self.take_text();
                self.part.text = self.part.text.map(|said| Said { tokens: Some(tokens), ..said });
            }
            Purpose::PartRefusal => {
                let tokens = self.take_text();
                self.part.refusal = self.part.refusal.map(|said| Said { tokens: Some(tokens), ..said });
            }
            Purpose::Tools => {
                let raw = String::from_utf8_lossy(&short);
                let tokens = self.rules.map_or(0, |rules| rules.count_tools(&raw));
                self.add(tokens);
            }
            Purpose::Model => {
                let is_whole = short.len() <= MAX_SHORT;
                self.model = String::from_utf8(short).ok().filter(|_| is_whole);
                return true;
            }
            Purpose::PartType => {
                self.part.kind = match short.as_slice() {
                    b"text" => PartKind::Text,
                    b"refusal" => PartKind::Refusal,
                    b"image_url" => PartKind::Image,
                    b"input_audio" | b"file" => PartKind::Media,
                    _ => PartKind::Unknown,
                };
            }
            Purpose::Detail if short == b"low" => self.part.image = Some(Detail::Low),
            Purpose::Detail => {}
        }
        false
    }

    fn close(&mut self, depth: usize) -> Option<Again> {
        if depth != 5 {
            return None;
        }
        self.purpose = Purpose::Total;
        let part = std::mem::take(&mut self.part);
        let said = match part.kind {
            PartKind::Text => part.text,
            PartKind::Refusal => part.refusal,
            PartKind::Unknown => Some(Said { at: part.at, kind: Kind::Object, tokens: None }),
            PartKind::Media => {
                self.add(MEDIA_TOKENS);
                None
            }
            PartKind::Image => {
                match part.image {
                    Some(Detail::Low) => self.low_images = self.low_images.saturating_add(1),
                    Some(Detail::Full) => self.images = self.images.saturating_add(1),
                    None => {}
                }
                None
            }
        }?;
        match said.tokens {
            Some(tokens) => {
                self.add(tokens);
                None
            }
            None => Some(Again { at: said.at, kind: said.kind, action: by_kind(said.kind) }),
        }
    }
}

impl Count {
    fn member(&mut self, place: Place<'_>, kind: Kind) -> Action {
        if place.key == b"model" && self.rules.is_none() && kind == Kind::Text {
            return self.look_at(Purpose::Model);
        }
        let action = match (place.key, kind) {
            (b"messages", Kind::Array) => Action::Enter,
            (key, _) if COUNTED_RAW.contains(&key) && kind != Kind::Null => Action::Raw,
            _ => return Action::Skip,
        };
        if self.rules.is_none() {
            self.skipped_at = self.skipped_at.or(Some(place.key_at));
            return Action::Skip;
        }
        if place.key == b"tools" {
            self.short.clear();
            self.purpose = Purpose::Tools;
        }
        action
    }

    fn part_member(&mut self, place: Place<'_>, kind: Kind) -> Action {
        let said = Some(Said { at: place.at, kind, tokens: None });
        match place.key {
            b"type" if kind == Kind::Text => return self.look_at(Purpose::PartType),
            b"type" => self.part.kind = PartKind::Unknown,
            b"text" => {
                self.part.text = said;
                if self.part.kind == PartKind::Text {
                    self.purpose = Purpose::PartText;
                    return by_kind(kind);
                }
            }
            b"refusal" => {
                self.part.refusal = said;
                if self.part.kind == PartKind::Refusal {
                    self.purpose = Purpose::PartRefusal;
                    return by_kind(kind);
                }
            }
            b"image_url" => {
                self.part.image = (kind != Kind::Null).then_some(Detail::Full);
                if kind == Kind::Object {
                    return Action::Enter;
                }
            }
            _ => {}
        }
        Action::Skip
    }

    fn look_at(&mut self, purpose: Purpose) -> Action {
        self.purpose = purpose;
        self.short.clear();
        Action::Text
    }

    fn take_text(&mut self) -> u64 {
        let text = std::mem::take(&mut self.text);
        self.rules.map_or(0, |rules| text.total(rules.encoding))
    }

    fn push(&mut self, piece: &[u8]) {
        let Some(Rules { encoding, .. }) = self.rules else { return };
        for step in piece.chunks(STEP) {
            self.text.push(step);
            if self.text.kept() > MAX_KEPT {
                self.text.compact(encoding, MAX_KEPT / 2);
            }
        }
    }

    fn add(&mut self, tokens: u64) {
        self.total = self.total.saturating_add(tokens);
    }
}
