//! Pure arithmetic of the algorithms: the specification that every store is tested against.

pub mod fixed_window;
mod rates;

pub use rates::Rates;

/// The largest amount that is counted exactly everywhere (Lua numbers are doubles): 2^52.
pub const MAX_AMOUNT: u64 = 1 << 52;

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
