use std::sync::Arc;

use tokio::task::JoinSet;

use super::*;
use crate::store::{Settled, Verdict};

over_both_stores!(suite: exactly_as_many_as_fit, one_of_many_repeats);

pub mod suite {
    use super::*;

    pub async fn exactly_as_many_as_fit(fixture: Fixture) {
        let fixture = Arc::new(fixture);
        let mut calls = JoinSet::new();
        for number in 0..200 {
            let fixture = Arc::clone(&fixture);
            let charges = [requests(1_000), tokens(37 * 80 + 79, 80)];
            calls.spawn(async move { fixture.verdict(&hold(number, &charges)).await });
        }
        let verdicts = calls.join_all().await;
        assert_eq!(verdicts.iter().filter(|verdict| **verdict == HELD).count(), 37);
        assert_eq!(verdicts.iter().filter(|verdict| **verdict == Verdict::Refused).count(), 163);
        let state = fixture.explain(&[requests(0), tokens(0, 0)]).await;
        assert_eq!(uses(&state.gauges), [37, 37 * 80]);
        assert_eq!((state.open_holds, state.open_tokens), (37, 37 * 80));
    }

    /// Reserves, settles and releases of one id in any order: at most one hold, nothing after the close.
    pub async fn one_of_many_repeats(fixture: Fixture) {
        let fixture = Arc::new(fixture);
        let charges = [requests(1_000), tokens(1_000, 10)];
        fixture.reserve(&hold(1, &charges)).await;
        let mut calls = JoinSet::new();
        for number in 0..100 {
            let fixture = Arc::clone(&fixture);
            calls.spawn(async move {
                if number % 2 == 0 {
                    fixture.verdict(&hold(1, &charges)).await;
                    None
                } else {
                    Some(fixture.settle(settlement(1, used(3))).await)
                }
            });
        }
        let settled: Vec<_> = calls.join_all().await.into_iter().flatten().collect();
        assert_eq!(settled.iter().filter(|settled| **settled == Settled::Replaced).count(), 1);
        assert_eq!(settled.iter().filter(|settled| **settled == Settled::Already).count(), 49);
        let state = fixture.explain(&charges).await;
        assert_eq!(uses(&state.gauges), [1, 3]);
        assert_eq!(state.open_holds, 0);
    }
}
