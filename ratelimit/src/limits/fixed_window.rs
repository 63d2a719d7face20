//! Fixed windows: amounts are added up from one multiple of the window's length to the next.
//!
//! Times and lengths are milliseconds. `used` may stand above a limit (debt), never below 0.

use super::MAX_AMOUNT;

/// State of one bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// First millisecond of the window.
    pub start_ms: u64,
    pub used: u64,
}

impl Window {
    /// The window of `now_ms` that takes the place of what is stored.
    ///
    /// A clock that went back by at most one window goes on counting in the newer one; one that went back
    /// further keeps the amount in the window it finds itself in. Going back never frees anything.
    pub fn current(stored: Option<Self>, now_ms: u64, length_ms: u64) -> Self {
        let start_ms = now_ms - now_ms.checked_rem(length_ms).unwrap_or(0);
        match stored {
            Some(window) if window.start_ms == start_ms => window,
            Some(window) if window.start_ms == start_ms.saturating_add(length_ms) => window,
            Some(window) if window.start_ms > start_ms => Self { start_ms, used: window.used },
            _ => Self { start_ms, used: 0 },
        }
    }

    pub fn fits(&self, amount: u64, limit: u64) -> bool {
        self.used.saturating_add(amount) <= limit
    }

    /// Adds in full, above a limit too. Saturates at [`MAX_AMOUNT`].
    pub fn charge(&mut self, amount: u64) {
        self.used = self.used.saturating_add(amount).min(MAX_AMOUNT);
    }

    /// Gives back into the window that was charged, or nowhere when that is over.
    pub fn refund(&mut self, charged_start_ms: u64, amount: u64) {
        if self.start_ms == charged_start_ms {
            self.used = self.used.saturating_sub(amount);
        }
    }

    /// From `now_ms` until the window is over.
    pub fn left_ms(&self, now_ms: u64, length_ms: u64) -> u64 {
        self.start_ms.saturating_add(length_ms).saturating_sub(now_ms)
    }

    /// How long the state has to be kept: a little beyond the window, in case the clock goes back.
    pub fn keep_ms(&self, now_ms: u64, length_ms: u64) -> u64 {
        self.left_ms(now_ms, length_ms).saturating_add(length_ms.min(60_000))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    const MINUTE: u64 = 60_000;

    #[test]
    fn windows_start_at_multiples_of_their_length() {
        let window = Window::current(None, 1_700_000_012_345, MINUTE);
        assert_eq!(window, Window { start_ms: 1_699_999_980_000, used: 0 });
        assert_eq!(window.left_ms(1_700_000_012_345, MINUTE), 27_655);
        assert_eq!(Window::current(None, 59_999, MINUTE).start_ms, 0);
        assert_eq!(Window::current(None, 60_000, MINUTE).start_ms, 60_000);
    }

    #[test]
    fn a_new_window_forgets_and_an_old_clock_does_not() {
        let stored = Some(Window { start_ms: 10 * MINUTE, used: 7 });
        let at = |minute: u64| Window::current(stored, minute * MINUTE + 1, MINUTE);
        assert_eq!(at(10), Window { start_ms: 10 * MINUTE, used: 7 });
        assert_eq!(at(11), Window { start_ms: 11 * MINUTE, used: 0 });
        assert_eq!(at(9), Window { start_ms: 10 * MINUTE, used: 7 });
        assert_eq!(at(3), Window { start_ms: 3 * MINUTE, used: 7 });
    }

    #[test]
    fn a_refund_goes_to_its_own_window_or_nowhere() {
        let mut window = Window { start_ms: MINUTE, used: 10 };
        window.refund(0, 4);
        assert_eq!(window.used, 10);
        window.refund(MINUTE, 4);
        assert_eq!(window.used, 6);
    }

    #[test]
    fn the_largest_amounts_are_exact() {
        let mut window = Window { start_ms: 0, used: MAX_AMOUNT - 1 };
        assert!(window.fits(1, MAX_AMOUNT) && !window.fits(2, MAX_AMOUNT));
        window.charge(1);
        assert_eq!(window.used, MAX_AMOUNT);
        window.charge(u64::MAX);
        assert_eq!(window.used, MAX_AMOUNT);
        assert!(!window.fits(u64::MAX, MAX_AMOUNT));
    }

    proptest! {
        /// What is admitted in any one window never exceeds the limit, however the clock jumps.
        #[test]
        fn never_above_the_limit(
            limit in 1u64..200,
            steps in prop::collection::vec((0u64..10 * MINUTE, 1u64..50), 1..100),
        ) {
            let mut stored = None;
            for (now, amount) in steps {
                let mut window = Window::current(stored, now, MINUTE);
                if window.fits(amount, limit) {
                    window.charge(amount);
                }
                prop_assert!(window.used <= limit);
                prop_assert!(window.left_ms(now, MINUTE) <= 2 * MINUTE);
                stored = Some(window);
            }
        }

        /// With a clock that only goes forward: a refusal holds until exactly the end of the window.
        #[test]
        fn the_wait_is_exact(now in 0u64..100 * MINUTE, used in 1u64..10, amount in 1u64..10) {
            let limit = 10;
            let mut window = Window::current(None, now, MINUTE);
            window.charge(used);
            if !window.fits(amount, limit) {
                let retry = window.left_ms(now, MINUTE);
                let early = Window::current(Some(window), now + retry - 1, MINUTE);
                prop_assert!(!early.fits(amount, limit));
                prop_assert!(Window::current(Some(window), now + retry, MINUTE).fits(amount, limit));
            }
        }
    }
}
