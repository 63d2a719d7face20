//! Settles on their way to the quota service: queued by streams, sent in batches by the root context,
//! repeated until they are taken.
//!
//! Two classes: what was sent to a provider is never displaced by what was not. A stream cannot send its own:
//! the answer to a call of a stream that has ended is lost, so that it could never be repeated.

mod queue;
mod release;

use tokengate_api::{MAX_SETTLE_ITEMS, ReserveRequest, SettleItem, SettleResult, SettleStatus};

use crate::back_off::BackOff;
use crate::callers::CallerId;
use queue::{Entry, Queue};
use release::Release;

/// Releases that may wait. What is given up stays charged, if it was held at all.
pub const MAX_RELEASES: usize = 8_192;
/// Batches under way at a time: more than one only for what frees a slot or a tight budget.
const MAX_FLIGHTS: usize = 8;

/// What a stream queues.
#[derive(Debug, PartialEq)]
pub struct Settle {
    pub item: SettleItem,
    /// The body of a reserve that was answered `allow`, for a service that has forgotten it.
    pub reserve: Option<Box<ReserveRequest>>,
    pub reserved_at: u64,
    /// It frees a slot, or budget that the next request of this caller may need at once.
    pub frees: Option<CallerId>,
}

/// Items that are sent together.
#[derive(Debug, PartialEq, Eq)]
pub struct Batch {
    pub number: u64,
    pub items: Vec<SettleItem>,
    /// How many of them were sent before.
    pub repeated: usize,
}

struct Flight {
    number: u64,
    settles: Vec<Entry<Kept>>,
    releases: Vec<Entry<Release>>,
    frees: Vec<CallerId>,
}

struct Kept {
    item: SettleItem,
    reserve: Option<Box<ReserveRequest>>,
}

/// Times are milliseconds of one clock that the caller reads.
pub struct Outbox {
    settles: Queue<Kept>,
    releases: Queue<Release>,
    flights: Vec<Flight>,
    next_number: u64,
    batch: usize,
    back_off: BackOff,
    next_at: u64,
    is_failing: bool,
    has_urgent: bool,
    rebooked: u64,
}

/// What became of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// With what became of each of its items, in their order.
    Taken(Vec<SettleResult>),
    /// No usable answer: send it again, later.
    Failed,
    /// The service says that the batch itself is wrong: sending it again will not help.
    Rejected,
}

impl Outbox {
    pub fn new(max_items: usize) -> Self {
        Self {
            settles: Queue::new(max_items),
            releases: Queue::new(MAX_RELEASES),
            flights: Vec::new(),
            next_number: 0,
            batch: MAX_SETTLE_ITEMS,
            back_off: BackOff::default(),
            next_at: 0,
            is_failing: false,
            has_urgent: false,
            rebooked: 0,
        }
    }

    /// Settles that were given up; their holds stay charged.
    pub fn dropped_settles(&self) -> u64 {
        self.settles.dropped()
    }

    /// Releases that were given up; what they may have held stays charged.
    pub fn dropped_releases(&self) -> u64 {
        self.releases.dropped()
    }

    /// Settles that were sent again with their reserve, for the service knew no such hold.
    pub fn rebooked(&self) -> u64 {
        self.rebooked
    }

    /// Settles that wait or are under way.
    pub fn settles(&self) -> usize {
        self.settles.len()
    }

    /// Releases that wait or are under way.
    pub fn releases(&self) -> usize {
        self.releases.len()
    }

    pub fn is_empty(&self) -> bool {
        self.settles() + self.releases() == 0
    }

    /// Queues a settle. Where its class is full, the oldest of that class gives way.
    pub fn push(&mut self, settle: Settle, now: u64) {
        let Settle { mut item, reserve, reserved_at, frees } = settle;
        self.has_urgent |= frees.is_some();
        match Release::of(&mut item) {
            Some(item) => {
                self.releases.push(Entry { item, reserved_at, queued_at: now, was_sent: false, frees });
            }
            None => {
                let item = Kept { item, reserve };
                self.settles.push(Entry { item, reserved_at, queued_at: now, was_sent: false, frees });
            }
        }
    }

    /// Whether something waits that must not wait for the next tick.
    pub fn is_urgent(&self) -> bool {
        self.has_urgent
    }

    /// The number of the next batch.
    pub fn next_number(&self) -> u64 {
        self.next_number
    }

    /// Whether a batch below this number is under way that frees something for this caller.
    pub fn is_freeing(&self, caller: &CallerId, below: u64) -> bool {
        self.flights.iter().any(|flight| flight.number < below && flight.frees.contains(caller))
    }

    /// The next batch, when one is due: one at a time, but for what is urgent.
    pub fn next_batch(&mut self, now: u64) -> Option<Batch> {
        let most = if self.has_urgent && !self.is_failing { MAX_FLIGHTS } else { 1 };
        if self.flights.len() >= most || now < self.next_at {
            return None;
        }
        self.settles.drop_old(now);
        self.releases.drop_old(now);
        let mut settles = self.settles.take(self.batch);
        let mut releases = self.releases.take(self.batch - settles.len());
        if settles.is_empty() && releases.is_empty() {
            self.has_urgent = false;
            return None;
        }
        // Behind a full batch there may be more that is urgent.
        self.has_urgent &= self.settles.has_waiting() || self.releases.has_waiting();
        let mut repeated = 0;
        let mut sent = |was_sent: &mut bool| repeated += usize::from(std::mem::replace(was_sent, true));
        let mut items = Vec::with_capacity(settles.len() + releases.len());
        let mut frees = Vec::new();
        for Entry { item, reserved_at, queued_at, was_sent, frees: whose } in &mut settles {
            sent(was_sent);
            frees.extend(*whose);
            let (age_ms, queued_ms) = (now.saturating_sub(*reserved_at), now.saturating_sub(*queued_at));
            items.push(SettleItem { age_ms, queued_ms, ..item.item.clone() });
        }
        for Entry { item, reserved_at, queued_at, was_sent, frees: whose } in &mut releases {
            sent(was_sent);
            frees.extend(*whose);
            items.push(item.item(now.saturating_sub(*reserved_at), now.saturating_sub(*queued_at)));
        }
        let number = self.next_number;
        self.next_number += 1;
        self.flights.push(Flight { number, settles, releases, frees });
        Some(Batch { number, items, repeated })
    }

    /// Tells what became of a batch under way. `jitter` is any random number.
    pub fn delivered(&mut self, number: u64, delivery: Delivery, now: u64, jitter: u64) {
        let Some(at) = self.flights.iter().position(|flight| flight.number == number) else { return };
        let Flight { settles, releases, .. } = self.flights.swap_remove(at);
        match delivery {
            Delivery::Taken(results) => {
                self.releases.done(releases.len());
                self.settles.done(settles.len());
                self.book_unknown(settles, &results);
                self.batch = MAX_SETTLE_ITEMS;
                self.back_off.reset();
                self.is_failing = false;
                self.next_at = now;
            }
            Delivery::Rejected if settles.len() + releases.len() <= 1 => {
                self.settles.give_up(settles.len());
                self.releases.give_up(releases.len());
                self.next_at = now;
            }
            Delivery::Rejected => {
                // One item spoils the batch: find it.
                self.settles.back(settles);
                self.releases.back(releases);
                self.batch = 1;
                self.next_at = now;
            }
            Delivery::Failed => {
                self.settles.back(settles);
                self.releases.back(releases);
                // Batches that fail together wait once.
                if now >= self.next_at {
                    self.next_at = now.saturating_add(self.back_off.next_ms(jitter));
                }
                self.is_failing = true;
            }
        }
    }

    /// Sends once more, with the reserve's body, what the service had held and no longer knows: with it, what was
    /// used is booked.
    fn book_unknown(&mut self, settles: Vec<Entry<Kept>>, results: &[SettleResult]) {
        for (entry, result) in settles.into_iter().zip(results) {
            let Kept { mut item, reserve } = entry.item;
            if result.status == SettleStatus::Unknown
                && result.id == item.id
                && let Some(reserve) = reserve
            {
                self.rebooked += 1;
                item.reserve = Some(*reserve);
                self.settles.push(Entry { item: Kept { item, reserve: None }, ..entry });
            }
        }
    }
}

#[cfg(test)]
mod tests;
