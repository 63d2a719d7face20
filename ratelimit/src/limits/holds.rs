//! What open holds take of a bucket: what settles may still give back.
//!
//! Amounts are added up by place, which is where a refund would go: a sub-window, an interval of a token bucket, else
//! the hour of the reservation. A portion ends when the last record in it lapses, since nobody settles it any more.

use std::ops::RangeInclusive;

use super::{MAX_AMOUNT, Mark};

const HOUR_MS: u64 = 3_600_000;
/// More than any algorithm needs; what is held beyond them is not known.
const MOST_PORTIONS: usize = 200;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holds(pub Vec<Portion>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Portion {
    pub place: u64,
    pub amount: u64,
    /// When the last of its records lapses.
    pub until_ms: u64,
}

/// How long a hold can be settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    pub reserved_at_ms: u64,
    pub lapses_at_ms: u64,
}

/// Where a hold is counted whose charge has this mark.
pub fn place(mark: &Mark, reserved_at_ms: u64) -> u64 {
    match *mark {
        Mark::SubWindow { index } => index,
        Mark::Level { interval, .. } => interval,
        Mark::Window { .. } | Mark::None => reserved_at_ms / HOUR_MS,
    }
}

impl Holds {
    /// Forgets what has lapsed, and what is outside these places.
    pub(super) fn keep(&mut self, now_ms: u64, places: &RangeInclusive<u64>) {
        self.0.retain(|portion| portion.until_ms > now_ms && places.contains(&portion.place));
    }

    pub(super) fn add(&mut self, place: u64, amount: u64, until_ms: u64) {
        if amount == 0 {
            return;
        }
        if let Some(portion) = self.0.iter_mut().find(|portion| portion.place == place) {
            portion.amount = portion.amount.saturating_add(amount).min(MAX_AMOUNT);
            portion.until_ms = portion.until_ms.max(until_ms);
        } else if self.0.len() < MOST_PORTIONS {
            self.0.push(Portion { place, amount: amount.min(MAX_AMOUNT), until_ms });
        }
    }

    pub(super) fn take_off(&mut self, place: u64, amount: u64) {
        if let Some(portion) = self.0.iter_mut().find(|portion| portion.place == place) {
            portion.amount = portion.amount.saturating_sub(amount);
        }
        self.0.retain(|portion| portion.amount > 0);
    }

    pub(super) fn sum(&self) -> u64 {
        self.0.iter().fold(0, |sum: u64, portion| sum.saturating_add(portion.amount)).min(MAX_AMOUNT)
    }
}
