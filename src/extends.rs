//! Extensions on their way to the quota service: more output for streams that run on, and leases of streams
//! that last. Sent in batches by the root context; a total is asked for, so that a repeat changes nothing.

use std::collections::VecDeque;

use hashbrown::HashMap;
use tokengate_api::{ExtendItem, ExtendResult, ExtendStatus, MAX_SETTLE_ITEMS, ReservationId};

use crate::back_off::BackOff;

/// A lease is renewed after so large a part of it, so that two renewals may fail.
const PART_OF_LEASE: u64 = 3;

/// Room for so many leases stays when there are few.
const ROOM_KEPT: usize = 64;

struct Entry<S> {
    item: ExtendItem,
    stream: S,
}

struct Lease<S> {
    account: String,
    stream: S,
    every_ms: u64,
    next_at: u64,
}

/// What became of the batch under way.
#[derive(Debug)]
pub enum Answer {
    Results(Vec<ExtendResult>),
    /// No usable answer: send it again, later.
    Failed,
    /// The service takes no such batch.
    Rejected,
}

/// `S` leads to a stream. Times are milliseconds of one clock that the caller reads.
pub struct Extends<S> {
    leases: HashMap<ReservationId, Lease<S>>,
    waiting: VecDeque<Entry<S>>,
    in_flight: Vec<Entry<S>>,
    back_off: BackOff,
    next_at: u64,
}

impl<S> Default for Extends<S> {
    fn default() -> Self {
        Self {
            leases: HashMap::new(),
            waiting: VecDeque::new(),
            in_flight: Vec::new(),
            back_off: BackOff::default(),
            next_at: 0,
        }
    }
}

impl<S: Clone> Extends<S> {
    pub fn push(&mut self, item: ExtendItem, stream: S) {
        // One item for each reservation in a batch: the service need not order them.
        match self.waiting.iter_mut().find(|entry| entry.item.id == item.id) {
            Some(Entry { item: earlier, .. }) => {
                earlier.hold_output_tokens = earlier.hold_output_tokens.max(item.hold_output_tokens);
                earlier.lease |= item.lease;
            }
            None => self.waiting.push_back(Entry { item, stream }),
        }
    }

    /// Renews the lease of a reservation for as long as its stream is live.
    pub fn keep(&mut self, id: ReservationId, account: String, lease_ms: u64, stream: S, now: u64) {
        let every_ms = (lease_ms / PART_OF_LEASE).max(1);
        let next_at = now.saturating_add(every_ms);
        self.leases.insert(id, Lease { account, stream, every_ms, next_at });
    }

    /// The reservation is settled: nothing of it is extended or renewed any more.
    pub fn forget(&mut self, id: &ReservationId) {
        self.leases.remove(id);
        self.waiting.retain(|entry| entry.item.id != *id);
        if self.leases.capacity() > self.leases.len().saturating_mul(8).max(ROOM_KEPT) {
            self.leases.shrink_to_fit();
        }
    }

    /// The next batch, when one is due. One is under way at a time.
    pub fn next_batch(&mut self, now: u64, is_live: impl Fn(&S) -> bool) -> Option<Vec<ExtendItem>> {
        if !self.in_flight.is_empty() || now < self.next_at {
            return None;
        }
        let mut leases = std::mem::take(&mut self.leases);
        leases.retain(|id, lease| {
            if now < lease.next_at {
                return true;
            }
            if !is_live(&lease.stream) {
                return false;
            }
            lease.next_at = now.saturating_add(lease.every_ms);
            let (id, account) = (id.clone(), lease.account.clone());
            let item = ExtendItem { id, account, hold_output_tokens: None, lease: true };
            self.push(item, lease.stream.clone());
            true
        });
        self.leases = leases;
        self.waiting.retain(|entry| is_live(&entry.stream));
        let count = MAX_SETTLE_ITEMS.min(self.waiting.len());
        self.in_flight = self.waiting.drain(..count).collect();
        let items: Vec<_> = self.in_flight.iter().map(|entry| entry.item.clone()).collect();
        (!items.is_empty()).then_some(items)
    }

    /// Tells what became of the batch under way; gives the streams whose holds were decided. `jitter` is any
    /// random number.
    pub fn answered(&mut self, answer: Answer, now: u64, jitter: u64) -> Vec<(S, ExtendResult)> {
        let batch = std::mem::take(&mut self.in_flight);
        let unknown = |entry: &Entry<S>| ExtendResult {
            id: entry.item.id.clone(),
            status: ExtendStatus::Unknown,
            hold_output_tokens: None,
        };
        let fits = |results: &[ExtendResult]| {
            results.len() == batch.len() && batch.iter().zip(results).all(|(e, r)| e.item.id == r.id)
        };
        let results = match answer {
            Answer::Results(results) if fits(&results) => results,
            Answer::Rejected => batch.iter().map(unknown).collect(),
            Answer::Results(_) | Answer::Failed => {
                for entry in batch.into_iter().rev() {
                    self.waiting.push_front(entry);
                }
                self.next_at = now.saturating_add(self.back_off.next_ms(jitter));
                return Vec::new();
            }
        };
        self.back_off.reset();
        self.next_at = now;
        let decided = batch.into_iter().zip(results);
        decided
            .filter(|(entry, _)| entry.item.hold_output_tokens.is_some())
            .map(|(entry, result)| (entry.stream, result))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn id(n: u8) -> ReservationId {
        ReservationId::from_bytes([n; 16])
    }

    fn hold(n: u8, total: u64) -> ExtendItem {
        ExtendItem { id: id(n), account: "a".to_owned(), hold_output_tokens: Some(total), lease: false }
    }

    fn shown(batch: Option<Vec<ExtendItem>>) -> Vec<(ReservationId, Option<u64>, bool)> {
        let items = batch.unwrap_or_default().into_iter();
        items.map(|item| (item.id, item.hold_output_tokens, item.lease)).collect()
    }

    fn result(n: u8, status: ExtendStatus) -> ExtendResult {
        ExtendResult { id: id(n), status, hold_output_tokens: None }
    }

    #[test]
    fn a_lease_is_renewed_at_each_third_while_its_stream_lives() {
        let mut extends = Extends::default();
        extends.keep(id(1), "a".to_owned(), 9_000, 1, 1_000);
        assert_eq!(extends.next_batch(3_999, |_| true), None);
        for now in [4_000, 7_000] {
            assert_eq!(shown(extends.next_batch(now, |_| true)), [(id(1), None, true)]);
            let answer = Answer::Results(vec![result(1, ExtendStatus::Allow)]);
            assert!(extends.answered(answer, now, 0).is_empty(), "no stream waits for it");
        }
        assert_eq!(extends.next_batch(10_000, |_| false), None);
        assert_eq!(extends.next_batch(20_000, |_| true), None, "it was forgotten");
    }

    #[test]
    fn what_is_settled_is_neither_renewed_nor_extended() {
        let mut extends = Extends::default();
        extends.keep(id(1), "a".to_owned(), 9_000, 1, 0);
        extends.keep(id(2), "a".to_owned(), 9_000, 2, 0);
        extends.push(hold(1, 30), 1);
        extends.forget(&id(1));
        assert_eq!(extends.leases.len(), 1, "not only when it would be renewed");
        assert_eq!(shown(extends.next_batch(3_000, |_| true)), [(id(2), None, true)]);
    }

    #[test]
    fn one_item_for_each_reservation_and_one_batch_at_a_time() {
        let mut extends = Extends::default();
        extends.keep(id(1), "a".to_owned(), 3, 1, 0);
        extends.push(hold(1, 30), 1);
        extends.push(hold(1, 20), 1);
        extends.push(hold(2, 5), 2);
        let batch = shown(extends.next_batch(10, |_| true));
        assert_eq!(batch, [(id(1), Some(30), true), (id(2), Some(5), false)]);
        extends.push(hold(3, 1), 3);
        assert_eq!(extends.next_batch(10, |_| true), None);
        let results = vec![result(1, ExtendStatus::Allow), result(2, ExtendStatus::Deny)];
        let decided = extends.answered(Answer::Results(results), 10, 0);
        assert_eq!(decided, [(1, result(1, ExtendStatus::Allow)), (2, result(2, ExtendStatus::Deny))]);
        assert_eq!(shown(extends.next_batch(10, |_| true)), [(id(3), Some(1), false)]);
    }

    #[test]
    fn what_failed_comes_again_and_what_is_rejected_does_not() {
        let mut extends = Extends::default();
        extends.push(hold(1, 30), 1);
        let another = || Answer::Results(vec![result(9, ExtendStatus::Allow)]);
        for (answer, wait) in [(Answer::Failed, 100), (another(), 200), (Answer::Results(Vec::new()), 400)] {
            let now = extends.next_at;
            assert_eq!(extends.next_batch(now, |_| true).unwrap().len(), 1);
            assert!(extends.answered(answer, now, 0).is_empty());
            assert_eq!((extends.next_batch(now + wait - 1, |_| true), extends.next_at), (None, now + wait));
        }
        extends.next_batch(1_000, |_| true).unwrap();
        let decided = extends.answered(Answer::Rejected, 1_000, 0);
        assert_eq!(decided, [(1, result(1, ExtendStatus::Unknown))]);
        assert_eq!(extends.next_batch(1_000, |_| true), None);
    }

    #[test]
    fn a_batch_is_bounded_and_the_dead_are_left_out() {
        let mut extends = Extends::default();
        for n in 0..300_u16 {
            let [a, b] = n.to_le_bytes();
            let mut bytes = [a; 16];
            bytes.fill(a);
            if let Some(last) = bytes.last_mut() {
                *last = b;
            }
            let item = ExtendItem { id: ReservationId::from_bytes(bytes), ..hold(0, 1) };
            extends.push(item, n);
        }
        assert_eq!(extends.next_batch(0, |n| *n >= 40).unwrap().len(), 256);
        extends.answered(Answer::Rejected, 0, 0);
        assert_eq!(extends.next_batch(0, |_| true).unwrap().len(), 4);
    }
}
