//! Sliding windows against a log of every charge.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const S: u64 = 1_000;
const N: u64 = 6;
const ALGORITHM: Algorithm = Algorithm::SlidingWindow { sub_window_ms: S, sub_windows: 6 };

/// Every charge with its time.
#[derive(Default)]
struct Log(BTreeMap<u64, (u64, u64)>);

impl Log {
    /// What counts at `now` by sub-windows.
    fn counted(&self, now: u64) -> u64 {
        let oldest = (now / S).saturating_sub(N);
        self.0.values().filter(|(at, _)| at / S >= oldest).map(|(_, amount)| amount).sum()
    }

    /// What was charged in the milliseconds after `now - length`, up to now.
    fn within(&self, now: u64, length: u64) -> u64 {
        self.0.values().filter(|(at, _)| *at + length > now && *at <= now).map(|(_, amount)| amount).sum()
    }
}

#[test]
fn a_charge_counts_for_its_window_and_less_than_a_sub_window_more() {
    for late in [0, 1, 500, 999] {
        let mut sim = Sim::new(ALGORITHM, 10);
        sim.now = T0 + late;
        sim.reserve(1, 10).unwrap();
        assert_eq!(sim.reserve(2, 1), Err(Wait::Ms(N * S + S - late)));
        assert_eq!(sim.open().gauge(), Gauge { used: 10, remaining: 0, held: 0, reset_ms: N * S + S - late });
        sim.now = T0 + late + N * S;
        assert!(sim.reserve(2, 1).is_err(), "{late}");
        sim.now = T0 + N * S + S;
        assert!(sim.reserve(2, 1).is_ok());
    }
}

#[test]
fn refunds_find_their_sub_window_and_excess_goes_to_the_newest() {
    let mut sim = Sim::new(ALGORITHM, 100);
    let first = sim.reserve(1, 30).unwrap();
    sim.now += 3 * S;
    let second = sim.reserve(2, 30).unwrap();
    sim.refund(1, &first, 10);
    assert_eq!(sim.used(), 50);
    sim.now += 4 * S;
    // The first one is no longer counted: its refund goes nowhere.
    assert_eq!(sim.used(), 30);
    sim.refund(1, &first, 10);
    assert_eq!(sim.used(), 30);
    sim.excess(100);
    assert_eq!(sim.used(), 130);
    sim.refund(2, &second, 40);
    assert_eq!(sim.used(), 100);
    sim.now += 6 * S;
    assert_eq!(sim.used(), 100);
    sim.now += S;
    assert_eq!(sim.used(), 0);
}

#[test]
fn another_number_of_sub_windows_is_another_bucket() {
    let mut sim = Sim::new(ALGORITHM, 100);
    sim.reserve(1, 30).unwrap();
    let other = Algorithm::SlidingWindow { sub_window_ms: S, sub_windows: 7 };
    assert_eq!(Bucket::open(other, 100, sim.state.as_ref(), T0).err(), Some(Unusable::Foreign));
    let other = Algorithm::FixedWindow { length_ms: S };
    assert_eq!(Bucket::open(other, 100, sim.state.as_ref(), T0).err(), Some(Unusable::Foreign));
}

/// Never more than one extra window, never stuck for longer than one.
#[test]
fn the_clock_goes_back() {
    for back in [1_000, 5_000, 3_600_000, 40 * 86_400_000] {
        let mut sim = Sim::new(ALGORITHM, 10);
        sim.reserve(1, 10).unwrap();
        sim.now -= back;
        let mut admitted = 10;
        for step in 0..80 {
            sim.now += 100;
            while sim.reserve(step, 1).is_ok() {
                admitted += 1;
            }
            let Err(Wait::Ms(wait)) = sim.reserve(step, 1) else { panic!() };
            assert!(wait <= 2 * (N + 1) * S, "{back}: {wait}");
        }
        // 8 s of a window of 6 s, and one window that was forgotten at most.
        assert!(admitted <= 40, "{back}: {admitted}");
    }
}

proptest! {
    #[test]
    fn decides_as_a_log_of_sub_windows_does(
        limit in 20u64..60,
        steps in prop::collection::vec((0u64..1_500, 1u64..25, 0u64..4), 1..120),
    ) {
        let mut sim = Sim::new(ALGORITHM, limit);
        let mut log = Log::default();
        let mut open = Vec::new();
        for (number, (step, amount, kind)) in steps.into_iter().enumerate() {
            let number = number as u64;
            sim.now += step;
            if kind == 0 && !open.is_empty() {
                let (held, mark) = open.remove(amount as usize % open.len());
                let back = log.0.get(&held).map_or(0, |(_, held)| amount.min(*held));
                sim.refund(held, &mark, back);
                log.0.get_mut(&held).unwrap().1 -= back;
            } else {
                let fits = log.counted(sim.now) + amount <= limit;
                match sim.reserve(number, amount) {
                    Ok(mark) => {
                        prop_assert!(fits);
                        log.0.insert(number, (sim.now, amount));
                        open.push((number, mark));
                    }
                    Err(wait) => {
                        prop_assert!(!fits);
                        // Not wasteful: a log of a window and a sub-window refuses it too.
                        prop_assert!(log.within(sim.now, (N + 1) * S) + amount > limit);
                        sim.check_wait(amount, wait);
                    }
                }
            }
            prop_assert_eq!(sim.used(), log.counted(sim.now));
            // Never above the limit in any window, wherever it begins.
            for (at, _) in log.0.values() {
                prop_assert!(log.within(*at, N * S) <= limit);
            }
        }
    }
}
