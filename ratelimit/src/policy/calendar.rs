//! Calendar windows: days, weeks and months of a time zone, as instants.
//!
//! The zones are those compiled into the program, never the machine's: instances must agree on where a month
//! begins. Times are milliseconds since 1970.

use jiff::civil::{Date, Weekday};
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use jiff::{Span, Timestamp};

/// 9000-01-01: beyond it no calendar is computed, and no clock is right.
const LATEST_MS: i64 = 221_845_392_000_000;

/// What repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Period {
    Day,
    Week { starts: Weekday },
    Month,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Calendar {
    pub period: Period,
    zone: TimeZone,
}

impl Calendar {
    /// Nothing when there is no such time zone.
    pub fn new(period: Period, zone: &str) -> Option<Self> {
        let zone = TimeZoneDatabase::bundled().get(zone).ok()?;
        zone.iana_name()?;
        Some(Self { period, zone })
    }

    /// The zone's name as the database spells it.
    pub fn zone(&self) -> &str {
        self.zone.iana_name().unwrap_or("UTC")
    }

    /// Four starts in a row around a time: of the window before, of the one it lies in, and of the next two.
    pub fn boundaries_ms(&self, now_ms: u64) -> [u64; 4] {
        let now = i64::try_from(now_ms).unwrap_or(LATEST_MS).min(LATEST_MS);
        let mut starts = self.starts_around(now);
        // A day that a zone left out has no length.
        starts.dedup();
        // Found by its instants, not by its date: where a clock is set back over midnight, a local date
        // comes twice.
        let next = starts.partition_point(|start| *start <= now).max(2);
        let at = |index: usize| starts.get(index).map_or(0, |start| u64::try_from(*start).unwrap_or(0));
        [at(next - 2), at(next - 1), at(next), at(next + 1)]
    }

    fn starts_around(&self, now_ms: i64) -> Vec<i64> {
        let now = Timestamp::from_millisecond(now_ms).unwrap_or(Timestamp::UNIX_EPOCH);
        let today = self.zone.to_datetime(now).date();
        let first = match self.period {
            Period::Day => today,
            Period::Week { starts } => today.saturating_sub(days(starts.until(today.weekday()).into())),
            Period::Month => today.first_of_month(),
        };
        let step = |count: i64| match self.period {
            Period::Day => days(count),
            Period::Week { .. } => days(7 * count),
            Period::Month => Span::new().months(count),
        };
        (-3..=4).map(|count| self.first_instant(first.saturating_add(step(count)))).collect()
    }

    /// The first instant whose local date is this date, or, when the zone left the date out, the next one's.
    fn first_instant(&self, date: Date) -> i64 {
        let midnight = date.at(0, 0, 0, 0);
        let at = |offset: jiff::tz::Offset| offset.to_timestamp(midnight).unwrap_or(Timestamp::MAX);
        let first = match self.zone.to_ambiguous_timestamp(midnight).offset() {
            AmbiguousOffset::Unambiguous { offset } => at(offset),
            AmbiguousOffset::Fold { before, .. } => at(before),
            // The clock jumps over midnight: the day begins with the jump, wherever it lands.
            AmbiguousOffset::Gap { before, after } => {
                let jump = self.zone.following(at(after)).next();
                jump.map_or_else(|| at(before), |jump| jump.timestamp())
            }
        };
        first.as_millisecond()
    }
}

fn days(count: i64) -> Span {
    Span::new().days(count)
}

#[cfg(test)]
mod tests;
