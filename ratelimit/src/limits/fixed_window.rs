//! Fixed windows: amounts are added up from one multiple of the window's length to the next.
//!
//! Times and lengths are milliseconds. `used` may stand above a limit (debt), never below 0.

use tokengate_api::ReservationId;

use super::bucket::{Counter, gauge_of, signed};
use super::{CLOCK_MARGIN_MS, Gauge, MAX_AMOUNT, Mark, State, Wait};

/// State of one bucket, of calendar windows too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// First millisecond of the window.
    pub start_ms: u64,
    pub used: u64,
}

impl Window {
    /// Adds in full, above a limit too. Saturates at [`MAX_AMOUNT`].
    pub(super) fn add(&mut self, amount: u64) {
        self.used = self.used.saturating_add(amount).min(MAX_AMOUNT);
    }

    /// Gives back into the window that was charged, or nowhere when that is over.
    pub(super) fn give_back(&mut self, mark: &Mark, amount: u64) {
        if *mark == (Mark::Window { start_ms: self.start_ms }) {
            self.used = self.used.saturating_sub(amount);
        }
    }
}

#[derive(Debug)]
pub(super) struct FixedWindow {
    limit: u64,
    length_ms: u64,
    now_ms: u64,
    window: Window,
    went_back: bool,
}

impl FixedWindow {
    /// The window of `now_ms` that takes the place of what is stored.
    ///
    /// A clock that went back by at most one window goes on counting in the newer one; one that went back
    /// further keeps the amount in the window it finds itself in. Going back never frees anything.
    pub fn open(length_ms: u64, limit: u64, stored: Option<Window>, now_ms: u64) -> Self {
        let start_ms = now_ms - now_ms.checked_rem(length_ms).unwrap_or(0);
        let window = match stored {
            Some(window) if window.start_ms == start_ms => window,
            Some(window) if window.start_ms == start_ms.saturating_add(length_ms) => window,
            Some(window) if window.start_ms > start_ms => Window { start_ms, used: window.used },
            _ => Window { start_ms, used: 0 },
        };
        let went_back = stored.is_some_and(|stored| stored.start_ms > window.start_ms);
        Self { limit, length_ms, now_ms, window, went_back }
    }

    /// Until the window is over.
    fn left_ms(&self) -> u64 {
        self.window.start_ms.saturating_add(self.length_ms).saturating_sub(self.now_ms)
    }
}

impl Counter for FixedWindow {
    fn room(&self) -> i64 {
        signed(self.limit) - signed(self.window.used)
    }

    fn charge(&mut self, _: &ReservationId, amount: u64) -> Mark {
        self.window.add(amount);
        Mark::Window { start_ms: self.window.start_ms }
    }

    fn refund(&mut self, _: &ReservationId, mark: &Mark, amount: u64) {
        self.window.give_back(mark, amount);
    }

    fn excess(&mut self, amount: u64) {
        self.window.add(amount);
    }

    fn give_back(&mut self, amount: u64) {
        self.window.used = self.window.used.saturating_sub(amount);
    }

    fn wait(&self, amount: u64) -> Wait {
        if amount > self.limit { Wait::Never } else { Wait::Ms(self.left_ms()) }
    }

    fn gauge(&self) -> Gauge {
        gauge_of(self.window.used, self.limit, self.left_ms())
    }

    fn keep_ms(&self) -> Option<u64> {
        Some(self.left_ms().saturating_add(self.length_ms.min(CLOCK_MARGIN_MS)))
    }

    fn state(&self) -> State {
        State::FixedWindow(self.window)
    }

    fn era(&self) -> u64 {
        self.window.start_ms
    }

    fn went_back(&self) -> bool {
        self.went_back
    }
}
