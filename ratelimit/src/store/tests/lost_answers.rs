//! Answers that are lost, or come from a server that cannot do its work at the moment.

use std::sync::Arc;

use super::proxy::Proxy;
use super::*;
use crate::clock::ManualClock;
use crate::store::redis::RedisStore;
use crate::store::{Extended, Hold, Lifetimes, Settled, Store, StoreError, TopUp, ToppedUp};

/// A store behind a proxy, and one that looks at the same server directly.
async fn behind_a_proxy() -> (Proxy, RedisStore, Fixture) {
    let fixture = Fixture::redis().await;
    let server = fixture.server.clone().unwrap();
    let (proxy, url) = Proxy::before(&server.url).await;
    let clock = Arc::new(ManualClock::new(T0));
    let store = RedisStore::connect_with_given_time(&url, "t", clock, Lifetimes::default()).await.unwrap();
    (proxy, store, fixture)
}

fn request(number: u64) -> Hold {
    Hold { prompt_tokens: 10, output_tokens: 20, ..hold(number, &one_of_each()) }
}

/// One answer is lost after the work was done: it is asked for again, and nothing is done twice.
#[tokio::test]
async fn what_was_done_is_not_done_again() {
    let (proxy, store, fixture) = behind_a_proxy().await;
    let top_up =
        TopUp { account: account(), bucket: bucket("b"), grant_id: "first".to_owned(), amount: 1_000 };
    // The scripts are known to the server from here on.
    store.top_up(&top_up, TIME).await.unwrap();
    store.reserve(&request(1), TIME).await.unwrap();
    store.extend(&[extension(1, 25)], TIME).await.remove(0).unwrap();
    settle_all(&store, &[settlement(1, UNSENT)]).await.remove(0).unwrap();

    proxy.drop_next_answer();
    assert_eq!(store.reserve(&request(2), TIME).await.unwrap().verdict, REPLAYED);
    assert_eq!(uses(&fixture.explain(&one_of_each()).await.gauges), [1, 30, 30, 30, 30, 1]);

    // The read goes through, or is not needed; the answer of the script does not come.
    let extend = [extension(2, 50)];
    store.extend(&[extension(2, 20)], TIME).await.remove(0).unwrap();
    proxy.drop_next_answer();
    assert_eq!(store.extend(&extend, TIME).await, [Ok(Extended::Held { output_tokens: 50 })]);
    assert_eq!(store.extend(&extend, TIME).await, [Ok(Extended::Held { output_tokens: 50 })]);
    assert_eq!(uses(&fixture.explain(&one_of_each()).await.gauges), [1, 60, 60, 60, 60, 1]);

    let other = TopUp { grant_id: "second".to_owned(), ..top_up };
    proxy.drop_next_answer();
    let topped_up = store.top_up(&other, TIME).await;
    assert!(matches!(topped_up, Ok(ToppedUp::Already(account)) if account.granted == 2_000), "{topped_up:?}");

    let settle = [settlement(2, used(5))];
    proxy.drop_next_answer();
    assert!(settle_all(&store, &settle).await[0].is_ok());
    assert_eq!(settle_all(&store, &settle).await, [Ok(Settled::Already)]);
    assert_eq!(uses(&fixture.explain(&one_of_each()).await.gauges), [1, 5, 5, 5, 5, 0]);
    assert_eq!(proxy.dropped(), 4);
}

/// The repeat has no answer either: an error that leaves open what was done, and the caller's own repeat is right.
#[tokio::test]
async fn an_answer_that_is_lost_twice() {
    let (proxy, store, fixture) = behind_a_proxy().await;
    store.reserve(&hold(1, &one_of_each()[..1]), TIME).await.unwrap();
    let charge = [tokens(100, 10)];
    proxy.drop_answers(2);
    let lost = store.reserve(&hold(2, &charge), TIME).await.unwrap_err();
    assert!(lost.indeterminate() && matches!(lost, StoreError::Unreachable(_)), "{lost}");
    let again = Hold { attempt: 2, ..hold(2, &charge) };
    assert_eq!(store.reserve(&again, TIME).await.unwrap().verdict, REPLAYED);
    assert_eq!(fixture.used(&charge[0]).await, 10);
}

/// The answer of the settle's script itself is lost, not that of its read.
#[tokio::test]
async fn a_settle_whose_script_was_run() {
    let (proxy, store, fixture) = behind_a_proxy().await;
    let charge = [tokens(100, 50)];
    store.reserve(&hold(1, &charge), TIME).await.unwrap();
    settle_all(&store, &[settlement(9, UNSENT)]).await.remove(0).unwrap();
    // Drops answers until one was that of the script.
    while fixture.used(&charge[0]).await == 50 {
        proxy.drop_next_answer();
        let _ = settle_all(&store, &[settlement(1, used(7))]).await;
    }
    assert_eq!(fixture.used(&charge[0]).await, 7);
    eventually("the repeat", || async {
        settle_all(&store, &[settlement(1, used(7))]).await == [Ok(Settled::Already)]
    })
    .await;
}

/// What passes by itself is waited for, within the deadline.
#[tokio::test]
async fn a_server_that_is_loading_or_moving() {
    let (proxy, store, fixture) = behind_a_proxy().await;
    let charge = [tokens(100, 10)];
    store.reserve(&hold(1, &charge), TIME).await.unwrap();
    proxy.answer_instead(&[
        "-LOADING Redis is loading the dataset in memory\r\n",
        "-TRYAGAIN Multiple keys request during rehashing of slot\r\n",
        "-MASTERDOWN Link with MASTER is down\r\n",
    ]);
    assert_eq!(store.reserve(&hold(2, &charge), TIME).await.unwrap().verdict, HELD);
    assert_eq!(fixture.used(&charge[0]).await, 20);
}
