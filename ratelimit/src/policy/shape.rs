//! How a limit counts: the field `algorithm` and the fields that only some algorithms have.

use jiff::civil::Weekday;

use super::calendar::{Calendar, Period};
use super::count::Count;
use super::error::Result;
use super::fields::{Fields, Item};
use super::{amounts, duration};
use crate::limits::Algorithm;

const ALGORITHMS: [&str; 6] =
    ["fixed_window", "sliding_window", "token_bucket", "leaky_bucket", "concurrency", "balance"];
const DEFAULT_SUB_WINDOWS: u32 = 60;
const LONGEST_LEASE_MS: u64 = 24 * 3_600_000;

/// Fields that belong to some algorithms only, and to which.
const OWNERS: [(&str, &str); 10] = [
    ("every", "fixed_window and sliding_window"),
    ("calendar", "fixed_window"),
    ("time_zone", "fixed_window with `calendar`"),
    ("week_starts", "fixed_window with `calendar: week`"),
    ("sub_windows", "sliding_window"),
    ("refill", "token_bucket"),
    ("leak", "leaky_bucket"),
    ("capacity", "token_bucket and leaky_bucket"),
    ("lease", "concurrency"),
    ("plans", "balance"),
];

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

    pub fn is_calendar(&self) -> bool {
        matches!(self, Self::CalendarWindow(_))
    }

    /// What makes two buckets of a limit incomparable. A bucket's state is scaled by the denominator of its rate,
    /// so that belongs to it; what is refilled and how long a lease lasts are values.
    pub fn tag_parts(&self) -> [String; 2] {
        let (name, shape) = match self {
            Self::FixedWindow { length_ms } => ("fixed_window", length_ms.to_string()),
            Self::CalendarWindow(calendar) => ("fixed_window", calendar_words(calendar)),
            Self::SlidingWindow { length_ms, sub_windows } => {
                ("sliding_window", format!("{length_ms}/{sub_windows}"))
            }
            Self::TokenBucket { amount, every_ms } => {
                ("token_bucket", reduced(*amount, *every_ms).1.to_string())
            }
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

/// Reads `algorithm`, what belongs to it, and `count`; refuses what belongs to another algorithm.
pub fn read(fields: &mut Fields<'_>) -> Result<(Shape, Count)> {
    let algorithm = fields.required("algorithm")?;
    let name = algorithm.one_of(&ALGORITHMS)?;
    let count = match (name, fields.optional("count")) {
        ("concurrency", None) => Count::InFlight,
        ("concurrency", Some(item)) => {
            return Err(item.fault("concurrency counts the requests under way; leave `count` out"));
        }
        (_, None) => return Err(fields.missing("count")),
        (_, Some(item)) => Count::read(&item)?,
    };
    let shape = match name {
        "fixed_window" => fixed_window(fields)?,
        "sliding_window" => sliding_window(fields)?,
        "concurrency" => Shape::Concurrency { lease_ms: lease(fields)? },
        "balance" if count == Count::Attempts => {
            return Err(algorithm.fault("a balance cannot count attempts: it would pay for refusals"));
        }
        "balance" => Shape::Balance,
        other => {
            let field = if other == "leaky_bucket" { "leak" } else { "refill" };
            rate(&fields.required(field)?, count)?
        }
    };
    for (field, owner) in OWNERS {
        let own = match field {
            "capacity" => matches!(shape, Shape::TokenBucket { .. }),
            "plans" => shape == Shape::Balance,
            _ => false,
        };
        if !own && let Some(item) = fields.optional(field) {
            return Err(item.fault(format!("`{field}` belongs to {owner}, not to {name}")));
        }
    }
    Ok((shape, count))
}

fn fixed_window(fields: &mut Fields<'_>) -> Result<Shape> {
    let Some(calendar) = fields.optional("calendar") else {
        let Some(every) = fields.optional("every") else {
            return Err(fields.missing_one_of("every", "or `calendar`"));
        };
        for field in ["time_zone", "week_starts"] {
            if let Some(item) = fields.optional(field) {
                return Err(
                    item.fault(format!("only a `calendar` has `{field}`: `every` counts from 1970 in UTC"))
                );
            }
        }
        return Ok(Shape::FixedWindow { length_ms: duration::read_ms(&every)? });
    };
    if let Some(every) = fields.optional("every") {
        return Err(every.fault("stands beside `calendar`; a window has one of them"));
    }
    let week_starts = fields.optional("week_starts");
    let period = match calendar.one_of(&["day", "week", "month"])? {
        "day" => Period::Day,
        "week" => Period::Week { starts: week_starts.as_ref().map_or(Ok(Weekday::Monday), weekday)? },
        _ => Period::Month,
    };
    if let (Some(item), Period::Day | Period::Month) = (&week_starts, period) {
        return Err(item.fault("only `calendar: week` has a first day"));
    }
    let zone = fields.optional("time_zone");
    let zone_name = zone.as_ref().map_or(Ok("UTC"), Item::text)?;
    let window = Calendar::new(period, zone_name).map(Shape::CalendarWindow);
    window.ok_or_else(|| {
        let reason =
            format!("there is no time zone `{zone_name}`; write an IANA name, as Europe/Berlin or UTC");
        zone.as_ref().unwrap_or(&calendar).fault(reason)
    })
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

fn weekday(item: &Item<'_>) -> Result<Weekday> {
    let word = item.one_of(&WEEKDAYS.map(|(name, _)| name))?;
    Ok(WEEKDAYS.into_iter().find(|(name, _)| *name == word).map_or(Weekday::Monday, |(_, day)| day))
}

fn weekday_name(day: Weekday) -> &'static str {
    WEEKDAYS.into_iter().find(|(_, other)| *other == day).map_or("monday", |(name, _)| name)
}

fn sliding_window(fields: &mut Fields<'_>) -> Result<Shape> {
    let every = fields.required("every")?;
    let length_ms = duration::read_ms(&every)?;
    let sub_windows = match fields.optional("sub_windows") {
        None => DEFAULT_SUB_WINDOWS,
        Some(item) => match u32::try_from(item.amount()?) {
            Ok(count) if (6..=120).contains(&count) => count,
            _ => return Err(item.fault("must be from 6 to 120")),
        },
    };
    if length_ms.checked_rem(sub_windows.into()) != Some(0) {
        let reason = format!(
            "{} cannot be divided into {sub_windows} sub-windows of whole milliseconds; set `sub_windows`",
            duration::show(length_ms)
        );
        return Err(every.fault(reason));
    }
    Ok(Shape::SlidingWindow { length_ms, sub_windows })
}

fn lease(fields: &mut Fields<'_>) -> Result<u64> {
    let item = fields.required("lease")?;
    match duration::read_ms(&item)? {
        lease if lease <= LONGEST_LEASE_MS => Ok(lease),
        _ => Err(item.fault("must be at most 24h: a slot that nobody gives back is lost for so long")),
    }
}

/// `{amount, every}`
fn rate(item: &Item<'_>, count: Count) -> Result<Shape> {
    let mut fields = item.fields()?;
    let amount_item = fields.required("amount")?;
    let amount = amounts::one(&amount_item, count)?;
    let every_ms = duration::read_ms(&fields.required("every")?)?;
    fields.finish(&[])?;
    if amount == 0 {
        return Err(amount_item.fault("must be above 0: the bucket would never fill again"));
    }
    Ok(Shape::TokenBucket { amount, every_ms })
}
