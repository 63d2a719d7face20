//! Randomness from the host, by WASI.

use tokengate_api::ReservationId;

pub fn reservation_id() -> Option<ReservationId> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).ok()?;
    Some(ReservationId::from_bytes(bytes))
}

/// Any number, 0 where there is no randomness: good enough to spread retries.
pub fn jitter() -> u64 {
    getrandom::u64().unwrap_or(0)
}
