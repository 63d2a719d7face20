//! What of a request's values counts, and how.

use super::loose::{Loose, Threshold};
use super::names::{
    self, ACTED_ON, COUNTED, FUNCTION, HARMLESS, IMAGE, MESSAGE, Names, PART, PREDICTION, Seen, TOOL,
};
use super::part::{Part, PartKind, Said, Worth, by_kind};
use crate::json::Fault;
use crate::json::walk::{Action, Again, Kind, MAX_DEPTH, Place, Visitor};
use crate::tokenizer::{HIDDEN_TOKENS, Joined, MEDIA_TOKENS, MESSAGE_OVERHEAD, NAME_OVERHEAD, Rules};

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
    /// Of members that nobody knows, which a provider may or may not make a part of the prompt.
    pub unknown: u64,
    /// A prompt that is given as its tokens.
    pub ids: u64,
    pub images: u64,
    pub low_images: u64,
    text: Joined,
    loose: Loose,
    purpose: Purpose,
    /// A value that is looked at: the model, the type of a part, the detail of an image, the tools.
    short: Vec<u8>,
    pub model: Option<String>,
    /// The first member that counts and was passed over while the rules were unknown.
    pub skipped_at: Option<usize>,
    part: Part,
    tools_at: usize,
    inside: [(Level, Seen); MAX_DEPTH + 1],
    /// Why what was counted need not be what a server reads. Nothing is counted after it.
    pub fault: Option<Fault>,
}

/// What a container holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Level {
    #[default]
    Top,
    Ids,
    Messages,
    Message,
    Content,
    Part,
    Image,
    Prediction,
    Tools,
    Tool,
    Function,
}

/// What the value being handed out is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Purpose {
    #[default]
    Total,
    PartText,
    PartRefusal,
    /// What may be text or data.
    Loose,
    Model,
    Tools,
    PartType,
    DetailInside,
    DetailOutside,
}

impl Level {
    /// The names that are read in it.
    fn names(self) -> Names {
        match self {
            Self::Message => MESSAGE,
            Self::Part => PART,
            Self::Image => IMAGE,
            Self::Prediction => PREDICTION,
            Self::Tool => TOOL,
            Self::Function => FUNCTION,
            Self::Top | Self::Ids | Self::Messages | Self::Content | Self::Tools => &[],
        }
    }
}

impl Visitor for Count {
    fn value(&mut self, place: Place<'_>, kind: Kind) -> Action {
        self.purpose = Purpose::Total;
        let Some((level, seen)) = self.inside.get_mut(place.depth) else { return Action::Skip };
        let level = *level;
        if self.fault.is_none() {
            self.fault = names::note(place.key, level.names(), seen).err();
        }
        if self.fault.is_some() {
            return Action::Skip;
        }
        match (level, kind) {
            (Level::Top, _) => self.member(place, kind),
            (Level::Ids, Kind::Array) => self.enter(place, Level::Ids),
            (Level::Ids, _) => {
                self.ids = self.ids.saturating_add(1);
                Action::Skip
            }
            (Level::Messages, Kind::Object) => {
                self.add(MESSAGE_OVERHEAD);
                self.enter(place, Level::Message)
            }
            (Level::Message | Level::Prediction | Level::Content, Kind::Null) => Action::Skip,
            (Level::Message, _) => self.message_member(place, kind),
            (Level::Content, Kind::Object) => {
                self.part = Part { at: place.at, ..Part::default() };
                self.enter(place, Level::Part)
            }
            (Level::Content, _) => by_kind(kind),
            (Level::Part, _) => self.part_member(place, kind),
            (Level::Image, Kind::Text) if place.key == b"detail" => self.look_at(Purpose::DetailInside),
            (Level::Prediction, Kind::Array) if place.key == b"content" => self.enter(place, Level::Content),
            (Level::Prediction, _) if place.key == b"content" => by_kind(kind),
            (Level::Tools, Kind::Object) => self.enter(place, Level::Tool),
            (Level::Tool, Kind::Object) if place.key == b"function" => self.enter(place, Level::Function),
            _ => Action::Skip,
        }
    }

    fn piece(&mut self, piece: &[u8]) {
        match self.purpose {
            Purpose::Total | Purpose::PartText | Purpose::PartRefusal => self.push(piece),
            Purpose::Loose => {
                let mut loose = std::mem::take(&mut self.loose);
                loose.push(piece, |text| self.push(text));
                self.loose = loose;
            }
            Purpose::Tools if self.short.len() + piece.len() > MAX_TOOLS => {
                // More than is looked at.
                self.purpose = Purpose::Total;
                let start = std::mem::take(&mut self.short);
                self.push(&start);
                self.push(piece);
            }
            Purpose::Tools => self.short.extend_from_slice(piece),
            _ if self.short.len() <= MAX_SHORT => {
                let room = piece.len().min(MAX_SHORT + 1 - self.short.len());
                self.short.extend_from_slice(piece.get(..room).unwrap_or(&[]));
            }
            _ => {}
        }
    }

    fn end(&mut self) -> bool {
        let short = std::mem::take(&mut self.short);
        match self.purpose {
            Purpose::Total => {
                let tokens = self.take_text();
                self.add(tokens);
            }
            Purpose::Loose => self.end_loose(),
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
            Purpose::PartType => self.part.kind = PartKind::of(&short),
            Purpose::DetailInside => self.part.is_low_inside = short == b"low",
            Purpose::DetailOutside => self.part.is_low_outside = short == b"low",
        }
        false
    }

    fn close(&mut self, depth: usize) -> Option<Again> {
        let (level, _) = *self.inside.get(depth)?;
        self.purpose = Purpose::Total;
        if self.fault.is_some() {
            return None;
        }
        match level {
            Level::Tools => {
                self.purpose = Purpose::Tools;
                self.short.clear();
                Some(Again { at: self.tools_at, kind: Kind::Array, action: Action::Raw })
            }
            Level::Part => self.close_part(),
            _ => None,
        }
    }
}

impl Count {
    fn member(&mut self, place: Place<'_>, kind: Kind) -> Action {
        if place.key == b"model" && self.rules.is_none() && kind == Kind::Text {
            return self.look_at(Purpose::Model);
        }
        let is = |names: &[&str]| names.iter().any(|name| name.as_bytes() == place.key);
        let is_unknown = kind != Kind::Scalar && !is(&ACTED_ON) && !is(&HARMLESS) || is(&[names::EXTRA]);
        if kind == Kind::Null || !(is(&COUNTED) || is_unknown) {
            return Action::Skip;
        }
        if self.rules.is_none() {
            self.skipped_at = self.skipped_at.or(Some(place.key_at));
            return Action::Skip;
        }
        match (place.key, kind) {
            (b"messages", Kind::Array) => self.enter(place, Level::Messages),
            (b"messages", _) => Action::Skip,
            (b"tools", Kind::Array) => {
                self.tools_at = place.at;
                self.enter(place, Level::Tools)
            }
            (b"input_ids", Kind::Array) => self.enter(place, Level::Ids),
            (b"prediction", Kind::Object) => self.enter(place, Level::Prediction),
            (b"chat_template" | b"input_ids" | b"prediction", _) => by_kind(kind),
            (b"data_sources" | b"session_params" | b"lora_path", _) => {
                self.add(HIDDEN_TOKENS);
                Action::Raw
            }
            _ if is_unknown => self.look_into(Loose::new(place.key, Threshold::Whole)),
            _ => Action::Raw,
        }
    }

    fn message_member(&mut self, place: Place<'_>, kind: Kind) -> Action {
        match (place.key, kind) {
            (b"content", Kind::Array) => self.enter(place, Level::Content),
            (b"name", _) => {
                self.add(NAME_OVERHEAD);
                by_kind(kind)
            }
            (_, Kind::Text) => Action::Text,
            (key, Kind::Object | Kind::Array)
                if key == b"content" || !MESSAGE.iter().any(|(name, _)| name.as_bytes() == key) =>
            {
                self.look_into(Loose::new(key, Threshold::None))
            }
            _ => Action::Raw,
        }
    }

    fn part_member(&mut self, place: Place<'_>, kind: Kind) -> Action {
        let said = Some(Said { at: place.at, kind, tokens: None });
        match (place.key, kind) {
            (b"type", Kind::Text) => return self.look_at(Purpose::PartType),
            (b"text", _) => {
                self.part.text = said;
                if self.part.kind == PartKind::Text {
                    self.purpose = Purpose::PartText;
                    return by_kind(kind);
                }
            }
            (b"refusal", _) => {
                self.part.refusal = said;
                if self.part.kind == PartKind::Refusal {
                    self.purpose = Purpose::PartRefusal;
                    return by_kind(kind);
                }
            }
            (b"image_url", _) => {
                self.part.has_image = kind != Kind::Null;
                if kind == Kind::Object {
                    return self.enter(place, Level::Image);
                }
            }
            (b"detail", Kind::Text) => return self.look_at(Purpose::DetailOutside),
            // A server may tell what a part is by what it holds.
            (key, _) if key != b"detail" && kind != Kind::Null => {
                self.part.has_media |= key != b"type" && PART.iter().any(|(name, _)| name.as_bytes() == key);
            }
            _ => {}
        }
        Action::Skip
    }

    fn close_part(&mut self) -> Option<Again> {
        let part = std::mem::take(&mut self.part);
        let as_written = Again { at: part.at, kind: Kind::Object, action: Action::Raw };
        match part.worth() {
            Worth::Said(said) => {
                let said = said?;
                let Some(tokens) = said.tokens else {
                    return Some(Again { at: said.at, kind: said.kind, action: by_kind(said.kind) });
                };
                self.add(tokens);
                None
            }
            Worth::Image { is_low } => {
                let images = if is_low { &mut self.low_images } else { &mut self.images };
                *images = images.saturating_add(1);
                None
            }
            Worth::Media => {
                self.look_into(Loose::new(b"", Threshold::Text));
                Some(as_written)
            }
            Worth::AsWritten { has_image } => {
                self.images = self.images.saturating_add(u64::from(has_image));
                self.look_into(Loose::new(b"", Threshold::None));
                Some(as_written)
            }
        }
    }

    fn end_loose(&mut self) {
        let loose = std::mem::take(&mut self.loose);
        let threshold = loose.threshold();
        let (media, counts) = loose.end(|text| self.push(text));
        let text = self.take_text();
        let tokens = media.saturating_mul(MEDIA_TOKENS).saturating_add(text);
        match threshold {
            Threshold::Whole if !counts => {}
            Threshold::Whole => self.unknown = self.unknown.saturating_add(tokens),
            Threshold::Text if media == 0 => self.add(tokens.saturating_add(MEDIA_TOKENS)),
            Threshold::Text | Threshold::None => self.add(tokens),
        }
    }

    fn enter(&mut self, place: Place<'_>, level: Level) -> Action {
        if let Some(inside) = self.inside.get_mut(place.depth + 1) {
            *inside = (level, 0);
        }
        Action::Enter
    }

    fn look_at(&mut self, purpose: Purpose) -> Action {
        self.purpose = purpose;
        self.short.clear();
        Action::Text
    }

    fn look_into(&mut self, loose: Loose) -> Action {
        self.purpose = Purpose::Loose;
        self.loose = loose;
        Action::Raw
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
