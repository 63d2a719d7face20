//! Answers that are lost, or come from a server that cannot do its work at the moment.

use std::sync::Arc;

use super::proxy::Proxy;
use super::*;
use crate::clock::ManualClock;
use crate::limits::Algorithm;
use crate::store::redis::RedisStore;
use crate::store::{Extended, Hold, Lifetimes, Settled, Store, StoreError, TopUp, ToppedUp, Verdict};

/// A store behind a proxy, and one that looks at the same server directly.
async fn behind_a_proxy() -> (Proxy, RedisStore, Fixture) {
    let fixture = Fixture::redis().await;
    let server = fixture.server.clone().unwrap();
    let (proxy, url) = Proxy::before(&server.url).await;
    let clock = Arc::new(ManualClock::new(T0));
    let store = RedisStore::connect_with_given_time(&url, "t", clock, Lifetimes::default()).await.unwrap();
    (proxy, store, fixture)
}

fn charges() -> Vec<Amount> {
    vec![
        requests(100),
        tokens(1_000, 0),
        tokens(1_000, 0)
            .named("s")
            .algorithm(Algorithm::SlidingWindow { sub_window_ms: 1_000, sub_windows: 60 }),
        tokens(1_000, 0).named("t").algorithm(Algorithm::TokenBucket { num: 1, den: 100 }),
        tokens(0, 0).named("b").algorithm(Algorithm::Balance),
        requests(10).named("n").algorithm(Algorithm::Concurrency { lease_ms: MINUTE }),
    ]
}

fn request(number: u64) -> Hold {
    Hold { prompt_tokens: 10, output_tokens: 20, ..hold(number, &charges()) }
}

/// Each answer is lost after the work was done; the repeat gets the same one and nothing is done twice.
#[tokio::test]
async fn what_was_done_is_not_done_again() {
    let (proxy, store, fixture) = behind_a_proxy().await;
    let top_up =
        TopUp { account: account(), bucket: bucket("b"), grant_id: "first".to_owned(), amount: 1_000 };
    // The scripts are known to the server from here on.
    store.top_up(&top_up, TIME).await.unwrap();
    store.reserve(&request(1), TIME).await.unwrap();
    store.extend(&[extension(1, 25)], TIME).await.remove(0).unwrap();
    store.settle(&[settlement(1, UNSENT)], TIME).await.remove(0).unwrap();

    proxy.drop_next_answer();
    let lost = store.reserve(&request(2), TIME).await.unwrap_err();
    assert!(lost.indeterminate() && matches!(lost, StoreError::Unreachable(_)), "{lost}");
    let again = Hold { attempt: 2, ..request(2) };
    eventually("the repeat", || async {
        let verdict = store.reserve(&again, TIME).await.map(|reserved| reserved.verdict);
        verdict.is_ok_and(|verdict| {
            assert_eq!(verdict, REPLAYED);
            true
        })
    })
    .await;
    assert_eq!(uses(&fixture.explain(&charges()).await.gauges), [1, 30, 30, 30, 30, 1]);

    // The read goes through, the answer of the script does not.
    let extend = [extension(2, 50)];
    let mut lost = 0;
    while lost < 2 {
        proxy.drop_next_answer();
        lost += usize::from(store.extend(&extend, TIME).await[0].is_err());
    }
    eventually("the extension", || async {
        store.extend(&extend, TIME).await == [Ok(Extended::Held { output_tokens: 50 })]
    })
    .await;
    assert_eq!(uses(&fixture.explain(&charges()).await.gauges), [1, 60, 60, 60, 60, 1]);

    let other = TopUp { grant_id: "second".to_owned(), ..top_up };
    proxy.drop_next_answer();
    assert!(store.top_up(&other, TIME).await.is_err());
    eventually("the top-up", || async {
        matches!(store.top_up(&other, TIME).await, Ok(ToppedUp::Already(account)) if account.granted == 2_000)
    })
    .await;

    let settle = [settlement(2, used(5))];
    proxy.drop_next_answer();
    assert!(store.settle(&settle, TIME).await[0].is_err());
    eventually("the settle", || async {
        matches!(store.settle(&settle, TIME).await[..], [Ok(Settled::Replaced | Settled::Already)])
    })
    .await;
    assert_eq!(store.settle(&settle, TIME).await, [Ok(Settled::Already)]);
    assert_eq!(uses(&fixture.explain(&charges()).await.gauges), [1, 5, 5, 5, 5, 0]);
    assert!(proxy.dropped() >= 4);
}

/// The answer of the settle's script itself is lost, not that of its read.
#[tokio::test]
async fn a_settle_whose_script_was_run() {
    let (proxy, store, fixture) = behind_a_proxy().await;
    let charge = [tokens(100, 50)];
    store.reserve(&hold(1, &charge), TIME).await.unwrap();
    store.settle(&[settlement(9, UNSENT)], TIME).await.remove(0).unwrap();
    // Drops answers until one was that of the script.
    while fixture.used(&charge[0]).await == 50 {
        proxy.drop_next_answer();
        let _ = store.settle(&[settlement(1, used(7))], TIME).await;
    }
    assert_eq!(fixture.used(&charge[0]).await, 7);
    eventually("the repeat", || async {
        store.settle(&[settlement(1, used(7))], TIME).await == [Ok(Settled::Already)]
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

/// A server that cannot write: an error that names the cause, and nothing changed.
#[tokio::test]
async fn a_server_that_refuses_to_write() {
    let fixture = Fixture::redis().await;
    let server = fixture.server.clone().unwrap();
    let charge = [tokens(100, 10)];
    fixture.reserve(&hold(1, &charge)).await;
    fixture.settle(settlement(9, UNSENT)).await;
    let config = |name: &str, value: &str| server.command::<()>(&["CONFIG", "SET", name, value]);
    let refuses = async |code: &str| {
        let before = server.dump();
        let refused = [
            fixture.store.reserve(&hold(2, &charge), TIME).await.map(|_| ()),
            fixture.store.settle(&[settlement(1, used(3))], TIME).await.remove(0).map(|_| ()),
            fixture.store.extend(&[extension(1, 5)], TIME).await.remove(0).map(|_| ()),
        ];
        for answer in refused {
            let error = answer.unwrap_err();
            assert!(matches!(&error, StoreError::Refused(reason) if reason.contains(code)), "{error}");
        }
        assert_eq!(server.dump(), before, "{code}");
    };
    config("min-replicas-to-write", "1");
    refuses("NOREPLICAS").await;
    config("min-replicas-to-write", "0");
    server.command::<()>(&["REPLICAOF", "127.0.0.1", "1"]);
    config("replica-serve-stale-data", "yes");
    refuses("READONLY").await;
    server.command::<()>(&["REPLICAOF", "NO", "ONE"]);
    // A snapshot that failed.
    config("save", "3600 1");
    server.lose_directory();
    let _: String = server.command(&["BGSAVE"]);
    eventually("the snapshot", || async {
        server.command::<String>(&["INFO", "persistence"]).contains("rdb_last_bgsave_status:err")
    })
    .await;
    refuses("MISCONF").await;
    config("save", "");
    assert_eq!(fixture.verdict(&hold(2, &charge)).await, HELD);
    assert_eq!(fixture.settle(settlement(1, used(3))).await, Settled::Replaced);
}

#[tokio::test]
async fn a_user_without_the_right_commands() {
    let fixture = Fixture::redis().await;
    let server = fixture.server.clone().unwrap();
    server.command::<()>(&["ACL", "SETUSER", "svc", "on", ">hunter2", "~t:*", "+@all"]);
    let url = server.url.replace("redis://", "redis://svc:hunter2@");
    let clock = Arc::new(ManualClock::new(T0));
    let store = RedisStore::connect_with_given_time(&url, "t", clock, Lifetimes::default()).await.unwrap();
    let charge = [tokens(100, 10)];
    store.reserve(&hold(1, &charge), TIME).await.unwrap();
    let before = server.dump();
    for rule in ["-evalsha", "-@all"] {
        server.command::<()>(&["ACL", "SETUSER", "svc", rule]);
        let error = store.reserve(&hold(2, &charge), TIME).await.unwrap_err();
        assert!(error.indeterminate() && !error.to_string().contains("hunter2"), "{error}");
        assert!(matches!(&error, StoreError::Refused(reason) if reason.contains("NOPERM")), "{error}");
        assert!(store.settle(&[settlement(1, used(3))], TIME).await[0].is_err());
        assert_eq!(server.dump(), before, "{rule}");
    }
    server.command::<()>(&["ACL", "SETUSER", "svc", "+@all"]);
    assert_eq!(store.settle(&[settlement(1, used(3))], TIME).await, [Ok(Settled::Replaced)]);
    // One command that is missing is found at the start: it would stop a script half way.
    let before = server.dump();
    for command in ["set", "zrem", "pexpire", "hset", "zcount", "evalsha"] {
        server.command::<()>(&["ACL", "SETUSER", "svc", "+@all", &format!("-{command}")]);
        let clock = Arc::new(ManualClock::new(T0));
        let opened = RedisStore::connect_with_given_time(&url, "t", clock, Lifetimes::default()).await;
        let message = opened.err().unwrap().to_string();
        assert!(message.contains("cannot be used") && !message.contains("hunter2"), "{message}");
        assert!(message.contains("this command") || message.contains("NOPERM"), "{message}");
    }
    // Nothing is left but the key that was tried, and that ends.
    eventually("the end of the key", || async { server.dump() == before }).await;
}

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
    let charges = charges();
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
                let answers = fixture.store.settle(&batch, TIME).await;
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

/// State of another kind, cut off, or of a format to come, under every algorithm: an error, nothing written.
#[tokio::test]
async fn unreadable_buckets_of_every_kind() {
    let fixture = Fixture::redis().await;
    let server = fixture.server.clone().unwrap();
    let calendar =
        Algorithm::CalendarWindow { boundaries_ms: [T0 - MINUTE, T0, T0 + MINUTE, T0 + 2 * MINUTE] };
    let mut all = charges();
    all.push(tokens(100, 0).named("c").algorithm(calendar));
    for (number, charge) in all.iter().enumerate() {
        let number = number as u64 * 10;
        let charge = [requests(50).named("whole"), Amount { tokens: 5, ..*charge }];
        if charge[1].charge.meter.algorithm == Algorithm::Balance {
            let top_up =
                TopUp { account: account(), bucket: bucket("b"), grant_id: "g".to_owned(), amount: 500 };
            fixture.store.top_up(&top_up, TIME).await.unwrap();
        }
        assert_eq!(fixture.verdict(&hold(number, &charge)).await, HELD);
        let bucket = charge[1].charge.meter.bucket;
        let key = format!("t:{{{}}}:b:{}:{}", account(), bucket.limit, bucket.subject);
        let kind: String = server.command(&["TYPE", &key]);
        let mut connection = server.connection();
        let whole: Vec<u8> = match kind.as_str() {
            "string" => redis::cmd("GET").arg(&key).query(&mut connection).unwrap(),
            _ => b"F\x01".to_vec(),
        };
        let mut spoilt = vec![whole[..whole.len() - 1].to_vec(), Vec::new(), b"?".to_vec()];
        if kind == "string" {
            spoilt.push([&whole[..1], b"\x02", &whole[2..]].concat());
            // Not a number.
            spoilt.push([&whole[..2], &[0xff; 8], &whole[10..]].concat());
        }
        for value in spoilt {
            let () = redis::cmd("SET").arg(&key).arg(&value).query(&mut connection).unwrap();
            let before = server.dump();
            assert!(fixture.store.reserve(&hold(number + 1, &charge), TIME).await.is_err(), "{value:?}");
            let settled = fixture.store.settle(&[settlement(number, UNSENT)], TIME).await;
            assert!(settled[0].is_err(), "{value:?}");
            assert_eq!(server.dump(), before);
        }
        server.command::<()>(&["DEL", &key]);
        assert_eq!(fixture.settle(settlement(number, UNSENT)).await, Settled::Replaced);
    }
}
