//! JSON string escapes that may be cut anywhere.

/// State of one escape, from the backslash on. A lone surrogate becomes U+FFFD.
#[derive(Debug, Default)]
pub struct Unescape {
    state: State,
    consumed: bool,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Closed,
    /// After `\`.
    Start,
    /// After `\u` and `digits` hex digits; `high` is a surrogate that waits for its other half.
    Hex { digits: u8, value: u16, high: Option<u16> },
    /// After a high surrogate: `\` must follow, or it was a lone one.
    Pair { high: u16 },
    /// After a high surrogate and `\`.
    PairStart { high: u16 },
}

impl Unescape {
    /// The most bytes one input byte can give: a lone surrogate's U+FFFD and a character.
    pub const MAX_OUTPUT: usize = 8;

    pub fn begin(&mut self) {
        self.state = State::Start;
    }

    /// Inside an escape, or after a high surrogate whose other half may follow.
    pub fn is_open(&self) -> bool {
        !matches!(self.state, State::Closed)
    }

    /// Whether the last [`push`](Self::push) used its byte. It did not when a lone high surrogate was
    /// followed by something else.
    pub fn consumed_last(&self) -> bool {
        self.consumed
    }

    /// Takes the next byte; gives the text that became known, or `None` when this is no JSON escape.
    pub fn push<'a>(&mut self, byte: u8, out: &'a mut [u8; Self::MAX_OUTPUT]) -> Option<&'a [u8]> {
        self.consumed = true;
        match self.state {
            State::Closed => Some(&[]),
            State::Start => self.simple(byte, None, out),
            State::Pair { high } if byte == b'\\' => {
                self.state = State::PairStart { high };
                Some(&[])
            }
            State::Pair { .. } => {
                self.state = State::Closed;
                self.consumed = false;
                Some(write(out, &[char::REPLACEMENT_CHARACTER]))
            }
            State::PairStart { high } => self.simple(byte, Some(high), out),
            State::Hex { digits, value, high } => {
                let digit = char::from(byte).to_digit(16).and_then(|d| u16::try_from(d).ok())?;
                let value = (value << 4) | digit;
                if digits < 3 {
                    self.state = State::Hex { digits: digits + 1, value, high };
                    return Some(&[]);
                }
                Some(self.unit(value, high, out))
            }
        }
    }

    fn simple<'a>(
        &mut self,
        byte: u8,
        high: Option<u16>,
        out: &'a mut [u8; Self::MAX_OUTPUT],
    ) -> Option<&'a [u8]> {
        let decoded = match byte {
            b'"' | b'\\' | b'/' => char::from(byte),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                self.state = State::Hex { digits: 0, value: 0, high };
                return Some(&[]);
            }
            _ => return None,
        };
        self.state = State::Closed;
        Some(match high {
            Some(_) => write(out, &[char::REPLACEMENT_CHARACTER, decoded]),
            None => write(out, &[decoded]),
        })
    }

    fn unit<'a>(&mut self, unit: u16, high: Option<u16>, out: &'a mut [u8; Self::MAX_OUTPUT]) -> &'a [u8] {
        const LONE: char = char::REPLACEMENT_CHARACTER;
        self.state = State::Closed;
        match (high, unit) {
            (Some(high), 0xdc00..=0xdfff) => {
                let pair = char::decode_utf16([high, unit]).next();
                write(out, &[pair.and_then(Result::ok).unwrap_or(LONE)])
            }
            (high, 0xd800..=0xdbff) => {
                self.state = State::Pair { high: unit };
                if high.is_some() { write(out, &[LONE]) } else { &[] }
            }
            (high, _) => {
                let decoded = char::from_u32(u32::from(unit)).unwrap_or(LONE);
                if high.is_some() { write(out, &[LONE, decoded]) } else { write(out, &[decoded]) }
            }
        }
    }
}

fn write<'a>(out: &'a mut [u8; Unescape::MAX_OUTPUT], chars: &[char]) -> &'a [u8] {
    let mut length = 0;
    for c in chars {
        let mut utf8 = [0; 4];
        for byte in c.encode_utf8(&mut utf8).bytes() {
            if let Some(slot) = out.get_mut(length) {
                *slot = byte;
                length += 1;
            }
        }
    }
    out.get(..length).unwrap_or(&[])
}
