//! What goes into the scripts for a limit, and what they answer.

use super::super::StoreError;
use super::super::record::{Reader, double};
use crate::limits::fixed_window::Window;

/// One letter and three amounts, as the scripts read them.
pub fn packed(letter: u8, amounts: [u64; 3]) -> Vec<u8> {
    let mut bytes = vec![letter];
    for amount in amounts {
        bytes.extend(double(amount).to_be_bytes());
    }
    bytes
}

/// A decision: how it went, when, and how the buckets stand.
pub struct Answer<'a> {
    pub letter: u8,
    pub now_ms: u64,
    pub windows: Vec<Window>,
    pub rest: &'a [u8],
}

impl<'a> Answer<'a> {
    /// Reads the answer of a script that looked at so many buckets.
    pub fn read(bytes: &'a [u8], buckets: usize) -> Result<Self, StoreError> {
        let mut reader = Reader(bytes);
        let letter = match reader.byte() {
            Some(b'C') => return Err(StoreError::Clock),
            Some(letter) if letter != b'X' => letter,
            _ => return Err(StoreError::Format),
        };
        let now_ms = reader.amount().ok_or(StoreError::Format)?;
        let window = |_| Some(Window { start_ms: reader.amount()?, used: reader.amount()? });
        let windows = (0..buckets).map(window).collect::<Option<_>>().ok_or(StoreError::Format)?;
        Ok(Self { letter, now_ms, windows, rest: reader.0 })
    }
}
