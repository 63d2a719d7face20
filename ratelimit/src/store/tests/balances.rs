//! Prepaid balances, resets and corrections.

use super::*;
use crate::limits::{Account, Algorithm, MAX_AMOUNT, Wait};
use crate::store::{Amended, Amendment, Change, Correction, Settled, TopUp, ToppedUp, Verdict};
use crate::tag::Tag;

over_both_stores!(suite: a_balance_is_topped_up_once_per_grant, a_balance_is_spent, a_bucket_is_reset, what_is_full_is_given_nothing);

fn top_up(grant_id: &str, amount: u64) -> TopUp {
    TopUp { account: account(), bucket: bucket("balance"), grant_id: grant_id.to_owned(), amount }
}

fn prepaid(tokens_held: u64) -> Amount {
    tokens(0, tokens_held).named("balance").algorithm(Algorithm::Balance)
}

mod suite {
    use super::*;

    pub async fn a_balance_is_topped_up_once_per_grant(fixture: Fixture) {
        let account = |granted| Account { granted, spent: 0 };
        let top_up = async |id: &str, amount| fixture.store.top_up(&top_up(id, amount), TIME).await.unwrap();
        assert_eq!(top_up("a", 100).await, ToppedUp::Done(account(100)));
        assert_eq!(top_up("a", 100).await, ToppedUp::Already(account(100)));
        let before = fixture.dump();
        assert_eq!(top_up("a", 101).await, ToppedUp::Conflict);
        assert_eq!(top_up("b", MAX_AMOUNT - 99).await, ToppedUp::TooMuch);
        assert_eq!(fixture.dump(), before);
        assert_eq!(top_up("b", MAX_AMOUNT - 100).await, ToppedUp::Done(account(MAX_AMOUNT)));
        // For good.
        fixture.clock.set(T0 + 1_000 * 86_400_000);
        assert_eq!(top_up("a", 100).await, ToppedUp::Already(account(MAX_AMOUNT)));
        assert_eq!(top_up("a\0{}\n", 0).await, ToppedUp::Done(account(MAX_AMOUNT)));
    }

    pub async fn a_balance_is_spent(fixture: Fixture) {
        let refused = fixture.reserve(&hold(1, &[prepaid(1)])).await;
        assert_eq!((refused.verdict, refused.limits[0].wait), (Verdict::Refused, Wait::Unknown));
        fixture.store.top_up(&top_up("a", 100), TIME).await.unwrap();
        assert_eq!(fixture.verdict(&hold(1, &[prepaid(70)])).await, HELD);
        assert_eq!(fixture.verdict(&hold(2, &[prepaid(31)])).await, Verdict::Refused);
        // A refund has no window to miss.
        fixture.clock.set(T0 + 60 * MINUTE);
        assert_eq!(fixture.settle(settlement(1, used(20))).await, Settled::Replaced);
        assert_eq!(fixture.verdict(&hold(3, &[prepaid(80)])).await, HELD);
        assert_eq!(fixture.settle(settlement(3, used(120))).await, Settled::Replaced);
        let gauge = fixture.explain(&[prepaid(0)]).await.gauges[0];
        assert_eq!((gauge.used, gauge.left(), gauge.granted()), (140, 0, 100));
        fixture.store.top_up(&top_up("b", 50), TIME).await.unwrap();
        assert_eq!(fixture.verdict(&hold(4, &[prepaid(11)])).await, Verdict::Refused);
        assert_eq!(fixture.verdict(&hold(5, &[prepaid(10)])).await, HELD);
        if let Some(server) = &fixture.server {
            let keys: Vec<String> = server.command(&["KEYS", "*:b:*"]);
            assert_eq!(server.command::<i64>(&["PTTL", &keys[0]]), -1);
        }
    }

    pub async fn a_bucket_is_reset(fixture: Fixture) {
        let slots = requests(1).named("slots").algorithm(Algorithm::Concurrency { lease_ms: MINUTE });
        let charges = [tokens(100, 100), slots];
        fixture.reserve(&hold(1, &charges)).await;
        for charge in &charges {
            let reset = async || fixture.store.reset(account(), charge.charge.meter.bucket, TIME).await;
            assert_eq!(reset().await, Ok(true));
            assert_eq!(reset().await, Ok(false));
        }
        assert_eq!(fixture.verdict(&hold(2, &charges)).await, HELD);
        assert_eq!(fixture.settle(settlement(2, used(5))).await, Settled::Replaced);
        assert_eq!(uses(&fixture.explain(&charges).await.gauges), [5, 0]);
    }

    /// Else the bucket would be stored as full, and a clock that goes back would find it so.
    pub async fn what_is_full_is_given_nothing(fixture: Fixture) {
        let charge = tokens(100, 1).named("t").algorithm(Algorithm::TokenBucket { num: 1, den: 100 });
        fixture.reserve(&hold(1, &[charge])).await;
        fixture.clock.set(T0 + 10_000);
        let correction = Correction { meter: charge.charge.meter, change: Change::GiveBack { amount: 5 } };
        let amendment = Amendment { account: account(), id: Tag::of("correction", []), correction };
        assert_eq!(fixture.store.amend(&amendment, TIME).await, Ok(Amended::Done));
        assert_eq!(fixture.used(&charge).await, 0);
        fixture.clock.set(T0 + 50);
        assert_eq!(fixture.used(&charge).await, 1);
    }
}
