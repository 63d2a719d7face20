//! Pure arithmetic of the algorithms: the specification that every store is tested against.
//!
//! Whole numbers only, none above 2^53 in size, so that Lua's doubles carry them exactly. [`Bucket`] is the
//! one way in; a file per algorithm is behind it.

mod balance;
mod bucket;
mod calendar_window;
mod concurrency;
pub mod fixed_window;
mod holds;
mod rates;
mod sliding_window;
mod token_bucket;

#[cfg(test)]
pub(crate) mod tests;

pub use balance::Account;
pub use bucket::{Bucket, BucketState, Gauge, Mark, State, Unusable, Wait};
pub use concurrency::Leases;
pub use holds::{Holds, Life, Portion, place};
pub use rates::Rates;
pub use sliding_window::Ring;
pub use token_bucket::{Interval as LevelInterval, Level};

/// The largest amount that is counted exactly everywhere (Lua numbers are doubles): 2^52.
pub const MAX_AMOUNT: u64 = 1 << 52;

/// State is kept this much longer than it matters, in case the clock goes back.
const CLOCK_MARGIN_MS: u64 = 60_000;

/// How a limit counts: what a store has to know beside limit and amount. Times are milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// From one multiple of the length to the next.
    FixedWindow { length_ms: u64 },
    /// From one boundary to the next; four boundaries in a row around the service's clock.
    CalendarWindow { boundaries_ms: [u64; 4] },
    /// The last `sub_windows × sub_window_ms`.
    SlidingWindow { sub_window_ms: u64, sub_windows: u32 },
    /// Refilled by `num / den` per millisecond (reduced) up to the limit.
    TokenBucket { num: u64, den: u64 },
    /// Requests under way; a slot ends with its lease unless it is renewed.
    Concurrency { lease_ms: u64 },
    /// Prepaid: what was granted less what was spent. The limit itself is not used.
    Balance,
}
