//! Gzip, with a bound on what comes out: the one coding that is read.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::{GzEncoder, MultiGzDecoder};
use flate2::write::MultiGzDecoder as PushDecoder;

/// How much is taken in at once. Gzip makes at most about a thousand times as much of it.
const STEP: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InflateError {
    /// More than the bound came out.
    TooLarge,
    Malformed,
}

/// Inflates a whole body into at most `limit` bytes.
pub fn inflate(body: &[u8], limit: usize) -> Result<Vec<u8>, InflateError> {
    let mut out = Vec::new();
    let one_more = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    MultiGzDecoder::new(body).take(one_more).read_to_end(&mut out).map_err(|_| InflateError::Malformed)?;
    if out.len() > limit { Err(InflateError::TooLarge) } else { Ok(out) }
}

/// Compresses a whole body; `None` if that cannot be done.
pub fn deflate(body: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    GzEncoder::new(body, Compression::fast()).read_to_end(&mut out).ok()?;
    Some(out)
}

/// Inflates what arrives in pieces, for reading along.
pub struct Inflater(PushDecoder<Vec<u8>>);

impl Default for Inflater {
    fn default() -> Self {
        Self(PushDecoder::new(Vec::new()))
    }
}

impl Inflater {
    /// Hands what can be inflated on, a little at a time; `false` once it is no gzip.
    pub fn push(&mut self, chunk: &[u8], mut found: impl FnMut(&[u8])) -> bool {
        for step in chunk.chunks(STEP) {
            if self.0.write_all(step).and_then(|()| self.0.flush()).is_err() {
                return false;
            }
            found(self.0.get_ref());
            self.0.get_mut().clear();
        }
        true
    }

    /// Inflates the next part of what begins at `from` into `out`, and then stops; gives how far it came, or
    /// nothing if it is no gzip.
    pub fn next_part(&mut self, packed: &[u8], from: usize, out: &mut Vec<u8>) -> Option<usize> {
        let end = from.saturating_add(STEP).min(packed.len());
        self.push(packed.get(from..end)?, |part| out.extend_from_slice(part)).then_some(end)
    }

    /// The last member was whole.
    pub fn is_whole(&mut self) -> bool {
        self.0.try_finish().is_ok()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_body_comes_back_and_a_bomb_does_not() {
        let body = b"some text ".repeat(1_000);
        let packed = deflate(&body).unwrap();
        assert_eq!(inflate(&packed, body.len()), Ok(body.clone()));
        assert_eq!(inflate(&packed, body.len() - 1), Err(InflateError::TooLarge));
        assert_eq!(inflate(packed.get(..packed.len() - 9).unwrap(), 1 << 20), Err(InflateError::Malformed));
        assert_eq!(inflate(b"{}", 100), Err(InflateError::Malformed));
        let bomb = deflate(&vec![b' '; 64 << 20]).unwrap();
        assert!(bomb.len() < 400_000);
        assert_eq!(inflate(&bomb, 1 << 20), Err(InflateError::TooLarge));
    }

    #[test]
    fn pieces_cut_anywhere() {
        let body: Vec<u8> = (0..50_000u32).flat_map(|n| n.to_le_bytes()).collect();
        let packed = deflate(&body).unwrap();
        for size in [1, 7, 1_000, 100_000] {
            let (mut inflater, mut out) = (Inflater::default(), Vec::new());
            assert!(
                packed.chunks(size).all(|piece| inflater.push(piece, |part| out.extend_from_slice(part)))
            );
            assert_eq!(out, body);
        }
        assert!(!Inflater::default().push(b"this is not gzip at all", |_| ()));
    }
}
