//! The field `algorithm` and the fields that only some algorithms have.

use jiff::civil::Weekday;

use super::{Shape, WEEKDAYS};
use crate::policy::calendar::{Calendar, Period};
use crate::policy::count::Count;
use crate::policy::error::Result;
use crate::policy::fields::{Fields, Item};
use crate::policy::{amounts, duration};

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

fn weekday(item: &Item<'_>) -> Result<Weekday> {
    let word = item.one_of(&WEEKDAYS.map(|(name, _)| name))?;
    Ok(WEEKDAYS.into_iter().find(|(name, _)| *name == word).map_or(Weekday::Monday, |(_, day)| day))
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
