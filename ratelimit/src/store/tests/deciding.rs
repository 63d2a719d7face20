//! Less than the whole, shadows, and attempts.

use proptest::prelude::*;

use super::*;
use crate::limits::{Algorithm, Rates, Wait};
use crate::store::{Clamp, Hold, Settled, Verdict};

over_both_stores!(suite:
    a_clamped_request_holds_what_fits, a_clamp_has_its_least, money_is_clamped_to_the_nano_dollar,
    a_clamp_goes_around_what_has_no_output, a_replay_has_the_granted_output, shadows_never_refuse,
    attempts_count_refused_requests, waits_are_told_for_every_limit, a_calendar_without_this_moment,
);

fn request(number: u64, prompt: u64, output: u64, choices: u32, charges: &[Amount]) -> Hold {
    Hold {
        prompt_tokens: prompt,
        output_tokens: output * u64::from(choices),
        choices,
        grant: Some(output),
        clamp: Some(Clamp { min_output_tokens: 5 }),
        ..hold(number, charges)
    }
}

fn granted(output: u64) -> Verdict {
    Verdict::Held { grant: Some(output), replayed: false }
}

const PRICE: Rates = Rates {
    request: 0,
    input: 333_333,
    cache_read: 100,
    cache_write: 0,
    output: 777_777,
    reasoning: 1,
    per: 1_000,
};

pub mod suite {
    use super::*;

    pub async fn a_clamped_request_holds_what_fits(fixture: Fixture) {
        let charges = [requests(10), tokens(100, 0)];
        assert_eq!(fixture.verdict(&request(1, 10, 50, 1, &charges)).await, granted(50));
        assert_eq!(fixture.verdict(&request(2, 10, 50, 1, &charges)).await, granted(30));
        let state = fixture.explain(&charges).await;
        assert_eq!(uses(&state.gauges), [2, 100]);
        assert_eq!(state.open_tokens, 100);
        fixture.settle(settlement(2, used(12))).await;
        // 28 are left: 3 of prompt, and 8 of output for each choice.
        assert_eq!(fixture.verdict(&request(3, 3, 50, 3, &charges)).await, granted(8));
        assert_eq!(uses(&fixture.explain(&charges).await.gauges), [3, 99]);
        let mut without_a_limit = request(4, 1, 20, 1, &[tokens(111, 0)]);
        without_a_limit.grant = None;
        assert_eq!(fixture.verdict(&without_a_limit).await, granted(11));
    }

    pub async fn a_clamp_has_its_least(fixture: Fixture) {
        let charges = [tokens(24, 0)];
        let before = fixture.dump();
        let refused = fixture.reserve(&request(1, 10, 50, 3, &charges)).await;
        // An honest refusal is about the whole amount.
        assert_eq!((refused.verdict, refused.limits[0].wait), (Verdict::Refused, Wait::Never));
        assert_eq!(fixture.dump(), before);
        assert_eq!(fixture.verdict(&request(1, 9, 50, 3, &charges)).await, granted(5));
        // Nothing at all is never a grant.
        let mut nothing = request(2, 0, 50, 1, &charges);
        nothing.clamp = Some(Clamp { min_output_tokens: 0 });
        assert_eq!(fixture.verdict(&nothing).await, Verdict::Refused);
        nothing.clamp = None;
        nothing.charges = vec![tokens(30, 0).charge];
        assert_eq!(fixture.verdict(&nothing).await, Verdict::Refused);
    }

    pub async fn money_is_clamped_to_the_nano_dollar(fixture: Fixture) {
        let charges = [tokens(9_999, 0).rates(PRICE)];
        // 3 × 333.333 leave 8,999.001: 11 × 777.777 are 8,555.547.
        assert_eq!(fixture.verdict(&request(1, 3, 50, 1, &charges)).await, granted(11));
        assert_eq!(fixture.used(&charges[0]).await, 9_556);
    }

    pub async fn a_clamp_goes_around_what_has_no_output(fixture: Fixture) {
        let input = tokens(12, 0).named("in").rates(Rates::INPUT_TOKENS);
        let charges = [input, tokens(30, 0)];
        assert_eq!(fixture.verdict(&request(1, 10, 50, 1, &charges)).await, granted(20));
        fixture.settle(settlement(1, used(0))).await;
        assert_eq!(fixture.verdict(&request(2, 13, 50, 1, &charges)).await, Verdict::Refused);
        assert_eq!(fixture.verdict(&request(3, 13, 17, 1, &charges)).await, Verdict::Refused);
    }

    pub async fn a_replay_has_the_granted_output(fixture: Fixture) {
        let charges = [tokens(30, 0)];
        assert_eq!(fixture.verdict(&request(1, 10, 50, 1, &charges)).await, granted(20));
        let replayed = Verdict::Held { grant: Some(20), replayed: true };
        assert_eq!(fixture.verdict(&request(1, 10, 50, 1, &charges)).await, replayed);
        assert_eq!(fixture.settle(settlement(1, crate::store::Closing::Held)).await, Settled::Replaced);
        assert_eq!(fixture.used(&charges[0]).await, 30);
    }

    pub async fn shadows_never_refuse(fixture: Fixture) {
        let charges = [tokens(100, 40), tokens(50, 0).named("shadow").shadow()];
        let first = fixture.reserve(&hold(1, &charges)).await;
        assert_eq!((first.verdict, first.limits[1].would_deny), (HELD, false));
        let second = fixture.reserve(&hold(2, &charges)).await;
        assert_eq!((second.verdict, second.limits[1].would_deny), (HELD, true));
        assert_eq!(second.limits[1].wait, Wait::Ms(MINUTE));
        assert_eq!(uses(&fixture.explain(&charges).await.gauges), [80, 40]);
        // What was not charged is not given back.
        fixture.settle(settlement(2, UNSENT)).await;
        assert_eq!(uses(&fixture.explain(&charges).await.gauges), [40, 40]);
        // Nor is a shadow charged by a request that is refused.
        assert_eq!(fixture.verdict(&hold(3, &[tokens(100, 61), charges[1]])).await, Verdict::Refused);
        assert_eq!(uses(&fixture.explain(&charges).await.gauges), [40, 40]);
    }

    pub async fn attempts_count_refused_requests(fixture: Fixture) {
        let attempts = requests(3).named("attempts").attempts();
        let charges = [tokens(100, 60), attempts];
        assert_eq!(fixture.verdict(&hold(1, &charges)).await, HELD);
        let refused = fixture.reserve(&hold(2, &charges)).await;
        assert_eq!(refused.verdict, Verdict::Refused);
        assert_eq!((refused.limits[0].would_deny, refused.limits[1].would_deny), (true, false));
        assert_eq!(uses_of(&refused), [60, 2]);
        // Never given back, and a replay is not another attempt.
        assert_eq!(fixture.verdict(&hold(1, &charges)).await, REPLAYED);
        fixture.settle(settlement(1, UNSENT)).await;
        assert_eq!(uses(&fixture.explain(&charges).await.gauges), [0, 2]);
        assert_eq!(fixture.verdict(&hold(3, &charges)).await, HELD);
        let refused = fixture.reserve(&hold(4, &[tokens(1_000, 60), attempts])).await;
        assert_eq!((refused.verdict, refused.limits[1].wait), (Verdict::Refused, Wait::Ms(MINUTE)));
        assert_eq!(uses_of(&refused), [60, 4]);
    }

    pub async fn waits_are_told_for_every_limit(fixture: Fixture) {
        let charges = [
            tokens(100, 80),
            tokens(100, 0)
                .named("s")
                .algorithm(Algorithm::SlidingWindow { sub_window_ms: 500, sub_windows: 20 }),
            tokens(100, 0).named("t").algorithm(Algorithm::TokenBucket { num: 1, den: 100 }),
            requests(1).named("n").algorithm(Algorithm::Concurrency { lease_ms: MINUTE }),
            tokens(0, 0).named("b").algorithm(Algorithm::Balance).shadow(),
            tokens(70, 0).named("never").shadow(),
        ];
        fixture.clock.set(T0 + 100);
        assert_eq!(fixture.verdict(&hold(1, &charges)).await, HELD);
        fixture.clock.set(T0 + 200);
        let refused = fixture.reserve(&hold(2, &charges)).await;
        assert_eq!(refused.verdict, Verdict::Refused);
        let waits: Vec<_> = refused.limits.iter().map(|standing| standing.wait).collect();
        // 60 tokens have to regrow, less the one since.
        let expected = [
            Wait::Ms(59_800),
            Wait::Ms(10_300),
            Wait::Ms(5_900),
            Wait::Estimate(1_000),
            Wait::Unknown,
            Wait::Never,
        ];
        assert_eq!(waits, expected);
        assert!(refused.limits.iter().all(|standing| standing.would_deny));
    }

    pub async fn a_calendar_without_this_moment(fixture: Fixture) {
        use crate::store::StoreError;
        let days = |first: u64| Algorithm::CalendarWindow {
            boundaries_ms: [0, 1, 2, 3].map(|day| first + day * 20 * MINUTE),
        };
        let charges = [requests(5), tokens(100, 10).named("day").algorithm(days(T0 - 20 * MINUTE))];
        assert_eq!(fixture.verdict(&hold(1, &charges)).await, HELD);
        let before = fixture.dump();
        for first in [T0 + 1, T0 - 60 * MINUTE] {
            let wrong = [charges[0], charges[1].algorithm(days(first))];
            assert_eq!(fixture.store.reserve(&hold(2, &wrong), TIME).await, Err(StoreError::Boundary));
            assert_eq!(fixture.dump(), before);
        }
        // A settle has only the boundaries of its hold: beyond them it is no error.
        fixture.clock.set(T0 + 40 * MINUTE);
        assert_eq!(fixture.settle(settlement(1, UNSENT)).await, Settled::Replaced);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// What a clamp grants fits; one token more per choice does not. Without a clamp, the same request is refused.
    #[test]
    fn a_grant_is_the_most_that_fits(
        limit in 1u64..40_000,
        taken in 0u64..30_000,
        prompt in 0u64..20,
        output in 1u64..200,
        choices in 1u32..4,
        priced in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let rates = if priced { PRICE } else { Rates::TOKENS };
            let charges = [tokens(if priced { limit } else { limit / 100 }, 0).rates(rates), tokens(900, 0).named("x")];
            let whole = |number, output| Hold { clamp: None, ..request(number, prompt, output, choices, &charges) };
            let fixture = Fixture::memory();
            fixture.reserve(&hold(1, &[tokens(u64::MAX >> 12, taken / if priced { 1 } else { 100 })])).await;
            let Verdict::Held { grant: Some(grant), .. } =
                fixture.verdict(&request(2, prompt, output, choices, &charges)).await
            else {
                // Not even the least fits.
                assert_eq!(fixture.verdict(&whole(3, output.min(5))).await, Verdict::Refused);
                return;
            };
            fixture.settle(settlement(2, UNSENT)).await;
            if grant < output {
                assert!(grant >= 5);
                assert_eq!(fixture.verdict(&whole(3, grant + 1)).await, Verdict::Refused);
            }
            assert_eq!(fixture.verdict(&whole(4, grant)).await, granted(grant));
        });
    }

    /// Removing a shadow limit changes nothing for anybody.
    #[test]
    fn a_shadow_changes_nothing(
        steps in prop::collection::vec((0u64..30_000, 0u64..60, 0u8..5), 1..40),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let enforcing = [requests(6), tokens(150, 0)];
            let shadows = [
                tokens(20, 0).named("s").shadow(),
                requests(1).named("n").algorithm(Algorithm::Concurrency { lease_ms: MINUTE }).shadow(),
                requests(2).named("a").attempts().shadow(),
            ];
            let with: Vec<_> = enforcing.iter().chain(&shadows).copied().collect();
            let (plain, shadowed) = (Fixture::memory(), Fixture::memory());
            let mut now = T0;
            for (number, (step, tokens, kind)) in steps.into_iter().enumerate() {
                now += step;
                plain.clock.set(now);
                shadowed.clock.set(now);
                let number = number as u64;
                match kind {
                    0 => {
                        let settle = settlement(number / 2, used(tokens));
                        assert_eq!(plain.settle(settle.clone()).await, shadowed.settle(settle).await);
                    }
                    1 => {
                        let extension = extension(number / 2, tokens);
                        assert_eq!(plain.extend(extension.clone()).await, shadowed.extend(extension).await);
                    }
                    _ => {
                        let request = |charges: &[Amount]| request(number, tokens, tokens, 1, charges);
                        let answers =
                            (plain.reserve(&request(&enforcing)).await, shadowed.reserve(&request(&with)).await);
                        assert_eq!(answers.0.verdict, answers.1.verdict);
                        assert_eq!(answers.0.limits[..], answers.1.limits[..2]);
                    }
                }
                let gauges = plain.explain(&enforcing).await.gauges;
                assert_eq!(gauges, shadowed.explain(&enforcing).await.gauges);
            }
        });
    }
}
