//! What a settle does to a reservation, as pure functions: the stores only carry it out.

use tokengate_api::{ReservationId, Usage};

use super::record::{Entry, Record};
use super::{Answered, Closed, HeldRecord, Lifetimes, Meter, Settled};
use crate::limits::{Algorithm, Mark, place};
use crate::tag::Tag;

/// One item of a settle batch, checked and resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settlement {
    pub id: ReservationId,
    pub account: Tag,
    pub closing: Closing,
    pub answered: Answered,
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
    Used(Usage),
    /// Nothing is known: what was held is charged.
    Held,
    /// Nothing is owed; the request stays counted if something was sent.
    Released {
        sent: bool,
    },
}

/// A charge to a current window by today's policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Booking {
    pub meter: Meter,
    pub amount: u64,
}

/// A correction of one bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Correction {
    pub meter: Meter,
    pub change: Change,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// To where the charge went, or nowhere. `held` is no longer held at its place, whatever is given back.
    Refund { mark: Mark, amount: u64, held: u64, place: u64 },
    /// Into the current window, in full.
    Excess { amount: u64 },
    /// Off what is counted now, whoever was charged with it.
    GiveBack { amount: u64 },
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

impl Stored {
    /// What a settle replaces, as the model that has answered.
    pub fn held_for(&self, settlement: &Settlement) -> Option<HeldRecord> {
        let Self::Open(record) = self else { return None };
        let Settlement { closing, answered, .. } = settlement;
        let mut held = record.held();
        let position = record.alternatives.answering(answered);
        if let Some(model) =
            position.and_then(|position| record.alternatives.models.get(usize::from(position)))
        {
            held.model = *model;
        }
        if let (Some(prices), Closing::Used(usage)) = (&mut held.prices, closing) {
            *prices = record.alternatives.price(usage, answered).unwrap_or(*prices);
        }
        Some(held)
    }
}

impl From<Settled> for Closed {
    /// Nothing was replaced.
    fn from(settled: Settled) -> Self {
        Self { settled, held: None, event: None, unreadable: 0 }
    }
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
            _ => Step::Replace(corrections(record, settlement)),
        },
        Stored::Absent | Stored::Refused { .. } => match &settlement.booking {
            Some(_) if !lifetimes.may_book(settlement.age_ms) => Step::Answer(Settled::Late),
            Some(bookings) => Step::Book(bookings.iter().map(excess).collect()),
            None => match stored {
                // A repeat of the close that left the tombstone. What was used is not charged by it: whoever has lost
                // the first answer must learn that, or it would never be booked.
                Stored::Refused { attempt } if *attempt >= settlement.attempt.unwrap_or(EVERY_ATTEMPT) => {
                    Step::Answer(match settlement.closing {
                        Closing::Released { sent: false } => Settled::Already,
                        _ => Settled::Unknown,
                    })
                }
                _ => refuse,
            },
        },
    }
}

fn excess(booking: &Booking) -> Correction {
    Correction { meter: booking.meter, change: Change::Excess { amount: booking.amount } }
}

/// The difference between what was held and what is owed, per bucket, and that nothing is held any more. What is
/// owed fills the entries of a bucket oldest first, so that refunds come from the newest.
fn corrections(record: &Record, settlement: &Settlement) -> Vec<Correction> {
    let mut corrections = Vec::new();
    for (position, first) in record.entries.iter().enumerate() {
        let of_bucket = |entry: &&Entry| entry.meter.bucket == first.meter.bucket;
        if record.entries.iter().take(position).any(|entry| of_bucket(&entry)) {
            continue;
        }
        let entries: Vec<_> = record.entries.iter().skip(position).filter(of_bucket).collect();
        let held = entries.iter().fold(0, |sum: u64, entry| sum.saturating_add(entry.amount));
        // The newest knows the calendar best.
        let meter = entries.last().map_or(first.meter, |entry| entry.meter);
        let mut unpaid = owed(record, first, held, settlement);
        for entry in &entries {
            let paid = unpaid.min(entry.amount);
            unpaid -= paid;
            let held = record.reserved_at_ms.map_or(0, |_| entry.held());
            if paid < entry.amount || held > 0 {
                let place = place(&entry.mark, record.reserved_at_ms.unwrap_or(0));
                let change = Change::Refund { mark: entry.mark, amount: entry.amount - paid, held, place };
                corrections.push(Correction { meter, change });
            }
        }
        if unpaid > 0 {
            corrections.push(Correction { meter, change: Change::Excess { amount: unpaid } });
        }
    }
    corrections
}

/// What a limit counts in the end. The rates are the record's own.
fn owed(record: &Record, entry: &Entry, held: u64, settlement: &Settlement) -> u64 {
    let Settlement { closing, answered, .. } = settlement;
    let used = |usage: &Usage| record.alternatives.of_usage(&entry.counted(), usage, answered);
    match closing {
        // A slot ends with its request, however that ended.
        _ if matches!(entry.meter.algorithm, Algorithm::Concurrency { .. }) => 0,
        Closing::Held if record.alternatives.is_anothers(entry.model, answered) => 0,
        Closing::Held => held,
        Closing::Used(usage) => used(usage),
        Closing::Released { sent: true } => used(&Usage::default()),
        Closing::Released { sent: false } => 0,
    }
}
