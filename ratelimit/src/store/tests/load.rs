//! Many calls at once while something goes wrong.

use std::sync::Arc;

use super::*;
use crate::store::{Hold, Settled, TopUp, Verdict};

/// A stopped server under load: when it goes on, what was answered is charged, and the rest is released.
#[tokio::test]
async fn a_stopped_server_under_load() {
    use std::time::Duration;

    use crate::release_queue::ReleaseQueue;
    use crate::store::Settlement;

    let fixture = Fixture::redis().await;
    let server = fixture.server.clone().unwrap();
    let charge = [requests(100_000), tokens(1_000_000, 10)];
    let releases = ReleaseQueue::default();
    let sender = tokio::spawn(releases.clone().run(fixture.store.clone()));
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..400 {
        if number == 100 {
            server.signal("STOP");
        }
        let (store, releases) = (fixture.store.clone(), releases.clone());
        calls.spawn(async move {
            match store.reserve(&hold(number, &charge), Duration::from_millis(300)).await {
                Ok(reserved) => u64::from(reserved.verdict == HELD),
                Err(error) => {
                    assert!(error.indeterminate());
                    releases.push(Settlement { attempt: Some(1), ..settlement(number, UNSENT) });
                    0
                }
            }
        });
    }
    let held: u64 = calls.join_all().await.iter().sum();
    server.signal("CONT");
    eventually("the releases", || async {
        releases.is_empty() && uses(&fixture.explain(&charge).await.gauges) == [held, held * 10]
    })
    .await;
    assert_eq!(fixture.open_holds().await, held);
    sender.abort();
}

/// The scripts vanish again and again while many calls are under way.
#[tokio::test]
async fn flushes_in_the_middle_of_calls() {
    let fixture = Arc::new(Fixture::redis().await);
    let server = fixture.server.clone().unwrap();
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..300 {
        let fixture = Arc::clone(&fixture);
        calls.spawn(async move {
            let charge = [requests(1_000), tokens(100_000, 10)];
            assert_eq!(fixture.verdict(&hold(number, &charge)).await, HELD);
            assert_eq!(fixture.settle(settlement(number, used(3))).await, Settled::Replaced);
        });
        if number % 10 == 0 {
            server.command::<()>(&["SCRIPT", "FLUSH"]);
        }
    }
    calls.join_all().await;
    assert_eq!(uses(&fixture.explain(&[requests(0), tokens(0, 0)]).await.gauges), [300, 900]);
}

/// 10,000 settles of 200 reservations, in random order, from four clients: each counts once.
#[tokio::test]
async fn a_flood_of_duplicates() {
    use crate::limits::tests::Numbers;

    let fixture = Arc::new(Fixture::redis().await);
    let charges = one_of_each();
    let top_up = TopUp { account: account(), bucket: bucket("b"), grant_id: "g".to_owned(), amount: 1 << 40 };
    fixture.store.top_up(&top_up, TIME).await.unwrap();
    let wide: Vec<_> = charges
        .iter()
        .map(|amount| {
            let mut amount = *amount;
            amount.charge.meter.limit = 1_000_000;
            amount
        })
        .collect();
    for number in 0..200 {
        let hold = Hold { prompt_tokens: 10, output_tokens: 20, ..hold(number, &wide) };
        assert_eq!(fixture.verdict(&hold).await, HELD);
    }
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..4u64 {
        let fixture = Arc::clone(&fixture);
        clients.spawn(async move {
            let mut numbers = Numbers(client + 77);
            let mut replaced = 0;
            for _ in 0..50 {
                let batch: Vec<_> = (0..50)
                    .map(|_| {
                        let number = numbers.below(200);
                        settlement(number, used(number % 20))
                    })
                    .collect();
                let answers = fixture.settle_all(&batch).await;
                replaced += answers.iter().filter(|answer| **answer == Ok(Settled::Replaced)).count();
                assert!(
                    answers.iter().all(|answer| matches!(answer, Ok(Settled::Replaced | Settled::Already)))
                );
            }
            replaced
        });
    }
    let replaced: usize = clients.join_all().await.iter().sum();
    assert_eq!(replaced, 200);
    let sum: u64 = (0..200).map(|number| number % 20).sum();
    let state = fixture.explain(&wide).await;
    assert_eq!(uses(&state.gauges), [200, sum, sum, sum, sum, 0]);
    assert_eq!(state.open_holds, 0);
    assert_eq!(fixture.verdict(&hold(3, &wide)).await, Verdict::Gone);
}
