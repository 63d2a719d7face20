//! Tells the text of a JSON value from the binary data in it: strings that are base64, which nobody reads as text.

use memchr::memchr2;

use super::unescape::Unescape;

/// Members whose long base64 is data without saying so.
const DATA_KEYS: [&[u8]; 11] = [
    b"data",
    b"url",
    b"file_data",
    b"image",
    b"images",
    b"image_url",
    b"video_url",
    b"audio_url",
    b"bytes",
    b"base64",
    b"b64_json",
];
const LONGEST_KEY: usize = 16;
/// So many letters of base64 under such a name are no word.
const LONG: usize = 1_024;
const DATA_URL: &[u8] = b"data:";
const CODED: &[u8] = b";base64";
/// The type and the parameters of a `data:` URL.
const LONGEST_HEAD: usize = 256;
/// What is looked at may be written in escapes of six bytes each.
const MOST_KEPT: usize = 6 * (LONG + 8);
/// Containers of which it is known what they are. In deeper ones everything is text.
const MAX_DEPTH: u32 = 64;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Outside,
    Key,
    /// A string of which nothing is known yet.
    Unsure,
    Text,
    Data,
}

/// Reads one value as it is written, in pieces cut anywhere.
#[derive(Debug, Default)]
pub struct Binary {
    state: State,
    /// How many strings were data.
    found: u64,
    depth: u32,
    /// A bit for each container: it is an object.
    objects: u64,
    expects_key: bool,
    key: Vec<u8>,
    /// The string so far as it is written, while nothing is known.
    kept: Vec<u8>,
    /// And what it says.
    said: Vec<u8>,
    /// It stands under one of the names, and is base64 so far.
    may_be_data: bool,
    unescape: Unescape,
    is_escaped: bool,
}

impl Binary {
    /// For the value of the member with this name.
    pub fn under(key: &[u8]) -> Self {
        Self { key: key.to_vec(), ..Self::default() }
    }

    pub fn found(&self) -> u64 {
        self.found
    }

    /// Reads on and hands out what is text.
    pub fn push(&mut self, mut bytes: &[u8], mut text: impl FnMut(&[u8])) {
        while !bytes.is_empty() {
            let used = match self.state {
                State::Outside => self.outside(bytes, &mut text),
                State::Key => self.key(bytes, &mut text),
                State::Unsure => self.unsure(bytes, &mut text),
                State::Text => self.text(bytes, &mut text),
                State::Data => self.data(bytes, &mut text),
            };
            bytes = bytes.get(used..).unwrap_or(&[]);
        }
    }

    fn outside(&mut self, bytes: &[u8], text: &mut impl FnMut(&[u8])) -> usize {
        let is_mark = |byte: &u8| matches!(byte, b'"' | b'{' | b'}' | b'[' | b']' | b',' | b':');
        let Some(at) = bytes.iter().position(is_mark) else {
            text(bytes);
            return bytes.len();
        };
        text(bytes.get(..=at).unwrap_or(&[]));
        match bytes.get(at) {
            Some(b'"') if self.expects_key => {
                self.key.clear();
                self.state = State::Key;
            }
            Some(b'"') => {
                self.kept.clear();
                self.said.clear();
                self.may_be_data = DATA_KEYS.contains(&self.key.as_slice());
                self.state = if self.depth > MAX_DEPTH { State::Text } else { State::Unsure };
            }
            Some(&open @ (b'{' | b'[')) => {
                let bit = 1_u64.checked_shl(self.depth).unwrap_or(0);
                self.objects = if open == b'{' { self.objects | bit } else { self.objects & !bit };
                self.depth = self.depth.saturating_add(1);
                self.expects_key = open == b'{';
            }
            Some(b'}' | b']') => {
                self.depth = self.depth.saturating_sub(1);
                self.expects_key = false;
            }
            Some(b',') => {
                let innermost = self.depth.checked_sub(1).and_then(|at| self.objects.checked_shr(at));
                self.expects_key = innermost.is_some_and(|bits| bits & 1 != 0);
            }
            _ => self.expects_key = false,
        }
        at + 1
    }

    /// The next byte of a string, unescaped, and whether it was used; `None` at the string's end.
    fn letter(&mut self, byte: u8, said: impl FnOnce(&mut Self, &[u8])) -> Option<bool> {
        if self.unescape.is_open() {
            let mut out = [0; Unescape::MAX_OUTPUT];
            // What is no escape is refused by who reads the whole.
            let decoded = self.unescape.push(byte, &mut out).unwrap_or(b"?".as_slice());
            let used = self.unescape.consumed_last();
            said(self, decoded);
            return Some(used);
        }
        match byte {
            b'"' => return None,
            b'\\' => self.unescape.begin(),
            _ => said(self, &[byte]),
        }
        Some(true)
    }

    fn key(&mut self, bytes: &[u8], text: &mut impl FnMut(&[u8])) -> usize {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            let add = |this: &mut Self, said: &[u8]| {
                if this.key.len() <= LONGEST_KEY {
                    this.key.extend_from_slice(said);
                }
            };
            match self.letter(byte, add) {
                Some(used) => at += usize::from(used),
                None => {
                    at += 1;
                    self.state = State::Outside;
                    break;
                }
            }
        }
        text(bytes.get(..at).unwrap_or(&[]));
        at
    }

    fn unsure(&mut self, bytes: &[u8], text: &mut impl FnMut(&[u8])) -> usize {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            let add = |this: &mut Self, said: &[u8]| {
                this.may_be_data &= said.iter().all(is_base64);
                this.said.extend_from_slice(said);
            };
            let is_end = match self.letter(byte, add) {
                Some(used) => {
                    if used {
                        self.kept.push(byte);
                        at += 1;
                    }
                    false
                }
                None => true,
            };
            self.state = match is_end {
                true => State::Text,
                false => self.judged(),
            };
            if self.state != State::Unsure {
                match self.state {
                    State::Data => self.found = self.found.saturating_add(1),
                    _ => text(&self.kept),
                }
                self.is_escaped = false;
                break;
            }
        }
        at
    }

    /// What the string is, by its beginning. An escape is read to its end first.
    fn judged(&self) -> State {
        if self.unescape.is_open() {
            return State::Unsure;
        }
        let said = self.said.as_slice();
        let head = said.get(..DATA_URL.len().min(said.len())).unwrap_or(&[]);
        let may_be_url = DATA_URL.get(..head.len()).is_some_and(|url| url.eq_ignore_ascii_case(head));
        if may_be_url && head.len() == DATA_URL.len() {
            // It is looked at after every letter.
            let Some((b',', head)) = said.split_last() else {
                return if said.len() > LONGEST_HEAD { State::Text } else { State::Unsure };
            };
            let coded = head.len().checked_sub(CODED.len()).and_then(|from| head.get(from..));
            let is_coded = coded.is_some_and(|coded| coded.eq_ignore_ascii_case(CODED));
            return if is_coded { State::Data } else { State::Text };
        }
        match (may_be_url, self.may_be_data) {
            (false, false) => State::Text,
            _ if self.kept.len() > MOST_KEPT => State::Text,
            (_, true) if said.len() >= LONG => State::Data,
            _ => State::Unsure,
        }
    }

    fn text(&mut self, bytes: &[u8], text: &mut impl FnMut(&[u8])) -> usize {
        if std::mem::take(&mut self.is_escaped) {
            text(bytes.get(..1).unwrap_or(&[]));
            return 1;
        }
        let Some(at) = memchr2(b'"', b'\\', bytes) else {
            text(bytes);
            return bytes.len();
        };
        text(bytes.get(..=at).unwrap_or(&[]));
        match bytes.get(at) {
            Some(b'"') => self.state = State::Outside,
            _ => self.is_escaped = true,
        }
        at + 1
    }

    /// Passes over base64. What is none, and all behind it, is text.
    fn data(&mut self, bytes: &[u8], text: &mut impl FnMut(&[u8])) -> usize {
        let mut at = 0;
        if !self.unescape.is_open() {
            at = bytes.iter().position(|byte| !is_base64(byte)).unwrap_or(bytes.len());
        }
        let Some(&byte) = bytes.get(at) else { return at };
        let mut is_data = true;
        let used = self.letter(byte, |_, said| is_data = said.iter().all(is_base64));
        match used {
            None => {
                text(b"\"");
                self.state = State::Outside;
                at + 1
            }
            Some(used) => {
                let after = at + usize::from(used);
                if !is_data {
                    if used {
                        text(bytes.get(at..after).unwrap_or(&[]));
                    }
                    self.state = State::Text;
                }
                after
            }
        }
    }
}

/// A letter of base64 or base64url, of its line ends, or of its escapes in a URL.
fn is_base64(byte: &u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'+' | b'/' | b'-' | b'_' | b'=' | b'%' | b'\r' | b'\n')
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use proptest::prelude::*;

    use super::*;

    /// What is text of a value that comes in pieces which end there, and how many strings of it are data.
    fn read(value: &str, ends: impl IntoIterator<Item = usize>) -> (String, u64) {
        let (mut binary, mut text, mut from) = (Binary::default(), Vec::new(), 0);
        for end in ends.into_iter().chain([value.len()]) {
            let end = end.clamp(from, value.len());
            binary.push(&value.as_bytes()[from..end], |piece| text.extend_from_slice(piece));
            from = end;
        }
        (String::from_utf8(text).unwrap(), binary.found())
    }

    fn check(value: &str, text: &str, found: u64) {
        assert_eq!(read(value, []), (text.to_owned(), found), "{}", &value[..value.len().min(200)]);
        assert_eq!(read(value, 0..value.len()), (text.to_owned(), found), "byte by byte");
        for cut in 0..value.len() {
            assert_eq!(read(value, [cut]), (text.to_owned(), found), "cut at {cut}");
        }
    }

    #[test]
    fn data_urls_are_data() {
        for value in
            ["\"data:image/png;base64,iVBORw0KGgo=\"", "\"DATA:;Base64,AA\\/\\u002b\\u003D%2B-_\\r\\n\""]
        {
            check(value, "\"\"", 1);
        }
        let both = r#"{"type":"odd","a":["data:a/b;name=x.y;base64,QQ==","data:;base64,"],"b":"data"}"#;
        check(both, r#"{"type":"odd","a":["",""],"b":"data"}"#, 2);
        for text in [
            r#""data:text/plain,some words""#,
            r#""data:;base64""#,
            r#""data""#,
            r#""""#,
            r#""see data:;base64,AAAA""#,
            r#"{"data:;base64,AAAA":1}"#,
            "[1,true,null,{},[]]",
        ] {
            check(text, text, 0);
        }
        let long_head = format!("\"data:{};base64,AAAA\"", "x".repeat(300));
        assert_eq!(read(&long_head, []), (long_head, 0));
    }

    #[test]
    fn words_behind_base64_are_text() {
        check(r#""data:;base64,AAAA and \"words\" "#, r#"" and \"words\" "#, 1);
        check(r#"["data:;base64,AAAA\tand \\","b"]"#, r#"["tand \\","b"]"#, 1);
    }

    #[test]
    fn long_base64_is_data_where_its_name_says_so() {
        let base64 = "QUJD".repeat(256);
        for key in ["data", "url", "file_data", "b64_json", "d\\u0061ta"] {
            let with = |text: &str| format!("{{\"x\":{{\"{key}\":\"{text}\"}},\"y\":\"{base64}\"}}");
            assert_eq!(read(&with(&base64), []), (with(""), 1), "{key}");
            assert_eq!(read(&with(&base64), [5, 20, 700, 1_040]), (with(""), 1), "{key}");
            let short = with(&base64[4..]);
            assert_eq!(read(&short, []), (short.clone(), 0));
            let words = with(&format!("some {base64}"));
            assert_eq!(read(&words, []), (words.clone(), 0));
        }
        let escaped = format!("{{\"data\":\"{}\"}}", "\\u002bA\\/=".repeat(400));
        assert_eq!(read(&escaped, []), ("{\"data\":\"\"}".to_owned(), 1));
        let list = format!("{{\"images\":[\"{base64}\",\"{base64}\"]}}");
        assert_eq!(read(&list, []), ("{\"images\":[\"\",\"\"]}".to_owned(), 2));
        let text = format!("{{\"text\":\"{base64}\"}}");
        assert_eq!(read(&text, []), (text.clone(), 0));
    }

    #[test]
    fn what_is_very_deep_is_text() {
        let deep = format!("{}\"data:;base64,AAAA\"{}", "[".repeat(100), "]".repeat(100));
        assert_eq!(read(&deep, []), (deep.clone(), 0));
    }

    proptest! {
        #[test]
        fn any_text_in_any_pieces(
            text in r#"[\[\]{}",:a1 \\/]{0,40}(data:;base64,|data:a,|DATA:)?[\[\]{}",:a1 \\u0d8]{0,40}"#,
            mut ends in prop::collection::vec(0..100usize, 0..5),
        ) {
            ends.sort_unstable();
            prop_assert_eq!(read(&text, ends), read(&text, []));
        }
    }
}
