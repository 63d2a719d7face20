//! Requests under way. Each holds one slot until it is closed or its lease ends; a long one renews its lease.

use std::collections::BTreeMap;

use tokengate_api::ReservationId;

use super::bucket::{Counter, gauge_of, signed};
use super::{CLOCK_MARGIN_MS, Gauge, Mark, State, Wait};

/// Nobody knows when a request ends.
const TRY_AGAIN_MS: u64 = 1_000;

/// Ends of the leases, milliseconds since the epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leases(pub BTreeMap<ReservationId, u64>);

#[derive(Debug)]
pub(super) struct Concurrency {
    limit: u64,
    lease_ms: u64,
    now_ms: u64,
    leases: Leases,
}

impl Concurrency {
    pub fn open(lease_ms: u64, limit: u64, mut leases: Leases, now_ms: u64) -> Self {
        let newest = now_ms.saturating_add(lease_ms.saturating_mul(2)).saturating_add(CLOCK_MARGIN_MS);
        let oldest = now_ms.saturating_sub(CLOCK_MARGIN_MS);
        leases.0.retain(|_, end| (oldest..=newest).contains(end));
        Self { limit, lease_ms, now_ms, leases }
    }

    /// A lease that ends further away than two lengths was made before the clock went back: counting it would
    /// keep its slot for as long as that was.
    fn live(&self) -> impl Iterator<Item = u64> {
        let newest = self.now_ms.saturating_add(self.lease_ms.saturating_mul(2));
        let now_ms = self.now_ms;
        self.leases.0.values().copied().filter(move |end| *end > now_ms && *end <= newest)
    }

    fn used(&self) -> u64 {
        self.live().count() as u64
    }

    fn last_left_ms(&self) -> u64 {
        self.live().max().unwrap_or(self.now_ms) - self.now_ms
    }

    pub fn renew(&mut self, id: &ReservationId, force: bool) -> bool {
        let end = self.leases.0.get(id).copied();
        let newest = self.now_ms.saturating_add(self.lease_ms.saturating_mul(2));
        let live = end.is_some_and(|end| end > self.now_ms && end <= newest);
        let granted = live || force || self.room() >= 1;
        if granted {
            let renewed = self.now_ms.saturating_add(self.lease_ms);
            let end = if live { renewed.max(end.unwrap_or(0)) } else { renewed };
            self.leases.0.insert(id.clone(), end);
        }
        granted
    }
}

impl Counter for Concurrency {
    fn room(&self) -> i64 {
        signed(self.limit) - signed(self.used())
    }

    fn charge(&mut self, id: &ReservationId, _: u64) -> Mark {
        self.leases.0.insert(id.clone(), self.now_ms.saturating_add(self.lease_ms));
        Mark::None
    }

    fn refund(&mut self, id: &ReservationId, _: &Mark, _: u64) {
        self.leases.0.remove(id);
    }

    /// A request cannot use more than its slot.
    fn excess(&mut self, _: u64) {}

    fn give_back(&mut self, _: u64) {}

    fn wait(&self, amount: u64) -> Wait {
        if amount > self.limit { Wait::Never } else { Wait::Estimate(TRY_AGAIN_MS) }
    }

    fn gauge(&self) -> Gauge {
        gauge_of(self.used(), self.limit, self.last_left_ms())
    }

    fn keep_ms(&self) -> Option<u64> {
        Some(self.last_left_ms().saturating_add(CLOCK_MARGIN_MS))
    }

    fn state(&self) -> State {
        State::Concurrency(self.leases.clone())
    }
}
