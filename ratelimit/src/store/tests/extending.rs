//! Holding more, and longer, for a reservation that is open.

use super::*;
use crate::limits::{Algorithm, Rates};
use crate::store::{Closing, Extended, Extension, Hold, Settled, Verdict};

over_both_stores!(suite:
    only_what_is_missing_is_charged, the_order_of_repeats_does_not_matter, what_does_not_fit_changes_nothing,
    usage_fills_the_oldest_first, an_extension_goes_to_the_window_of_now, a_reservation_is_extended_so_often,
    nothing_is_open, leases_are_renewed, shadows_follow_where_they_can, held_and_released_after_an_extension,
);

/// 10 prompt tokens and 20 of output.
fn request(number: u64, charges: &[Amount]) -> Hold {
    Hold { prompt_tokens: 10, output_tokens: 20, ..hold(number, charges) }
}

fn lease(number: u64) -> Extension {
    Extension { output_tokens: None, lease: true, ..extension(number, 0) }
}

const fn held(output_tokens: u64) -> Extended {
    Extended::Held { output_tokens }
}

pub mod suite {
    use super::*;

    pub async fn only_what_is_missing_is_charged(fixture: Fixture) {
        let charges = [requests(10), tokens(100, 0), tokens(100, 0).named("in").rates(Rates::INPUT_TOKENS)];
        fixture.reserve(&request(1, &charges)).await;
        assert_eq!(fixture.extend(extension(1, 50)).await, held(50));
        let state = fixture.explain(&charges).await;
        assert_eq!(uses(&state.gauges), [1, 60, 10]);
        assert_eq!((state.open_holds, state.open_tokens), (1, 60));
        let before = fixture.dump();
        for less in [50, 20, 0] {
            assert_eq!(fixture.extend(extension(1, less)).await, held(50));
        }
        assert_eq!(fixture.dump(), before);
        // A repeat of the reserve is answered from the record, and holds nothing more.
        assert_eq!(fixture.verdict(&request(1, &charges)).await, REPLAYED);
        assert_eq!(fixture.settle(settlement(1, used(33))).await, Settled::Replaced);
        let state = fixture.explain(&charges).await;
        assert_eq!(uses(&state.gauges), [1, 33, 0]);
        assert_eq!(state.open_holds, 0);
    }

    pub async fn the_order_of_repeats_does_not_matter(fixture: Fixture) {
        let charges = [tokens(1_000, 0)];
        for (number, order) in
            [[30, 50, 90], [30, 90, 50], [50, 30, 90], [50, 90, 30], [90, 30, 50], [90, 50, 30]]
                .into_iter()
                .enumerate()
        {
            let number = number as u64;
            let before = fixture.used(&charges[0]).await;
            fixture.reserve(&request(number, &charges)).await;
            for total in order {
                fixture.extend(extension(number, total)).await;
            }
            assert_eq!(fixture.used(&charges[0]).await - before, 100, "{order:?}");
        }
    }

    pub async fn what_does_not_fit_changes_nothing(fixture: Fixture) {
        let charges = [tokens(1_000, 0), tokens(100, 0).named("tight")];
        fixture.reserve(&request(1, &charges)).await;
        let before = fixture.dump();
        for total in [91, u64::MAX, crate::limits::MAX_AMOUNT] {
            assert_eq!(fixture.extend(extension(1, total)).await, Extended::Refused);
            assert_eq!(fixture.dump(), before);
        }
        assert_eq!(fixture.extend(extension(1, 90)).await, held(90));
    }

    pub async fn usage_fills_the_oldest_first(fixture: Fixture) {
        let charges = [tokens(1_000, 0)];
        fixture.reserve(&request(1, &charges)).await;
        fixture.clock.set(T0 + MINUTE);
        fixture.extend(extension(1, 60)).await;
        assert_eq!(fixture.used(&charges[0]).await, 40);
        // 30 are in the window before, 40 in this one: 45 used leave 15 here.
        fixture.settle(settlement(1, used(45))).await;
        assert_eq!(fixture.used(&charges[0]).await, 15);
        // And an excess is charged once, for all of them together.
        fixture.reserve(&request(2, &charges)).await;
        fixture.extend(extension(2, 60)).await;
        fixture.settle(settlement(2, used(100))).await;
        assert_eq!(fixture.used(&charges[0]).await, 115);
    }

    pub async fn an_extension_goes_to_the_window_of_now(fixture: Fixture) {
        let sliding = Algorithm::SlidingWindow { sub_window_ms: 1_000, sub_windows: 60 };
        let bucket = Algorithm::TokenBucket { num: 1, den: 1_000 };
        let charges =
            [tokens(200, 0).named("s").algorithm(sliding), tokens(200, 0).named("t").algorithm(bucket)];
        fixture.reserve(&request(1, &charges)).await;
        fixture.clock.set(T0 + 30_000);
        assert_eq!(fixture.extend(extension(1, 60)).await, held(60));
        // The bucket has regrown the 30 that were held.
        assert_eq!(uses(&fixture.explain(&charges).await.gauges), [70, 40]);
        fixture.clock.set(T0 + 61_000);
        assert_eq!(uses(&fixture.explain(&charges).await.gauges), [40, 9]);
        fixture.settle(settlement(1, used(0))).await;
        // What has regrown in the meantime is not given back again.
        assert_eq!(uses(&fixture.explain(&charges).await.gauges), [0, 0]);
    }

    /// A record takes 64 charges; the hold stays as it is then.
    pub async fn a_reservation_is_extended_so_often(fixture: Fixture) {
        let charges = [requests(10), tokens(1_000, 0)];
        fixture.reserve(&request(1, &charges)).await;
        for more in 1..=62 {
            assert_eq!(fixture.extend(extension(1, 20 + more)).await, held(20 + more));
        }
        assert_eq!(fixture.extend(extension(1, 83)).await, Extended::Refused);
        assert_eq!(fixture.used(&charges[1]).await, 92);
        assert_eq!(fixture.settle(settlement(1, used(500))).await, Settled::Replaced);
        assert_eq!(fixture.used(&charges[1]).await, 500);
    }

    pub async fn nothing_is_open(fixture: Fixture) {
        let charges = [tokens(100, 0)];
        let before = fixture.dump();
        assert_eq!(fixture.extend(extension(1, 50)).await, Extended::Unknown);
        assert_eq!(fixture.dump(), before);
        fixture.settle(settlement(2, UNSENT)).await;
        fixture.reserve(&request(3, &charges)).await;
        fixture.settle(settlement(3, Closing::Held)).await;
        let before = fixture.dump();
        let batch = [extension(2, 50), extension(3, 50), extension(1, 50)];
        assert_eq!(fixture.store.extend(&batch, TIME).await, [const { Ok(Extended::Unknown) }; 3]);
        assert!(fixture.store.extend(&[], TIME).await.is_empty());
        assert_eq!(fixture.dump(), before);
    }

    pub async fn leases_are_renewed(fixture: Fixture) {
        let slots = Algorithm::Concurrency { lease_ms: MINUTE };
        let charges = [requests(1).named("slots").algorithm(slots), tokens(1_000, 0)];
        assert_eq!(fixture.verdict(&request(1, &charges)).await, HELD);
        assert_eq!(fixture.verdict(&request(2, &charges)).await, Verdict::Refused);
        fixture.clock.set(T0 + 50_000);
        assert_eq!(fixture.extend(lease(1)).await, held(20));
        fixture.clock.set(T0 + 100_000);
        assert_eq!(fixture.verdict(&request(2, &charges)).await, Verdict::Refused);
        // Lapsed, the slot is somebody else's, and nothing is extended.
        fixture.clock.set(T0 + 110_000);
        assert_eq!(fixture.verdict(&request(2, &charges)).await, HELD);
        let both = Extension { lease: true, ..extension(1, 50) };
        assert_eq!(fixture.extend(both.clone()).await, Extended::Refused);
        assert_eq!(uses(&fixture.explain(&charges).await.gauges), [1, 30]);
        fixture.settle(settlement(2, used(5))).await;
        assert_eq!(fixture.extend(both).await, held(50));
        assert_eq!(uses(&fixture.explain(&charges).await.gauges), [1, 35]);
        fixture.settle(settlement(1, Closing::Held)).await;
        assert_eq!(uses(&fixture.explain(&charges).await.gauges), [0, 35]);
    }

    pub async fn shadows_follow_where_they_can(fixture: Fixture) {
        let charges = [tokens(1_000, 0), tokens(50, 0).named("shadow").shadow()];
        fixture.reserve(&request(1, &charges)).await;
        assert_eq!(fixture.extend(extension(1, 40)).await, held(40));
        assert_eq!(uses(&fixture.explain(&charges).await.gauges), [50, 50]);
        assert_eq!(fixture.extend(extension(1, 60)).await, held(60));
        assert_eq!(uses(&fixture.explain(&charges).await.gauges), [70, 50]);
        fixture.settle(settlement(1, used(45))).await;
        assert_eq!(uses(&fixture.explain(&charges).await.gauges), [45, 45]);
    }

    pub async fn held_and_released_after_an_extension(fixture: Fixture) {
        let charges = [requests(10), tokens(1_000, 0)];
        for (number, closing, uses_then) in
            [(1, Closing::Held, [1, 60]), (2, RELEASED, [2, 60]), (3, UNSENT, [2, 60])]
        {
            fixture.reserve(&request(number, &charges)).await;
            fixture.extend(extension(number, 50)).await;
            assert_eq!(fixture.settle(settlement(number, closing)).await, Settled::Replaced);
            assert_eq!(uses(&fixture.explain(&charges).await.gauges), uses_then, "{closing:?}");
        }
    }
}
