//! What a settle does to a reservation, as pure functions: the stores only carry it out.

use tokengate_api::{Metric, ReservationId};

use super::record::Record;
use super::{BucketId, Lifetimes, Settled};
use crate::tag::Tag;

/// One item of a settle batch, checked and resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settlement {
    pub id: ReservationId,
    pub account: Tag,
    pub closing: Closing,
    /// Close only what this attempt, or an earlier one, has made. Absent: close everything.
    pub attempt: Option<u8>,
    pub age_ms: u64,
    pub queued_ms: u64,
    /// What to charge when there is no hold; empty when that is not known.
    pub booking: Option<Vec<Booking>>,
}

/// What the reservation turned out to cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    Used {
        tokens: u64,
    },
    /// Nothing is known: what was held is charged.
    Held,
    /// Nothing is owed; the request stays counted if something was sent.
    Released {
        sent: bool,
    },
}

/// A charge to a current window by today's policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Booking {
    pub bucket: BucketId,
    pub amount: u64,
    pub window_ms: u64,
}

/// A correction of one bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Correction {
    pub bucket: BucketId,
    pub window_ms: u64,
    pub change: Change,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Into the window that starts here, or nowhere.
    Refund { start_ms: u64, amount: u64 },
    /// Into the current window, in full.
    Excess { amount: u64 },
}

/// What is stored under an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored {
    Absent,
    Open(Record),
    /// Tombstone of a settle.
    Settled,
    /// Tombstone of a close that came before its reserve; closes attempts up to this one.
    Refused {
        attempt: u8,
    },
}

/// What to do about a settlement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing to write.
    Answer(Settled),
    /// Correct the buckets, then leave the tombstone of a settle.
    Replace(Vec<Correction>),
    /// The same without a hold.
    Book(Vec<Correction>),
    /// Leave the tombstone of a close that came first.
    Refuse { attempt: u8 },
}

/// Closes every attempt.
pub const EVERY_ATTEMPT: u8 = u8::MAX;

pub fn step(settlement: &Settlement, stored: &Stored, lifetimes: &Lifetimes) -> Step {
    if !lifetimes.in_time(settlement.queued_ms) {
        return Step::Answer(Settled::Late);
    }
    let refuse = Step::Refuse { attempt: settlement.attempt.unwrap_or(EVERY_ATTEMPT) };
    match stored {
        Stored::Settled => Step::Answer(Settled::Already),
        Stored::Open(record) => match settlement.attempt {
            Some(attempt) if record.attempt > attempt => Step::Answer(Settled::Unknown),
            _ => Step::Replace(corrections(record, settlement.closing)),
        },
        Stored::Absent | Stored::Refused { .. } => match &settlement.booking {
            Some(_) if !lifetimes.may_book(settlement.age_ms) => Step::Answer(Settled::Late),
            Some(bookings) => Step::Book(bookings.iter().map(excess).collect()),
            None => match stored {
                // A repeat of the close that left the tombstone.
                Stored::Refused { attempt } if *attempt >= settlement.attempt.unwrap_or(EVERY_ATTEMPT) => {
                    Step::Answer(Settled::Already)
                }
                _ => refuse,
            },
        },
    }
}

fn excess(booking: &Booking) -> Correction {
    Correction {
        bucket: booking.bucket,
        window_ms: booking.window_ms,
        change: Change::Excess { amount: booking.amount },
    }
}

/// The difference between what was held and what is owed, per bucket; nothing where they are equal.
fn corrections(record: &Record, closing: Closing) -> Vec<Correction> {
    let correction = |entry: &super::record::Entry| {
        let owed = match (entry.metric, closing) {
            (_, Closing::Held) => entry.amount,
            (Metric::Requests, Closing::Released { sent: false }) => 0,
            (Metric::Requests, _) => entry.amount,
            (_, Closing::Used { tokens }) => tokens,
            (_, Closing::Released { .. }) => 0,
        };
        let change = if owed > entry.amount {
            Change::Excess { amount: owed - entry.amount }
        } else {
            Change::Refund { start_ms: entry.start_ms, amount: entry.amount - owed }
        };
        (owed != entry.amount).then_some(Correction {
            bucket: entry.bucket,
            window_ms: entry.window_ms,
            change,
        })
    };
    record.entries.iter().filter_map(correction).collect()
}
