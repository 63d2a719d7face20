//! Sliding windows: what was charged in the last `n` sub-windows and the one that is running.
//!
//! `n + 1` sub-windows are counted, so that a charge counts for at least the whole window and for less than one
//! sub-window more: never above the limit in any window, by the times of the reserves.

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use tokengate_api::ReservationId;

use super::bucket::{Counter, gauge_of, signed};
use super::{CLOCK_MARGIN_MS, Gauge, MAX_AMOUNT, Mark, State, Wait};

/// Amounts by sub-window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ring {
    /// Index of the newest sub-window: time divided by its length.
    pub head: u64,
    /// Sum of the slots, at most [`MAX_AMOUNT`].
    pub total: u64,
    /// `n + 1` of them, oldest first; the last one is `head`'s.
    pub slots: VecDeque<u64>,
}

impl Ring {
    pub(super) fn empty(now_ms: u64, sub_window_ms: u64, sub_windows: u32) -> Self {
        let head = now_ms / sub_window_ms.max(1);
        let slots = usize::try_from(sub_windows).unwrap_or(0).saturating_add(1);
        Self { head, total: 0, slots: VecDeque::from(vec![0; slots]) }
    }

    pub(super) fn fits_shape(&self, sub_windows: u32) -> bool {
        self.sub_windows() == u64::from(sub_windows)
    }

    fn sub_windows(&self) -> u64 {
        (self.slots.len() as u64).saturating_sub(1)
    }

    /// Zeroes the sub-windows entered since. A clock that went back by more than the ring is long has jumped:
    /// what is counted then says nothing any more.
    fn advance(&mut self, index: u64) {
        let slots = self.slots.len() as u64;
        if self.head > index.saturating_add(self.sub_windows()) {
            self.slots.iter_mut().for_each(|slot| *slot = 0);
            self.total = 0;
            self.head = index;
        }
        for _ in 0..index.saturating_sub(self.head).min(slots) {
            self.total = self.total.saturating_sub(self.slots.pop_front().unwrap_or(0));
            self.slots.push_back(0);
        }
        self.head = self.head.max(index);
    }
}

#[derive(Debug)]
pub(super) struct SlidingWindow {
    limit: u64,
    sub_window_ms: u64,
    now_ms: u64,
    ring: Ring,
}

impl SlidingWindow {
    pub fn open(sub_window_ms: u64, limit: u64, mut ring: Ring, now_ms: u64) -> Self {
        let sub_window_ms = sub_window_ms.max(1);
        ring.advance(now_ms / sub_window_ms);
        Self { limit, sub_window_ms, now_ms, ring }
    }

    /// From now until the slot at this place, counted from the oldest, is no longer counted.
    fn leaves_ms(&self, place: usize) -> u64 {
        let index = self.ring.head.saturating_add(place as u64).saturating_add(1);
        index.saturating_mul(self.sub_window_ms).saturating_sub(self.now_ms)
    }
}

impl Counter for SlidingWindow {
    fn room(&self) -> i64 {
        signed(self.limit) - signed(self.ring.total)
    }

    fn charge(&mut self, _: &ReservationId, amount: u64) -> Mark {
        self.excess(amount);
        Mark::SubWindow { index: self.ring.head }
    }

    fn refund(&mut self, _: &ReservationId, mark: &Mark, amount: u64) {
        let Mark::SubWindow { index } = mark else { return };
        let oldest = self.ring.head.saturating_sub(self.ring.sub_windows());
        let place = index.checked_sub(oldest).and_then(|place| usize::try_from(place).ok());
        if let Some(slot) = place.and_then(|place| self.ring.slots.get_mut(place)) {
            let amount = amount.min(*slot);
            *slot -= amount;
            self.ring.total = self.ring.total.saturating_sub(amount);
        }
    }

    fn excess(&mut self, amount: u64) {
        let amount = amount.min(MAX_AMOUNT.saturating_sub(self.ring.total));
        if let Some(slot) = self.ring.slots.back_mut() {
            *slot = slot.saturating_add(amount);
            self.ring.total = self.ring.total.saturating_add(amount);
        }
    }

    /// From the oldest sub-windows on: what stays, stays counted the longest.
    fn give_back(&mut self, amount: u64) {
        let mut left = amount;
        for slot in &mut self.ring.slots {
            let taken = left.min(*slot);
            *slot -= taken;
            left -= taken;
            self.ring.total = self.ring.total.saturating_sub(taken);
        }
    }

    fn wait(&self, amount: u64) -> Wait {
        if amount > self.limit {
            return Wait::Never;
        }
        let mut left = self.ring.total;
        for (place, slot) in self.ring.slots.iter().enumerate() {
            left = left.saturating_sub(*slot);
            if left.saturating_add(amount) <= self.limit {
                return Wait::Ms(self.leaves_ms(place));
            }
        }
        Wait::Never
    }

    fn gauge(&self) -> Gauge {
        let newest = self.ring.slots.iter().rposition(|slot| *slot > 0);
        gauge_of(self.ring.total, self.limit, newest.map_or(0, |place| self.leaves_ms(place)))
    }

    /// The window and two sub-windows, from the newest one on.
    fn keep_ms(&self) -> Option<u64> {
        let window_ms = self.ring.sub_windows().saturating_mul(self.sub_window_ms);
        let matters = self.leaves_ms(self.ring.slots.len());
        Some(matters.saturating_add(window_ms.min(CLOCK_MARGIN_MS)))
    }

    fn state(&self) -> State {
        State::SlidingWindow(self.ring.clone())
    }

    fn places(&self) -> RangeInclusive<u64> {
        self.ring.head.saturating_sub(self.ring.sub_windows())..=self.ring.head
    }
}
