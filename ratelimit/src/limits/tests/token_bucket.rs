//! Token buckets: over any interval no more than the burst and what regrew.

use super::*;
use crate::limits::bucket::signed;

/// 100 tokens, refilled in 100 seconds.
const RATE: Algorithm = Algorithm::TokenBucket { num: 1, den: 1_000 };
const BURST: u64 = 100;

#[test]
fn the_level_grows_at_the_rate_and_waits_are_exact() {
    let mut sim = Sim::new(RATE, BURST);
    assert_eq!(sim.open().gauge(), Gauge { used: 0, remaining: 100, held: 0, reset_ms: 0 });
    sim.reserve(1, 100).unwrap();
    assert_eq!(sim.open().gauge(), Gauge { used: 100, remaining: 0, held: 0, reset_ms: 100_000 });
    assert_eq!(sim.reserve(2, 1), Err(Wait::Ms(1_000)));
    assert_eq!(sim.reserve(2, 101), Err(Wait::Never));
    sim.check_wait(1, Wait::Ms(1_000));
    sim.now += 1_500;
    assert_eq!(sim.open().gauge(), Gauge { used: 99, remaining: 1, held: 0, reset_ms: 98_500 });
    sim.check_wait(2, Wait::Ms(500));
    assert_eq!(sim.open().keep_ms(), Some(98_500 + 60_000));
    sim.now += 200_000;
    assert_eq!(sim.open().gauge().used, 0);
}

#[test]
fn a_debt_pays_itself_off() {
    let mut sim = Sim::new(RATE, BURST);
    sim.reserve(1, 60).unwrap();
    sim.excess(90);
    assert_eq!(sim.open().gauge(), Gauge { used: 150, remaining: -50, held: 0, reset_ms: 150_000 });
    assert_eq!(sim.reserve(2, 1), Err(Wait::Ms(51_000)));
    sim.excess(u64::MAX);
    assert_eq!(sim.reserve(2, 1), Err(Wait::Ms(MAX_AMOUNT + 1_000)));
}

/// Attempts are charged though they do not fit; hammering costs one burst at most.
#[test]
fn attempts_end_in_a_debt_of_one_burst() {
    let mut sim = Sim::new(RATE, BURST);
    for number in 0..1_000 {
        let mut bucket = sim.open();
        bucket.charge(&id(number), 1);
        sim.state = Some(bucket.state());
    }
    assert_eq!(sim.open().gauge().used, 200);
}

/// Refunded after it has regrown, a hold is worth nothing: else 100 regrown and 100 refunded could be used.
#[test]
fn what_has_regrown_is_not_given_back_again() {
    for (later, given) in [(0, 100), (30_000, 70), (100_000, 0), (10_000_000, 0)] {
        let mut sim = Sim::new(RATE, BURST);
        let mark = sim.reserve(1, 100).unwrap();
        sim.now += later;
        let before = sim.open().gauge().remaining;
        sim.refund(1, &mark, 100);
        assert_eq!(sim.open().gauge().remaining - before, given, "{later}");
    }
}

#[test]
fn changed_limits_keep_whole_tokens_and_forget_holds() {
    let mut sim = Sim::new(RATE, BURST);
    let mark = sim.reserve(1, 60).unwrap();
    sim.now += 1_500;
    (sim.algorithm, sim.limit) = (Algorithm::TokenBucket { num: 7, den: 60 }, 1_000);
    assert_eq!(sim.open().gauge().remaining, 41);
    sim.refund(1, &mark, 60);
    assert_eq!(sim.open().gauge().remaining, 41);
    sim.limit = 10;
    assert_eq!(sim.open().gauge(), Gauge { used: 0, remaining: 10, held: 0, reset_ms: 0 });
    // Back to what it was, within the same millisecond.
    let mark = sim.reserve(2, 10).unwrap();
    (sim.algorithm, sim.limit) = (RATE, BURST);
    sim.refund(2, &mark, 10);
    assert_eq!(sim.open().gauge().remaining, 0);
}

#[test]
fn the_clock_goes_back() {
    for back in [1_000, 3_600_000, 40 * 86_400_000] {
        let mut sim = Sim::new(RATE, BURST);
        let mark = sim.reserve(1, 100).unwrap();
        sim.now -= back;
        assert_eq!(sim.reserve(2, 1), Err(Wait::Ms(1_000)), "{back}");
        sim.refund(1, &mark, 100);
        assert_eq!(sim.open().gauge().remaining, 0);
        sim.now += 10_000;
        assert_eq!(sim.open().gauge().remaining, 10);
    }
}

#[test]
fn the_largest_bucket_is_exact() {
    let mut sim = Sim::new(Algorithm::TokenBucket { num: 1, den: 1 }, MAX_AMOUNT);
    let mark = sim.reserve(1, MAX_AMOUNT - 1).unwrap();
    assert_eq!(sim.reserve(2, 2), Err(Wait::Ms(1)));
    sim.refund(1, &mark, MAX_AMOUNT - 1);
    assert_eq!(sim.open().gauge(), Gauge { used: 0, remaining: signed(MAX_AMOUNT), held: 0, reset_ms: 0 });
}

/// How a refund is given.
type Refund = fn(&mut Sim, u64, &Mark, u64);

/// What was used above what any interval allows, in a sequence of holds and refunds that tries to get much.
fn overshoot(seed: u64, refund: Refund) -> i64 {
    let mut numbers = Numbers(seed | 1 << 40);
    let (num, den) = [(1, 1_000), (7, 60), (50, 3)][numbers.below(3) as usize];
    let mut sim = Sim::new(Algorithm::TokenBucket { num, den }, BURST);
    let fill_ms = BURST * den / num;
    // Time, and what the request turned out to use.
    let mut charges: Vec<(u64, u64)> = Vec::new();
    let mut open: Vec<(usize, Mark)> = Vec::new();
    for _ in 0..40 {
        sim.now += match numbers.below(6) {
            0 | 1 => 0,
            2 | 3 => numbers.below(fill_ms / 16 + 2),
            4 => numbers.below(fill_ms / 2 + 2),
            _ => numbers.below(3 * fill_ms),
        };
        if numbers.below(2) == 0 && !open.is_empty() {
            let (number, mark) = open.remove(numbers.below(open.len() as u64) as usize);
            let held = charges[number].1;
            let used = if numbers.below(3) > 0 { 0 } else { numbers.below(held + 1) };
            refund(&mut sim, number as u64, &mark, held - used);
            charges[number].1 = used;
        } else {
            let there = sim.open().gauge().left();
            let too_much = there + 1 + numbers.below(BURST);
            let refused = sim.reserve(1 << 40, too_much).unwrap_err();
            sim.check_wait(too_much, refused);
            // All there is, or some of it.
            let amount = if numbers.below(2) == 0 { there } else { numbers.below(there + 1) };
            if amount > 0 {
                let mark = sim.reserve(charges.len() as u64, amount).unwrap();
                open.push((charges.len(), mark));
                charges.push((sim.now, amount));
            }
        }
    }
    let mut worst = i64::MIN;
    for (first, (from, _)) in charges.iter().enumerate() {
        let mut used = 0;
        for (at, amount) in &charges[first..] {
            used += amount * den;
            worst = worst.max(used as i64 - (BURST * den + (at - from) * num) as i64);
        }
    }
    worst
}

#[test]
fn no_interval_has_more_than_the_burst_and_what_regrew() {
    let rule: Refund = |sim, number, mark, amount| sim.refund(number, mark, amount);
    for seed in 0..6_000 {
        assert!(overshoot(seed, rule) <= 0, "{seed}");
    }
}

/// The same search finds the naive rule out, so it looks in the right places.
#[test]
fn a_naive_refund_would_be_found() {
    let naive: Refund = |sim, _, _, amount| {
        let mut bucket = sim.open();
        let State::TokenBucket(mut level) = bucket.state().counted else { panic!() };
        let full = (level.limit * level.den) as i64;
        level.level = full.min(level.level + (amount * level.den) as i64);
        bucket =
            Bucket::open(sim.algorithm, sim.limit, Some(&State::TokenBucket(level).into()), sim.now).unwrap();
        sim.state = Some(bucket.state());
    };
    let found = (0..500).filter(|seed| overshoot(*seed, naive) > 0).count();
    assert!(found > 100, "{found}");
}

/// A hold that is settled at once costs nothing; one in flight for a quarter of the fill time gets most back.
#[test]
fn refunds_are_not_lost_without_need() {
    let mut sim = Sim::new(RATE, BURST);
    sim.reserve(0, 80).unwrap();
    for number in 1..20 {
        let before = sim.open().gauge().remaining;
        let mark = sim.reserve(number, 20).unwrap();
        sim.now += 500;
        sim.refund(number, &mark, 20);
        assert!(sim.open().gauge().remaining >= before);
    }
}
