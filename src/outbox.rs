//! Settles on their way to the quota service: queued by streams, sent in batches by the root context,
//! repeated until they are taken.
//!
//! A stream cannot send its own: the answer to a call of a stream that has ended is lost, so that it could
//! never be repeated.

use std::collections::VecDeque;

use tokengate_api::{MAX_SETTLE_ITEMS, SettleItem};

use crate::back_off::BackOff;

/// An item that has waited this long is dropped: the service no longer knows whether it was charged.
const MAX_AGE_MS: u64 = 300_000;

struct Entry {
    item: SettleItem,
    reserved_at: u64,
    queued_at: u64,
    was_sent: bool,
}

/// Items that are sent together.
#[derive(Debug, PartialEq, Eq)]
pub struct Batch {
    pub items: Vec<SettleItem>,
    /// How many of them were sent before.
    pub repeated: usize,
}

/// Times are milliseconds of one clock that the caller reads.
pub struct Outbox {
    waiting: VecDeque<Entry>,
    in_flight: Vec<Entry>,
    max_items: usize,
    batch: usize,
    back_off: BackOff,
    next_at: u64,
    dropped: u64,
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    Taken,
    /// No usable answer: send it again, later.
    Failed,
    /// The service says that the batch itself is wrong: sending it again will not help.
    Rejected,
}

impl Outbox {
    pub fn new(max_items: usize) -> Self {
        Self {
            waiting: VecDeque::new(),
            in_flight: Vec::new(),
            max_items,
            batch: MAX_SETTLE_ITEMS,
            back_off: BackOff::default(),
            next_at: 0,
            dropped: 0,
        }
    }

    /// Items that were given up; their holds stay charged.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Items that wait or are under way.
    pub fn len(&self) -> usize {
        self.waiting.len() + self.in_flight.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Queues a settle. When full, the oldest gives way.
    pub fn push(&mut self, item: SettleItem, reserved_at: u64, now: u64) {
        if self.len() >= self.max_items && self.waiting.pop_front().is_some() {
            self.dropped += 1;
        }
        self.waiting.push_back(Entry { item, reserved_at, queued_at: now, was_sent: false });
    }

    /// The next batch, when one is due. One is under way at a time.
    pub fn next_batch(&mut self, now: u64) -> Option<Batch> {
        if !self.in_flight.is_empty() || now < self.next_at {
            return None;
        }
        let before = self.waiting.len();
        self.waiting.retain(|entry| now.saturating_sub(entry.queued_at) < MAX_AGE_MS);
        self.dropped += (before - self.waiting.len()) as u64;
        let count = self.batch.min(self.waiting.len());
        self.in_flight = self.waiting.drain(..count).collect();
        let repeated = self.in_flight.iter().filter(|entry| entry.was_sent).count();
        let items = self.in_flight.iter_mut().map(|entry| {
            entry.was_sent = true;
            let mut item = entry.item.clone();
            item.age_ms = now.saturating_sub(entry.reserved_at);
            item.queued_ms = now.saturating_sub(entry.queued_at);
            item
        });
        let items: Vec<_> = items.collect();
        (!items.is_empty()).then_some(Batch { items, repeated })
    }

    /// Tells what became of the batch under way. `jitter` is any random number.
    pub fn delivered(&mut self, delivery: Delivery, now: u64, jitter: u64) {
        match delivery {
            Delivery::Taken => {
                self.in_flight.clear();
                self.batch = MAX_SETTLE_ITEMS;
                self.back_off.reset();
                self.next_at = now;
            }
            Delivery::Rejected if self.in_flight.len() <= 1 => {
                self.dropped += self.in_flight.len() as u64;
                self.in_flight.clear();
                self.next_at = now;
            }
            Delivery::Rejected => {
                // One item spoils the batch: find it.
                self.put_back();
                self.batch = 1;
                self.next_at = now;
            }
            Delivery::Failed => {
                self.put_back();
                self.next_at = now.saturating_add(self.back_off.next_ms(jitter));
            }
        }
    }

    fn put_back(&mut self) {
        for entry in self.in_flight.drain(..).rev() {
            self.waiting.push_front(entry);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use tokengate_api::{Outcome, ReservationId};

    fn item(n: u8) -> SettleItem {
        SettleItem {
            id: ReservationId::from_bytes([n; 16]),
            account: None,
            outcome: Outcome::Held,
            sent: true,
            usage: None,
            model: None,
            service_tier: None,
            age_ms: 0,
            queued_ms: 0,
            reserve: None,
        }
    }

    fn ids(batch: Option<Batch>) -> Vec<String> {
        let items = batch.map(|batch| batch.items).unwrap_or_default();
        items.iter().map(|item| item.id.as_str().get(..2).unwrap().to_owned()).collect()
    }

    #[test]
    fn a_batch_is_repeated_until_it_is_taken() {
        let mut outbox = Outbox::new(16);
        outbox.push(item(1), 900, 1_000);
        let Batch { items, repeated } = outbox.next_batch(1_050).unwrap();
        assert_eq!((items.first().unwrap().age_ms, items.first().unwrap().queued_ms), (150, 50));
        assert_eq!(repeated, 0);
        outbox.push(item(2), 1_060, 1_060);
        assert_eq!(outbox.next_batch(1_070), None, "one at a time");
        outbox.delivered(Delivery::Failed, 2_000, 0);
        assert_eq!(outbox.next_batch(2_099), None, "backs off");
        let second = outbox.next_batch(2_100).unwrap();
        assert_eq!(second.repeated, 1);
        assert_eq!(ids(Some(second)), ["01", "02"]);
        outbox.delivered(Delivery::Taken, 2_200, 0);
        assert!(outbox.is_empty() && outbox.dropped() == 0);
        assert_eq!(outbox.next_batch(9_000), None);
    }

    #[test]
    fn full_means_the_oldest_goes() {
        let mut outbox = Outbox::new(2);
        for n in 1..=3 {
            outbox.push(item(n), 0, 0);
        }
        assert_eq!(outbox.dropped(), 1);
        assert_eq!(ids(outbox.next_batch(0)), ["02", "03"]);
    }

    #[test]
    fn too_old_is_dropped() {
        let mut outbox = Outbox::new(16);
        outbox.push(item(1), 0, 0);
        outbox.push(item(2), 0, 200_000);
        assert_eq!(ids(outbox.next_batch(300_000)), ["02"]);
        assert_eq!(outbox.dropped(), 1);
    }

    #[test]
    fn one_bad_item_does_not_block_the_others() {
        let mut outbox = Outbox::new(16);
        for n in 1..=3 {
            outbox.push(item(n), 0, 0);
        }
        let mut taken = Vec::new();
        while let Some(batch) = outbox.next_batch(0) {
            let ids = ids(Some(batch));
            if ids.iter().any(|id| id == "02") {
                outbox.delivered(Delivery::Rejected, 0, 0);
            } else {
                taken.extend(ids);
                outbox.delivered(Delivery::Taken, 0, 0);
            }
        }
        assert_eq!(taken, ["01", "03"]);
        assert_eq!(outbox.dropped(), 1);
    }
}
