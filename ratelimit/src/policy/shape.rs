//! How a limit counts: an algorithm with its lengths and rates.

mod read;

use jiff::civil::Weekday;

use super::calendar::{Calendar, Period};
use super::count::Count;
use super::duration;
use crate::limits::Algorithm;

pub use read::read;

/// An algorithm with everything but amounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    FixedWindow {
        length_ms: u64,
    },
    CalendarWindow(Calendar),
    SlidingWindow {
        length_ms: u64,
        sub_windows: u32,
    },
    /// Refilled by `amount` in `every_ms`, evenly.
    TokenBucket {
        amount: u64,
        every_ms: u64,
    },
    Concurrency {
        lease_ms: u64,
    },
    Balance,
}

impl Shape {
    pub fn algorithm_at(&self, now_ms: u64) -> Algorithm {
        match self {
            Self::FixedWindow { length_ms } => Algorithm::FixedWindow { length_ms: *length_ms },
            Self::CalendarWindow(calendar) => {
                Algorithm::CalendarWindow { boundaries_ms: calendar.boundaries_ms(now_ms) }
            }
            Self::SlidingWindow { length_ms, sub_windows } => Algorithm::SlidingWindow {
                sub_window_ms: length_ms.checked_div((*sub_windows).into()).unwrap_or(*length_ms),
                sub_windows: *sub_windows,
            },
            Self::TokenBucket { amount, every_ms } => {
                let (num, den) = reduced(*amount, *every_ms);
                Algorithm::TokenBucket { num, den }
            }
            Self::Concurrency { lease_ms } => Algorithm::Concurrency { lease_ms: *lease_ms },
            Self::Balance => Algorithm::Balance,
        }
    }

    /// Length of the window; of a month the longest. Buckets, slots and balances have none.
    pub fn window_ms(&self) -> Option<u64> {
        match self {
            Self::FixedWindow { length_ms } | Self::SlidingWindow { length_ms, .. } => Some(*length_ms),
            Self::CalendarWindow(calendar) => Some(
                86_400_000
                    * match calendar.period {
                        Period::Day => 1,
                        Period::Week { .. } => 7,
                        Period::Month => 31,
                    },
            ),
            Self::TokenBucket { .. } | Self::Concurrency { .. } | Self::Balance => None,
        }
    }

    /// As answers name it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::FixedWindow { .. } => "fixed_window",
            Self::CalendarWindow(_) => "calendar",
            Self::SlidingWindow { .. } => "sliding_window",
            Self::TokenBucket { .. } => "token_bucket",
            Self::Concurrency { .. } => "concurrency",
            Self::Balance => "balance",
        }
    }

    pub fn is_calendar(&self) -> bool {
        matches!(self, Self::CalendarWindow(_))
    }

    /// What makes two buckets of a limit incomparable. What is refilled and how long a lease lasts are values: a
    /// store keeps a bucket's rate beside its level and converts it.
    pub fn tag_parts(&self) -> [String; 2] {
        let (name, shape) = match self {
            Self::FixedWindow { length_ms } => ("fixed_window", length_ms.to_string()),
            Self::CalendarWindow(calendar) => ("fixed_window", calendar_words(calendar)),
            Self::SlidingWindow { length_ms, sub_windows } => {
                ("sliding_window", format!("{length_ms}/{sub_windows}"))
            }
            Self::TokenBucket { .. } => ("token_bucket", String::new()),
            Self::Concurrency { .. } => ("concurrency", String::new()),
            Self::Balance => ("balance", String::new()),
        };
        [name.to_owned(), shape]
    }

    /// In the policy's own words: `sliding_window every 1m`.
    pub fn show(&self, count: Count) -> String {
        match self {
            Self::FixedWindow { length_ms } => format!("fixed_window every {}", duration::show(*length_ms)),
            Self::CalendarWindow(calendar) => format!("fixed_window {}", calendar_words(calendar)),
            Self::SlidingWindow { length_ms, sub_windows } => {
                format!("sliding_window every {} in {sub_windows} parts", duration::show(*length_ms))
            }
            Self::TokenBucket { amount, every_ms } => {
                format!("token_bucket, {} every {}", count.show(*amount), duration::show(*every_ms))
            }
            Self::Concurrency { lease_ms } => format!("concurrency, lease {}", duration::show(*lease_ms)),
            Self::Balance => "balance".to_owned(),
        }
    }
}

fn calendar_words(calendar: &Calendar) -> String {
    let period = match calendar.period {
        Period::Day => "day".to_owned(),
        Period::Week { starts } => format!("week from {}", weekday_name(starts)),
        Period::Month => "month".to_owned(),
    };
    format!("calendar {period} {}", calendar.zone())
}

/// `amount` per `every_ms` in lowest terms.
fn reduced(amount: u64, every_ms: u64) -> (u64, u64) {
    let (mut a, mut b) = (amount, every_ms);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    let divisor = a.max(1);
    (amount / divisor, every_ms / divisor)
}

const WEEKDAYS: [(&str, Weekday); 7] = [
    ("monday", Weekday::Monday),
    ("tuesday", Weekday::Tuesday),
    ("wednesday", Weekday::Wednesday),
    ("thursday", Weekday::Thursday),
    ("friday", Weekday::Friday),
    ("saturday", Weekday::Saturday),
    ("sunday", Weekday::Sunday),
];

fn weekday_name(day: Weekday) -> &'static str {
    WEEKDAYS.into_iter().find(|(_, other)| *other == day).map_or("monday", |(name, _)| name)
}
