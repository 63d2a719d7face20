//! Calendar windows: from one boundary to the next, of days, weeks or months in somebody's time zone.
//!
//! The boundaries are given, four in a row around the service's clock; here they are only compared.

use tokengate_api::ReservationId;

use super::bucket::{Counter, gauge_of, signed};
use super::fixed_window::Window;
use super::{CLOCK_MARGIN_MS, Gauge, Mark, State, Wait};

#[derive(Debug)]
pub(super) struct CalendarWindow {
    limit: u64,
    now_ms: u64,
    /// Nothing when this moment is outside the boundaries and nothing is stored.
    window: Option<Window>,
    /// End of the window; nothing outside the boundaries.
    ends_ms: Option<u64>,
    went_back: bool,
}

impl CalendarWindow {
    /// As with fixed windows: a clock that went back into the window before goes on counting in the newer one
    /// where its end is known; one that went back further keeps the amount. Outside the boundaries the state
    /// stays as it is.
    pub fn open(boundaries_ms: [u64; 4], limit: u64, stored: Option<Window>, now_ms: u64) -> Self {
        let [first, second, third, fourth] = boundaries_ms;
        let windows = [(first, second, Some(third)), (second, third, Some(fourth)), (third, fourth, None)];
        let of_now = windows.into_iter().find(|(start, end, _)| (*start..*end).contains(&now_ms));
        let Some((start_ms, end_ms, next_end_ms)) = of_now else {
            return Self { limit, now_ms, window: stored, ends_ms: None, went_back: false };
        };
        let (window, ends_ms) = match (stored, next_end_ms) {
            (Some(window), _) if window.start_ms == start_ms => (window, end_ms),
            (Some(window), Some(next_end)) if window.start_ms == end_ms => (window, next_end),
            (Some(window), _) if window.start_ms > start_ms => {
                (Window { start_ms, used: window.used }, end_ms)
            }
            _ => (Window { start_ms, used: 0 }, end_ms),
        };
        let went_back = stored.is_some_and(|stored| stored.start_ms > window.start_ms);
        Self { limit, now_ms, window: Some(window), ends_ms: Some(ends_ms), went_back }
    }

    pub fn outside(&self) -> bool {
        self.ends_ms.is_none()
    }

    fn left_ms(&self) -> u64 {
        self.ends_ms.map_or(0, |end| end.saturating_sub(self.now_ms))
    }

    fn used(&self) -> u64 {
        self.window.map_or(0, |window| window.used)
    }
}

impl Counter for CalendarWindow {
    fn room(&self) -> i64 {
        signed(self.limit) - signed(self.used())
    }

    fn charge(&mut self, _: &ReservationId, amount: u64) -> Mark {
        self.excess(amount);
        self.window.map_or(Mark::None, |window| Mark::Window { start_ms: window.start_ms })
    }

    fn refund(&mut self, _: &ReservationId, mark: &Mark, amount: u64) {
        if let Some(window) = &mut self.window {
            window.give_back(mark, amount);
        }
    }

    fn excess(&mut self, amount: u64) {
        if let Some(window) = &mut self.window {
            window.add(amount);
        }
    }

    fn give_back(&mut self, amount: u64) {
        if let Some(window) = &mut self.window {
            window.used = window.used.saturating_sub(amount);
        }
    }

    fn wait(&self, amount: u64) -> Wait {
        if amount > self.limit { Wait::Never } else { Wait::Ms(self.left_ms()) }
    }

    fn gauge(&self) -> Gauge {
        gauge_of(self.used(), self.limit, self.left_ms())
    }

    fn keep_ms(&self) -> Option<u64> {
        Some(self.left_ms().saturating_add(CLOCK_MARGIN_MS))
    }

    fn state(&self) -> State {
        State::CalendarWindow(self.window.unwrap_or(Window { start_ms: 0, used: 0 }))
    }

    fn era(&self) -> u64 {
        self.window.map_or(0, |window| window.start_ms)
    }

    fn went_back(&self) -> bool {
        self.went_back
    }
}
