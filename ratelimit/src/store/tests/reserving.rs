use super::*;
use crate::limits::MAX_AMOUNT;
use crate::limits::{Gauge, Wait};
use crate::store::{BucketId, Closing, Verdict};
use crate::tag::Tag;

over_both_stores!(suite:
    admits_to_the_limit_and_not_above, all_or_nothing, a_refusal_changes_nothing, a_repeat_is_replayed,
    another_callers_id_is_not_replayed, the_wait_is_exact, a_steady_caller_is_not_locked_out,
    the_clock_goes_back, the_largest_amounts_are_exact, hostile_names_do_not_meet, no_limits_at_all,
);

pub mod suite {
    use super::*;

    pub async fn admits_to_the_limit_and_not_above(fixture: Fixture) {
        let charges = [requests(10), tokens(100, 60)];
        fixture.clock.set(T0 + 20_000);
        let first = fixture.reserve(&hold(1, &charges)).await;
        assert_eq!(first.verdict, HELD);
        assert_eq!(first.now_ms, T0 + 20_000);
        assert_eq!(uses_of(&first), [1, 60]);
        assert_eq!(first.limits[1].gauge, Gauge { used: 60, remaining: 40, held: 60, reset_ms: 40_000 });
        assert_eq!(fixture.verdict(&hold(2, &charges)).await, Verdict::Refused);
        assert_eq!(fixture.verdict(&hold(3, &[requests(10), tokens(100, 40)])).await, HELD);
        assert_eq!(fixture.verdict(&hold(4, &[requests(10), tokens(100, 1)])).await, Verdict::Refused);
        assert_eq!(fixture.verdict(&hold(5, &[requests(10), tokens(100, 0)])).await, HELD);
        let state = fixture.explain(&charges).await;
        assert_eq!(uses(&state.gauges), [3, 100]);
        assert_eq!((state.open_holds, state.open_tokens), (3, 100));
    }

    pub async fn all_or_nothing(fixture: Fixture) {
        let charges = [requests(100), tokens(10, 10)];
        assert_eq!(fixture.verdict(&hold(0, &charges)).await, HELD);
        for number in 1..20 {
            let refused = fixture.reserve(&hold(number, &charges)).await;
            assert_eq!(refused.verdict, Verdict::Refused);
            assert_eq!(uses_of(&refused), [1, 10]);
        }
        assert_eq!(fixture.used(&charges[0]).await, 1);
        assert_eq!(fixture.open_holds().await, 1);
    }

    pub async fn a_refusal_changes_nothing(fixture: Fixture) {
        assert_eq!(fixture.verdict(&hold(1, &[requests(5), tokens(100, 90)])).await, HELD);
        let before = fixture.dump();
        assert!(!before.is_empty());
        for (number, charges) in [
            [requests(5), tokens(100, 11)],
            [requests(1), tokens(100, 1)],
            [requests(5), tokens(100, MAX_AMOUNT + 1)],
        ]
        .iter()
        .enumerate()
        {
            let number = u64::try_from(number).unwrap() + 2;
            assert_eq!(fixture.verdict(&hold(number, charges)).await, Verdict::Refused);
            assert_eq!(fixture.dump(), before);
        }
    }

    pub async fn a_repeat_is_replayed(fixture: Fixture) {
        let charges = [requests(1), tokens(100, 60)];
        assert_eq!(fixture.verdict(&hold(1, &charges)).await, HELD);
        let before = fixture.dump();
        assert_eq!(fixture.verdict(&hold(1, &charges)).await, REPLAYED);
        assert_eq!(fixture.dump(), before);
        let mut repeat = hold(1, &charges);
        repeat.attempt = 2;
        fixture.clock.set(T0 + MINUTE);
        let replayed = fixture.reserve(&repeat).await;
        assert_eq!(replayed.verdict, REPLAYED);
        assert_eq!(uses_of(&replayed), [0, 0]);
        assert!(replayed.limits.iter().all(|standing| standing.wait == Wait::No && !standing.would_deny));
        assert_eq!(fixture.open_holds().await, 1);
    }

    pub async fn another_callers_id_is_not_replayed(fixture: Fixture) {
        assert_eq!(fixture.verdict(&hold(1, &[tokens(100, 10)])).await, HELD);
        let mut other = hold(1, &[tokens(100, 10)]);
        other.identity = Tag::of("identity", [Some("another key")]);
        assert_eq!(fixture.verdict(&other).await, Verdict::Gone);
        assert_eq!(fixture.used(&tokens(100, 10)).await, 10);
    }

    pub async fn the_wait_is_exact(fixture: Fixture) {
        fixture.clock.set(T0 + 12_345);
        assert_eq!(fixture.verdict(&hold(1, &[tokens(100, 100)])).await, HELD);
        let refused = fixture.reserve(&hold(2, &[tokens(100, 1)])).await;
        assert_eq!(refused.verdict, Verdict::Refused);
        let Wait::Ms(wait) = refused.limits[0].wait else { panic!() };
        assert_eq!(wait, MINUTE - 12_345);
        fixture.clock.set(T0 + 12_345 + wait - 1);
        assert_eq!(fixture.verdict(&hold(3, &[tokens(100, 1)])).await, Verdict::Refused);
        fixture.clock.set(T0 + 12_345 + wait);
        assert_eq!(fixture.verdict(&hold(4, &[tokens(100, 1)])).await, HELD);
    }

    /// Its window ends though it calls all the time: the end is in the value, not in the key's life.
    pub async fn a_steady_caller_is_not_locked_out(fixture: Fixture) {
        let mut admitted = 0;
        for call in 0..120 {
            fixture.clock.set(T0 + call * 5_000);
            if fixture.verdict(&hold(call, &[requests(10)])).await == HELD {
                admitted += 1;
            }
        }
        assert_eq!(admitted, 100);
    }

    pub async fn the_clock_goes_back(fixture: Fixture) {
        assert_eq!(fixture.verdict(&hold(1, &[tokens(100, 100)])).await, HELD);
        for (number, back) in [(2, 1_000), (3, 3_600_000), (4, 40 * 86_400_000)] {
            fixture.clock.set(T0 - back);
            let refused = fixture.reserve(&hold(number, &[tokens(100, 1)])).await;
            assert_eq!(refused.verdict, Verdict::Refused, "{back}");
            // Never stuck for longer than one more window.
            assert!(matches!(refused.limits[0].wait, Wait::Ms(wait) if wait <= 2 * MINUTE), "{refused:?}");
        }
        fixture.clock.set(T0 + MINUTE);
        assert_eq!(fixture.verdict(&hold(5, &[tokens(100, 100)])).await, HELD);
    }

    pub async fn the_largest_amounts_are_exact(fixture: Fixture) {
        let charge = |amount| [tokens(MAX_AMOUNT, amount)];
        assert_eq!(fixture.verdict(&hold(1, &charge(MAX_AMOUNT - 1))).await, HELD);
        assert_eq!(fixture.used(&charge(0)[0]).await, MAX_AMOUNT - 1);
        assert_eq!(fixture.verdict(&hold(2, &charge(2))).await, Verdict::Refused);
        assert_eq!(fixture.verdict(&hold(3, &charge(1))).await, HELD);
        assert_eq!(fixture.used(&charge(0)[0]).await, MAX_AMOUNT);
        fixture.settle(settlement(1, used(1_234_567_890_123_456))).await;
        assert_eq!(fixture.used(&charge(0)[0]).await, 1_234_567_890_123_457);
        // A debt stops at the largest number that is counted exactly.
        fixture.settle(settlement(3, used(MAX_AMOUNT))).await;
        assert_eq!(fixture.used(&charge(0)[0]).await, MAX_AMOUNT);
    }

    pub async fn hostile_names_do_not_meet(fixture: Fixture) {
        let long = "x".repeat(10_000);
        let names: [&[Option<&str>]; 8] = [
            &[Some("a"), Some("bc")],
            &[Some("ab"), Some("c")],
            &[Some("a}{b"), Some("")],
            &[Some("{a"), Some("}")],
            &[Some("a\0"), Some("b")],
            &[Some("a"), Some("\0b")],
            &[Some("\r\nDEL *"), None],
            &[Some(&long), Some(&long)],
        ];
        for (number, parts) in names.iter().enumerate() {
            let subject = Tag::of("bucket", parts.iter().copied());
            let bucket = BucketId { shared: false, limit: Tag::of("limit", [Some("l")]), subject };
            let mut hold = hold(number.try_into().unwrap(), &[tokens(10, 10)]);
            hold.charges[0].meter.bucket = bucket;
            hold.account = Tag::account(parts[0].unwrap_or_default());
            assert_eq!(fixture.verdict(&hold).await, HELD, "{parts:?}");
        }
        if let Some(server) = &fixture.server {
            let keys: Vec<String> = server.command(&["KEYS", "*"]);
            let of_all = |key: &String| key == "t:accounts";
            let of_one = |key: &String| key.len() < 80 && key.is_ascii() && key.starts_with("t:{");
            assert!(keys.iter().all(|key| of_all(key) || of_one(key)));
        }
    }

    pub async fn no_limits_at_all(fixture: Fixture) {
        assert_eq!(fixture.verdict(&hold(1, &[])).await, HELD);
        assert_eq!(fixture.verdict(&hold(1, &[])).await, REPLAYED);
        assert_eq!(fixture.settle(settlement(1, Closing::Held)).await, crate::store::Settled::Replaced);
        assert_eq!(fixture.verdict(&hold(1, &[])).await, Verdict::Gone);
    }
}
