//! Whether a body is text at all, by how it begins. What is compressed without saying so is not.

/// Enough to tell by.
const LENGTH: usize = 512;

#[derive(Default)]
pub struct Sniff(Vec<u8>);

impl Sniff {
    pub fn push(&mut self, chunk: &[u8]) {
        let room = LENGTH - self.0.len().min(LENGTH);
        self.0.extend_from_slice(chunk.get(..room).unwrap_or(chunk));
    }

    pub fn is_text(&self) -> bool {
        let is_cut = |error: std::str::Utf8Error| error.error_len().is_none();
        std::str::from_utf8(&self.0).map_or_else(is_cut, |_| true)
            && !self.0.iter().any(|byte| is_control(*byte))
    }
}

/// One that no text has: not white space, a backspace, an escape or a separator of records.
fn is_control(byte: u8) -> bool {
    byte < b' ' && !matches!(byte, 8..=13 | 0x1b | 0x1e)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_what_is_none() {
        let mut cut = "价".repeat(171).into_bytes();
        cut.insert(0, b'a');
        for (body, is_text) in [
            (b"".as_slice(), true),
            (b"<html>\r\n\t</html>", true),
            (&cut, true),
            (b"\x0b\x05\x80Hello\x03", false),
            (b"\x28\xb5\x2f\xfd\x04\x00", false),
            (b"\x78\x9c\xab\x56", false),
            (b"{\0\"\0", false),
        ] {
            let mut sniff = Sniff::default();
            for byte in body.chunks(1) {
                sniff.push(byte);
            }
            assert_eq!(sniff.is_text(), is_text, "{body:?}");
            assert!(sniff.0.len() <= LENGTH);
        }
    }
}
