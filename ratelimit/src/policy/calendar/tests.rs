#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
use super::*;

fn calendar(period: Period, zone: &str) -> Calendar {
    Calendar::new(period, zone).unwrap()
}

/// Start and length, in seconds, of the window that an instant lies in.
fn window(calendar: &Calendar, second: u64) -> (u64, u64) {
    let [before, start, end, after] = calendar.boundaries_ms(second * 1000);
    assert!(before < start && start <= second * 1000 && second * 1000 < end && end < after);
    (start / 1000, (end - start) / 1000)
}

#[test]
fn days_on_which_clocks_change() {
    const HOUR: u64 = 3600;
    for (zone, start, length) in [
        ("Europe/Berlin", 1_806_188_400, 23 * HOUR),
        ("Europe/Berlin", 1_824_933_600, 25 * HOUR),
        ("Africa/Cairo", 1_809_036_000, 23 * HOUR),
        ("America/New_York", 1_825_560_000, 25 * HOUR),
        ("Australia/Lord_Howe", 1_806_757_200, 24 * HOUR + HOUR / 2),
    ] {
        let day = calendar(Period::Day, zone);
        assert_eq!(window(&day, start), (start, length), "{zone}");
        assert_eq!(window(&day, start + length - 1), (start, length), "{zone}");
        assert_eq!(window(&day, start + length).0, start + length, "{zone}");
        assert_eq!(window(&day, start - 1).0 + window(&day, start - 1).1, start, "{zone}");
    }
}

#[test]
fn a_day_begins_with_the_jump_over_midnight() {
    let cairo = calendar(Period::Day, "Africa/Cairo");
    let start = Timestamp::from_millisecond(1_809_036_000_000).unwrap();
    assert_eq!(cairo.zone.to_datetime(start).to_string(), "2027-04-30T01:00:00");
    let before = Timestamp::from_millisecond(1_809_035_999_000).unwrap();
    assert_eq!(cairo.zone.to_datetime(before).to_string(), "2027-04-29T23:59:59");
}

#[test]
fn midnights_that_are_missing_or_come_twice() {
    // Toronto, 1919: from 23:30 to 00:30 of the next day.
    let toronto = calendar(Period::Day, "America/Toronto");
    let local = |calendar: &Calendar, ms| {
        calendar.zone.to_datetime(Timestamp::from_millisecond(ms).unwrap()).to_string()
    };
    let start = toronto.first_instant(Date::constant(1919, 3, 31));
    assert_eq!(local(&toronto, start), "1919-03-31T00:30:00");
    assert_eq!(local(&toronto, start - 1), "1919-03-30T23:29:59.999");
    // St. John's, 2008: from 00:01 back to 23:01 of the day before, so that midnight comes twice.
    let st_johns = calendar(Period::Day, "America/St_Johns");
    let start = st_johns.first_instant(Date::constant(2008, 11, 2));
    assert_eq!(local(&st_johns, start), "2008-11-02T00:00:00");
    assert_eq!(local(&st_johns, start + 3_600_000), "2008-11-02T00:00:00");
    // The hour after the change belongs to the new day, whatever its date.
    let second = u64::try_from(start / 1000).unwrap();
    assert_eq!(local(&st_johns, start + 1_800_000), "2008-11-01T23:30:00");
    assert_eq!(window(&st_johns, second + 1_800), (second, 25 * 3600));
}

#[test]
fn a_day_that_was_left_out_is_no_window() {
    let apia = calendar(Period::Day, "Pacific/Apia");
    // 2011-12-29 and 2011-12-31 local, at noon.
    let noon = |text: &str| u64::try_from(text.parse::<Timestamp>().unwrap().as_second()).unwrap();
    let (thursday, saturday) = (noon("2011-12-29T22:00:00Z"), noon("2011-12-30T22:00:00Z"));
    let (start, length) = window(&apia, thursday);
    assert_eq!(length, 86_400);
    assert_eq!(window(&apia, saturday), (start + length, 86_400));
    let week = calendar(Period::Week { starts: Weekday::Monday }, "Pacific/Apia");
    assert_eq!(window(&week, thursday).1, 6 * 86_400);
}

#[test]
fn weeks_begin_on_their_day_and_months_on_the_first() {
    let second = |text: &str| u64::try_from(text.parse::<Timestamp>().unwrap().as_second()).unwrap();
    let now = second("2026-12-02T10:00:00Z"); // a Wednesday
    for (starts, expected) in [
        (Weekday::Monday, "2026-11-30T00:00:00Z"),
        (Weekday::Wednesday, "2026-12-02T00:00:00Z"),
        (Weekday::Thursday, "2026-11-26T00:00:00Z"),
        (Weekday::Sunday, "2026-11-29T00:00:00Z"),
    ] {
        let week = calendar(Period::Week { starts }, "UTC");
        assert_eq!(window(&week, now), (second(expected), 7 * 86_400), "{starts:?}");
    }
    let month = calendar(Period::Month, "UTC");
    assert_eq!(
        month.boundaries_ms(now * 1000).map(|ms| ms / 1000),
        ["2026-11-01", "2026-12-01", "2027-01-01", "2027-02-01"]
            .map(|day| second(&format!("{day}T00:00:00Z")))
    );
}

#[test]
fn a_zone_is_known_by_its_name() {
    assert_eq!(calendar(Period::Day, "europe/berlin").zone(), "Europe/Berlin");
    for none in ["", "Mars/Olympus", "Etc/Unknown", "+02:00"] {
        assert!(Calendar::new(Period::Day, none).is_none(), "{none}");
    }
}

#[test]
fn no_time_is_out_of_range() {
    let month = calendar(Period::Month, "America/Sao_Paulo");
    for now in [0, 1, u64::MAX] {
        let [a, b, c, d] = month.boundaries_ms(now);
        assert!(a <= b && b < c && c < d, "{now}");
    }
    assert_eq!(month.boundaries_ms(0)[..2], [0, 0]);
}

/// P12: in every zone, from 2020 to 2040, each instant lies in exactly one window, and the service's four
/// boundaries are the same whichever instant of a window they are asked at.
#[test]
fn windows_tile_time_in_all_zones() {
    let from: Timestamp = "2020-01-01T00:00:00Z".parse().unwrap();
    let to: Timestamp = "2041-01-01T00:00:00Z".parse().unwrap();
    let mut zones = 0;
    for name in TimeZoneDatabase::bundled().available() {
        let day = calendar(Period::Day, name.as_str());
        let week = Calendar { period: Period::Week { starts: Weekday::Sunday }, ..day.clone() };
        let month = Calendar { period: Period::Month, ..day.clone() };
        tile(&month, from, to);
        // Days and weeks have their usual length but where a clock changes.
        for change in day.zone.following(from).map(|change| change.timestamp()).take_while(|at| *at < to) {
            let around = |hours| (change - Span::new().hours(hours), change + Span::new().hours(hours));
            let (before, after) = around(50);
            tile(&day, before, after);
            let (before, after) = around(200);
            tile(&week, before, after);
        }
        zones += 1;
    }
    assert!(zones > 500, "{zones}");
}

fn tile(calendar: &Calendar, from: Timestamp, to: Timestamp) {
    let ms = |at: Timestamp| u64::try_from(at.as_millisecond()).unwrap();
    let shortest = match calendar.period {
        Period::Day => 20,
        Period::Week { .. } => 164,
        Period::Month => 27 * 24,
    } * 3_600_000;
    let mut boundaries = calendar.boundaries_ms(ms(from));
    while boundaries[1] < ms(to) {
        let [before, start, end, after] = boundaries;
        let context = || format!("{} {:?} from {start}", calendar.zone(), calendar.period);
        assert!(end - start >= shortest && end - start <= 32 * 86_400_000, "{}", context());
        assert_eq!(calendar.boundaries_ms(start), boundaries, "{}", context());
        assert_eq!(calendar.boundaries_ms(end - 1), boundaries, "{}", context());
        assert_eq!(calendar.boundaries_ms(start - 1)[1..3], [before, start], "{}", context());
        boundaries = calendar.boundaries_ms(end);
        assert_eq!(boundaries[..3], [start, end, after], "{}", context());
    }
}
