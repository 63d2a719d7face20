//! Fixed and calendar windows.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const FIXED: Algorithm = Algorithm::FixedWindow { length_ms: MINUTE };
const DAY: u64 = 86_400_000;
/// Days around the change to summer time in Berlin, 2027-03-28: that one has 23 hours.
const BERLIN: [u64; 4] = [1_806_102_000_000, 1_806_188_400_000, 1_806_271_200_000, 1_806_271_200_000 + DAY];
const CALENDAR: Algorithm = Algorithm::CalendarWindow { boundaries_ms: BERLIN };

/// "Days" of one and of two minutes, in turn: four boundaries around a time.
fn day_of(now: u64) -> [u64; 4] {
    let start = |number: u64| T0 - 3 * MINUTE + number / 2 * 3 * MINUTE + number % 2 * MINUTE;
    let current = (1..).find(|number| start(number + 1) > now).unwrap();
    [current - 1, current, current + 1, current + 2].map(start)
}

#[test]
fn fixed_windows_start_at_multiples_of_their_length() {
    let mut sim = Sim::new(FIXED, 10);
    sim.now = 1_700_000_012_345;
    assert_eq!(sim.reserve(1, 3), Ok(Mark::Window { start_ms: 1_699_999_980_000 }));
    let gauge = Gauge { used: 3, remaining: 7, held: 0, reset_ms: 27_655 };
    assert_eq!(sim.open().gauge(), gauge);
    assert_eq!(sim.reserve(2, 8), Err(Wait::Ms(27_655)));
    assert_eq!(sim.reserve(2, 11), Err(Wait::Never));
    // A little longer than the window, in case the clock goes back.
    assert_eq!(sim.open().keep_ms(), Some(27_655 + 60_000));
}

#[test]
fn calendar_windows_are_as_long_as_their_day() {
    let mut sim = Sim::new(CALENDAR, 10);
    for (now, start, left) in [
        (BERLIN[1] - 1, BERLIN[0], 1),
        (BERLIN[1], BERLIN[1], 23 * 3_600_000),
        (BERLIN[2] - 1, BERLIN[1], 1),
        (BERLIN[2], BERLIN[2], DAY),
    ] {
        sim.now = now;
        assert_eq!(sim.reserve(1, 5), Ok(Mark::Window { start_ms: start }), "{now}");
        assert_eq!(sim.open().gauge().reset_ms, left);
        let refused = sim.reserve(2, 6);
        assert_eq!(refused, Err(Wait::Ms(left)));
        // The wait of the last window ends where these boundaries do.
        if now < BERLIN[2] {
            sim.check_wait(6, Wait::Ms(left));
        }
        sim.state = None;
    }
}

#[test]
fn a_moment_outside_the_boundaries_is_an_error_and_a_correction_leaves_the_window() {
    for now in [BERLIN[0] - 1, BERLIN[3]] {
        assert_eq!(Bucket::open(CALENDAR, 10, None, now).err(), Some(Unusable::Boundary));
        let stored = State::CalendarWindow(fixed_window::Window { start_ms: BERLIN[1], used: 5 }).into();
        let mut bucket = Bucket::open_to_correct(CALENDAR, 10, Some(&stored), now).unwrap();
        bucket.refund(&id(1), &Mark::Window { start_ms: BERLIN[1] }, 2);
        bucket.refund(&id(1), &Mark::Window { start_ms: BERLIN[2] }, 2);
        bucket.excess(10);
        let corrected = fixed_window::Window { start_ms: BERLIN[1], used: 13 };
        assert_eq!(bucket.state(), State::CalendarWindow(corrected).into());
    }
}

#[test]
fn a_new_window_forgets_and_an_old_clock_does_not() {
    let used_at = |algorithm, at: u64, now: u64| {
        let mut sim = Sim::new(algorithm, 100);
        sim.now = at;
        sim.reserve(1, 7).unwrap();
        sim.now = now;
        (sim.used(), sim.open().gauge().reset_ms)
    };
    for (back, seen) in [(0, (7, 59_999)), (MINUTE, (7, 2 * MINUTE - 1)), (7 * MINUTE, (7, MINUTE - 1))] {
        assert_eq!(used_at(FIXED, T0 + 1, T0 + 1 - back), seen, "{back}");
    }
    assert_eq!(used_at(FIXED, T0 + 1, T0 + MINUTE), (0, 0));
    // Back by less than a day, and by more.
    assert_eq!(used_at(CALENDAR, BERLIN[1] + 5, BERLIN[1] - 5).0, 7);
    assert_eq!(used_at(CALENDAR, BERLIN[1] + 5, BERLIN[1] - 5).1, 23 * 3_600_000 + 5);
    assert_eq!(used_at(CALENDAR, BERLIN[2] + 5, BERLIN[1] - 5), (7, 5));
    assert_eq!(used_at(CALENDAR, BERLIN[0], BERLIN[1]), (0, 0));
}

#[test]
fn a_refund_goes_to_its_own_window_or_nowhere_and_an_excess_to_the_current_one() {
    for (algorithm, next) in [(FIXED, T0 + MINUTE), (CALENDAR, BERLIN[2])] {
        let mut sim = Sim::new(algorithm, 100);
        sim.now = if algorithm == FIXED { T0 } else { BERLIN[1] };
        let mark = sim.reserve(1, 40).unwrap();
        sim.refund(1, &mark, 10);
        assert_eq!(sim.used(), 30);
        sim.refund(1, &mark, 100);
        assert_eq!(sim.used(), 0);
        sim.now = next;
        sim.reserve(2, 20).unwrap();
        sim.refund(1, &mark, 10);
        sim.excess(200);
        assert_eq!(sim.open().gauge().used, 220);
        assert_eq!((sim.open().gauge().remaining, sim.open().gauge().left()), (-120, 0));
    }
}

#[test]
fn the_largest_amounts_are_exact() {
    for algorithm in [FIXED, Algorithm::SlidingWindow { sub_window_ms: 1_000, sub_windows: 60 }] {
        let mut sim = Sim::new(algorithm, MAX_AMOUNT);
        let mark = sim.reserve(1, MAX_AMOUNT - 1).unwrap();
        assert!(sim.reserve(2, 2).is_err() && sim.reserve(2, u64::MAX).is_err());
        assert!(sim.reserve(2, 1).is_ok());
        sim.excess(u64::MAX);
        assert_eq!(sim.used(), MAX_AMOUNT);
        sim.refund(1, &mark, MAX_AMOUNT - 1);
        assert_eq!(sim.used(), 1);
    }
}

proptest! {
    /// What is admitted in any one window never exceeds the limit, however the clock jumps.
    #[test]
    fn never_above_the_limit(
        limit in 1u64..200,
        steps in prop::collection::vec((0u64..10 * MINUTE, 1u64..50), 1..100),
    ) {
        let mut sim = Sim::new(FIXED, limit);
        for (number, (now, amount)) in steps.into_iter().enumerate() {
            sim.now = T0 + now;
            let _ = sim.reserve(number as u64, amount);
            prop_assert!(sim.used() <= limit);
            prop_assert!(sim.open().gauge().reset_ms <= 2 * MINUTE);
        }
    }

    /// With a clock that only goes forward, a window is a log of what was charged in it: what fits there is admitted and
    /// nothing else, a refund is taken off its own window, an excess is added to the one of now.
    #[test]
    fn decides_as_a_log_of_windows_does(
        limit in 20u64..60,
        calendar in any::<bool>(),
        steps in prop::collection::vec((0u64..25_000, 1u64..25, 0u64..5), 1..150),
    ) {
        let start_of = |now: u64| if calendar { day_of(now)[1] } else { now - now % MINUTE };
        let mut sim = Sim::new(FIXED, limit);
        let mut log: BTreeMap<u64, u64> = BTreeMap::new();
        let mut open = Vec::new();
        for (number, (step, amount, kind)) in steps.into_iter().enumerate() {
            let number = number as u64;
            sim.now += step;
            let start = start_of(sim.now);
            if calendar {
                sim.algorithm = Algorithm::CalendarWindow { boundaries_ms: day_of(sim.now) };
            }
            match kind {
                0 if !open.is_empty() => {
                    let (held, mark, there, window): (u64, Mark, u64, u64) =
                        open.remove(amount as usize % open.len());
                    let back = amount.min(there);
                    sim.refund(held, &mark, back);
                    *log.entry(window).or_default() -= back;
                }
                1 => {
                    sim.excess(amount);
                    *log.entry(start).or_default() += amount;
                }
                _ => {
                    let counted = log.get(&start).copied().unwrap_or(0);
                    match sim.reserve(number, amount) {
                        Ok(mark) => {
                            prop_assert!(counted + amount <= limit);
                            *log.entry(start).or_default() += amount;
                            open.push((number, mark, amount, start));
                        }
                        Err(wait) => {
                            prop_assert!(counted + amount > limit);
                            sim.check_wait(amount, wait);
                        }
                    }
                }
            }
            prop_assert_eq!(sim.used(), log.get(&start).copied().unwrap_or(0));
        }
    }

    /// With a clock that only goes forward: a refusal holds until exactly the end of the window.
    #[test]
    fn the_wait_is_exact(start in 0u64..100 * MINUTE, used in 1u64..10, amount in 1u64..12) {
        let mut sim = Sim::new(FIXED, 10);
        sim.now = T0 + start;
        sim.reserve(1, used).unwrap();
        if let Err(wait) = sim.reserve(2, amount) {
            sim.check_wait(amount, wait);
        }
    }

    /// A reserve and its whole refund change nothing.
    #[test]
    fn hold_and_refund_is_nothing(
        used in 0u64..60, amount in 0u64..60, later in 0u64..50_000, kind in 0usize..4,
    ) {
        let algorithm = [
            FIXED,
            Algorithm::SlidingWindow { sub_window_ms: 1_000, sub_windows: 60 },
            Algorithm::TokenBucket { num: 7, den: 60 },
            Algorithm::Balance,
        ][kind];
        let mut sim = Sim::new(algorithm, 100);
        if algorithm == Algorithm::Balance {
            sim.state = Some(State::Balance(Account { granted: 100, spent: 0 }).into());
        }
        sim.reserve(1, used).unwrap();
        sim.now += later;
        let before = sim.open().gauge();
        if let Ok(mark) = sim.reserve(2, amount) {
            sim.refund(2, &mark, amount);
            prop_assert_eq!(sim.open().gauge(), before);
        }
    }
}
