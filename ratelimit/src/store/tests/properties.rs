//! What holds for every algorithm, over both stores.

use super::*;
use crate::limits::tests::Numbers;
use crate::limits::{Algorithm, MAX_AMOUNT, Wait};
use crate::store::{Settled, TopUp, Verdict};

over_both_stores!(suite:
    a_refusal_leaves_every_state, no_window_has_more_than_its_limit,
    a_refund_is_worth_its_headroom, the_largest_amounts_are_exact_everywhere, waits_are_exact_everywhere,
    the_clock_jumps, tenants_do_not_feel_each_other, a_late_refund_of_a_sliding_window,
);

const SLIDING: Algorithm = Algorithm::SlidingWindow { sub_window_ms: 1_000, sub_windows: 60 };
const CALENDAR: Algorithm =
    Algorithm::CalendarWindow { boundaries_ms: [T0 - 7 * MINUTE, T0, T0 + 2 * MINUTE, T0 + 9 * MINUTE] };
const BUCKET: Algorithm = Algorithm::TokenBucket { num: 1, den: 600 };
const SLOTS: Algorithm = Algorithm::Concurrency { lease_ms: MINUTE };

/// One of each, the balance topped up to its limit.
pub async fn topped_up(fixture: &Fixture, limit: u64) -> Vec<Amount> {
    let top_up = TopUp { account: account(), bucket: bucket("b"), grant_id: "g".to_owned(), amount: limit };
    fixture.store.top_up(&top_up, TIME).await.unwrap();
    vec![
        tokens(limit, 0),
        tokens(limit, 0).named("s").algorithm(SLIDING),
        tokens(limit, 0).named("c").algorithm(CALENDAR),
        tokens(limit, 0).named("t").algorithm(BUCKET),
        tokens(0, 0).named("b").algorithm(Algorithm::Balance),
        requests(1_000).named("n").algorithm(SLOTS),
    ]
}

/// The charges with so many tokens.
pub fn of(charges: &[Amount], tokens: u64) -> Vec<Amount> {
    charges.iter().map(|charge| Amount { tokens, ..*charge }).collect()
}

pub mod suite {
    use super::*;

    pub async fn a_refusal_leaves_every_state(fixture: Fixture) {
        let charges = topped_up(&fixture, 100).await;
        let dead = requests(0).named("dead").algorithm(SLOTS);
        let before = fixture.dump();
        assert_eq!(fixture.verdict(&hold(1, &of(&charges, 101))).await, Verdict::Refused);
        assert_eq!(fixture.dump(), before);
        assert_eq!(fixture.verdict(&hold(2, &of(&charges, 60))).await, HELD);
        let before = fixture.dump();
        fixture.clock.set(T0 + 1_500);
        // Each of them alone, and the slots after all the others.
        for refusing in 0..charges.len() - 1 {
            let mut some = charges.clone();
            for (position, charge) in some.iter_mut().enumerate() {
                if position != refusing {
                    charge.charge.meter.limit = 1_000;
                }
            }
            assert_eq!(fixture.verdict(&hold(3, &of(&some[..=refusing], 60))).await, Verdict::Refused);
            assert_eq!(fixture.dump(), before, "{refusing}");
        }
        let with_dead = [of(&charges, 1), vec![dead]].concat();
        assert_eq!(fixture.verdict(&hold(3, &with_dead)).await, Verdict::Refused);
        assert_eq!(fixture.dump(), before);
    }

    /// Sliding: in no minute, wherever it begins, more than the limit was admitted.
    pub async fn no_window_has_more_than_its_limit(fixture: Fixture) {
        let mut numbers = Numbers(7);
        let mut admitted: Vec<(u64, u64)> = Vec::new();
        let mut now = T0;
        for number in 0..600 {
            now += numbers.below(1_100);
            fixture.clock.set(now);
            let amount = 1 + numbers.below(30);
            let charge = tokens(100, amount).named("s").algorithm(SLIDING);
            if fixture.verdict(&hold(number, &[charge])).await == HELD {
                admitted.push((now, amount));
            }
        }
        for (until, _) in &admitted {
            let within = admitted.iter().filter(|(at, _)| *at + 60_000 > *until && at <= until);
            assert!(within.map(|(_, amount)| amount).sum::<u64>() <= 100);
        }
        assert!(admitted.len() > 50);
    }

    pub async fn a_refund_is_worth_its_headroom(fixture: Fixture) {
        let charge = |amount| [tokens(100, amount).named("t").algorithm(BUCKET)];
        for (round, (later, used_then)) in
            [(0, 0), (30_000, 0), (60_000, 0), (90_000, 0)].into_iter().enumerate()
        {
            let start = T0 + round as u64 * 10 * MINUTE;
            let number = round as u64 * 10;
            fixture.clock.set(start);
            assert_eq!(fixture.verdict(&hold(number, &charge(100))).await, HELD);
            fixture.clock.set(start + later);
            // What has regrown is used at once; the refund may not be worth more than the rest.
            let regrown = (later / 600).min(100);
            assert_eq!(fixture.verdict(&hold(number + 1, &charge(regrown))).await, HELD);
            fixture.settle(settlement(number, UNSENT)).await;
            let left = fixture.explain(&charge(0)).await.gauges[0].left();
            assert_eq!(left, 100 - regrown, "{later}");
            assert_eq!(used_then, 0);
        }
    }

    pub async fn a_late_refund_of_a_sliding_window(fixture: Fixture) {
        let charge = |amount| [tokens(100, amount).named("s").algorithm(SLIDING)];
        fixture.reserve(&hold(1, &charge(40))).await;
        fixture.clock.set(T0 + 30_000);
        fixture.reserve(&hold(2, &charge(50))).await;
        fixture.settle(settlement(1, used(10))).await;
        assert_eq!(fixture.used(&charge(0)[0]).await, 60);
        // Its sub-window is over: to nowhere.
        fixture.clock.set(T0 + 61_000);
        assert_eq!(fixture.used(&charge(0)[0]).await, 50);
        fixture.reserve(&hold(3, &charge(20))).await;
        fixture.clock.set(T0 + 91_000);
        fixture.settle(settlement(2, UNSENT)).await;
        assert_eq!(fixture.used(&charge(0)[0]).await, 20);
    }

    pub async fn the_largest_amounts_are_exact_everywhere(fixture: Fixture) {
        let mut charges = topped_up(&fixture, MAX_AMOUNT).await;
        charges.truncate(5);
        charges[3] = charges[3].algorithm(Algorithm::TokenBucket { num: 1, den: 1 });
        let odd = 1_234_567_890_123_457;
        assert_eq!(fixture.verdict(&hold(1, &of(&charges, odd))).await, HELD);
        let state = fixture.explain(&charges).await;
        assert_eq!(uses(&state.gauges), [odd; 5]);
        assert_eq!(state.open_tokens, odd);
        assert_eq!(state.gauges[4].left(), MAX_AMOUNT - odd);
        assert_eq!(fixture.verdict(&hold(2, &of(&charges, MAX_AMOUNT - odd + 1))).await, Verdict::Refused);
        assert_eq!(fixture.verdict(&hold(3, &of(&charges, MAX_AMOUNT - odd))).await, HELD);
        assert_eq!(uses(&fixture.explain(&charges).await.gauges), [MAX_AMOUNT; 5]);
        fixture.settle(settlement(1, used(odd - 1))).await;
        assert_eq!(uses(&fixture.explain(&charges).await.gauges), [MAX_AMOUNT - 1; 5]);
        fixture.settle(settlement(3, UNSENT)).await;
        assert_eq!(uses(&fixture.explain(&charges).await.gauges), [odd - 1; 5]);
    }

    /// Refused a millisecond before, admitted then.
    pub async fn waits_are_exact_everywhere(fixture: Fixture) {
        for (number, (name, algorithm)) in [
            ("f", Algorithm::FixedWindow { length_ms: MINUTE }),
            ("s", SLIDING),
            ("c", CALENDAR),
            ("t", BUCKET),
        ]
        .into_iter()
        .enumerate()
        {
            let number = number as u64 * 10;
            let charge = |amount| [tokens(100, amount).named(name).algorithm(algorithm)];
            let start = T0 + 1_234;
            for (count, step, amount) in [(0, 0, 60), (1, 700, 30)] {
                fixture.clock.set(start + step);
                assert_eq!(fixture.verdict(&hold(number + count, &charge(amount))).await, HELD);
            }
            fixture.clock.set(start + 900);
            let refused = fixture.reserve(&hold(number + 8, &charge(50))).await;
            let Wait::Ms(wait) = refused.limits[0].wait else { panic!("{refused:?}") };
            fixture.clock.set(start + 900 + wait - 1);
            assert_eq!(fixture.verdict(&hold(number + 8, &charge(50))).await, Verdict::Refused, "{name}");
            fixture.clock.set(start + 900 + wait);
            assert_eq!(fixture.verdict(&hold(number + 8, &charge(50))).await, HELD, "{name}");
        }
    }

    /// The same buckets of another account: full, overdrawn, refused again and again.
    pub async fn tenants_do_not_feel_each_other(fixture: Fixture) {
        let other = |number, charges: &[Amount]| crate::store::Hold {
            account: crate::tag::Tag::account("another tenant"),
            ..hold(number, charges)
        };
        let charges = topped_up(&fixture, 100).await;
        for number in 0..20 {
            fixture.store.reserve(&other(number, &of(&charges[..4], 90)), TIME).await.unwrap();
        }
        assert_eq!(uses(&fixture.explain(&charges).await.gauges), [0; 6]);
        // Ids are each tenant's own, too.
        assert_eq!(fixture.verdict(&hold(1, &of(&charges, 100))).await, HELD);
        assert_eq!(fixture.settle(settlement(1, UNSENT)).await, Settled::Replaced);
        let refused = fixture.store.reserve(&other(30, &of(&charges[..4], 90)), TIME).await.unwrap();
        assert_eq!((refused.verdict, uses_of(&refused)), (Verdict::Refused, vec![90; 4]));
        // A limit that both share has what was admitted, and nothing of what one of them is refused.
        let mut shared = tokens(100, 0).named("shared");
        shared.charge.meter.bucket.shared = true;
        let both = |own: u64, amount: u64| of(&[shared, tokens(own, 0).named("own")], amount);
        for number in 40..60 {
            let refused = fixture.store.reserve(&other(number, &both(10, 90)), TIME).await.unwrap();
            assert_eq!(refused.verdict, Verdict::Refused);
        }
        assert_eq!(fixture.used(&shared).await, 0);
        assert_eq!(fixture.verdict(&hold(2, &both(100, 100))).await, HELD);
        assert_eq!(fixture.used(&shared).await, 100);
    }

    /// Never more than one extra window, never stuck for longer than one.
    pub async fn the_clock_jumps(fixture: Fixture) {
        let mut number = 0;
        for (name, algorithm) in [
            ("f", Algorithm::FixedWindow { length_ms: MINUTE }),
            ("s", SLIDING),
            ("t", Algorithm::TokenBucket { num: 1, den: 600 }),
            ("n", SLOTS),
        ] {
            let jumps =
                [1_000, 3_600_000, 40 * 86_400_000].map(|ms: u64| [(T0 - ms, "back"), (T0 + ms, "on")]);
            for (then, direction) in jumps.as_flattened() {
                let charge = |amount| {
                    let name = format!("{name} {then}");
                    let rates = if algorithm == SLOTS {
                        crate::limits::Rates::REQUESTS
                    } else {
                        crate::limits::Rates::TOKENS
                    };
                    [tokens(if algorithm == SLOTS { 1 } else { 100 }, amount)
                        .named(&name)
                        .rates(rates)
                        .algorithm(algorithm)]
                };
                fixture.clock.set(T0);
                number += 1;
                assert_eq!(fixture.verdict(&hold(number, &charge(100))).await, HELD);
                let mut admitted = 0;
                // Greedy, for three more windows.
                for step in 0..36 {
                    fixture.clock.set(then + step * 5_000);
                    number += 1;
                    let held = fixture.verdict(&hold(number, &charge(10))).await == HELD;
                    admitted += if held { 1 } else { 0 };
                }
                let (least, most) = if algorithm == SLOTS { (2, 4) } else { (20, 40) };
                assert!((least..=most).contains(&admitted), "{name}, {direction} to {then}: {admitted}");
            }
        }
    }
}
