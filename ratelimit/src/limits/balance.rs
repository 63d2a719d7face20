//! Prepaid: what was granted less what was spent. Only a top-up makes it more.

use tokengate_api::ReservationId;

use super::bucket::{Counter, signed};
use super::{Gauge, MAX_AMOUNT, Mark, State, Wait};

/// State of one bucket. `spent` may stand above `granted` (debt).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    pub granted: u64,
    pub spent: u64,
}

impl Account {
    /// Nothing when more would be granted in all than can be counted.
    pub fn topped_up(self, amount: u64) -> Option<Self> {
        let granted = self.granted.checked_add(amount).filter(|granted| *granted <= MAX_AMOUNT)?;
        Some(Self { granted, ..self })
    }
}

#[derive(Debug)]
pub(super) struct Balance(pub Account);

impl Counter for Balance {
    fn room(&self) -> i64 {
        signed(self.0.granted) - signed(self.0.spent)
    }

    fn charge(&mut self, _: &ReservationId, amount: u64) -> Mark {
        self.excess(amount);
        Mark::None
    }

    fn refund(&mut self, _: &ReservationId, _: &Mark, amount: u64) {
        self.0.spent = self.0.spent.saturating_sub(amount);
    }

    fn excess(&mut self, amount: u64) {
        self.0.spent = self.0.spent.saturating_add(amount).min(MAX_AMOUNT);
    }

    fn give_back(&mut self, amount: u64) {
        self.0.spent = self.0.spent.saturating_sub(amount);
    }

    fn wait(&self, _: u64) -> Wait {
        Wait::Unknown
    }

    fn gauge(&self) -> Gauge {
        Gauge { used: self.0.spent, remaining: self.room(), held: 0, reset_ms: 0 }
    }

    fn keep_ms(&self) -> Option<u64> {
        None
    }

    fn state(&self) -> State {
        State::Balance(self.0)
    }
}
