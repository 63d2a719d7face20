use std::time::{Duration, Instant};

use super::*;
use crate::limits::Algorithm;
use crate::release_queue::ReleaseQueue;
use crate::store::{Settled, Settlement, StoreError, Verdict};

const SLOTS: Algorithm = Algorithm::Concurrency { lease_ms: MINUTE };

/// Polls until it is so; a fault after 20 s.
pub async fn eventually<F: Future<Output = bool>>(what: &str, mut so: impl FnMut() -> F) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !so().await {
        assert!(Instant::now() < deadline, "{what}: not within 20 s");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn scripts_survive_a_flush() {
    let fixture = Fixture::redis().await;
    let server = fixture.server.clone().unwrap();
    let charges = [tokens(100, 10)];
    for number in 0..5 {
        server.command::<()>(&["SCRIPT", "FLUSH"]);
        assert_eq!(fixture.verdict(&hold(number, &charges)).await, HELD);
        server.command::<()>(&["SCRIPT", "FLUSH"]);
        let batch = [settlement(number, used(1)), settlement(number + 100, UNSENT)];
        let answers = fixture.settle_all(&batch).await;
        assert_eq!(answers, [Ok(Settled::Replaced), Ok(Settled::Unknown)]);
        server.command::<()>(&["SCRIPT", "FLUSH"]);
        assert_eq!(fixture.used(&charges[0]).await, number + 1);
    }
}

/// The server does not answer: the reserve ends at its deadline. It runs the script when it wakes up; the
/// release that was queued closes what nobody uses.
#[tokio::test]
async fn a_stopped_server() {
    let fixture = Fixture::redis().await;
    let server = fixture.server.clone().unwrap();
    let charges = [requests(10), tokens(100, 10)];
    fixture.reserve(&hold(1, &charges)).await;
    let releases = ReleaseQueue::default();
    let sender = tokio::spawn(releases.clone().run(fixture.store.clone()));

    server.signal("STOP");
    let start = Instant::now();
    let answer = fixture.store.reserve(&hold(2, &charges), Duration::from_millis(80)).await;
    assert_eq!(answer, Err(StoreError::Timeout));
    assert!(StoreError::Timeout.indeterminate());
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    releases.push(Settlement { attempt: Some(1), ..settlement(2, UNSENT) });
    let settle =
        fixture.store.settle(&[settlement(1, used(1))], &|_, _| None, Duration::from_millis(80)).await;
    assert_eq!(settle, [Err(StoreError::Timeout)]);

    server.signal("CONT");
    eventually("the release", || async { releases.is_empty() && fixture.open_holds().await <= 1 }).await;
    assert_eq!(fixture.verdict(&hold(2, &charges)).await, Verdict::Gone);
    // The settle that had no answer may have been carried out; its repeat makes sure.
    fixture.settle(settlement(1, used(1))).await;
    let state = fixture.explain(&charges).await;
    assert_eq!(uses(&state.gauges), [1, 1]);
    assert_eq!(state.open_holds, 0);
    sender.abort();
}

#[tokio::test]
async fn a_full_server_refuses_whole_and_settles() {
    let fixture = Fixture::redis().await;
    let server = fixture.server.clone().unwrap();
    let charges = [requests(10), tokens(100, 10)];
    fixture.reserve(&hold(1, &charges)).await;
    server.command::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    let before = server.dump();
    let refused = fixture.store.reserve(&hold(2, &charges), TIME).await;
    assert!(matches!(&refused, Err(StoreError::Refused(reason)) if reason.contains("OOM")), "{refused:?}");
    let refused = fixture.store.extend(&[extension(1, 5)], TIME).await.remove(0);
    assert!(matches!(&refused, Err(StoreError::Refused(reason)) if reason.contains("OOM")), "{refused:?}");
    assert_eq!(server.dump(), before);
    assert_eq!(fixture.settle(settlement(1, used(3))).await, Settled::Replaced);
    assert_eq!(fixture.used(&charges[1]).await, 3);
}

/// What was used without a hold is charged, a close that comes first is remembered, a correction is carried out, and
/// the usage events are kept.
#[tokio::test]
async fn a_full_server_books_what_was_used() {
    use crate::store::{Amended, Amendment, Change, Correction};
    use crate::tag::Tag;

    let fixture = Fixture::redis().await;
    let server = fixture.server.clone().unwrap();
    let charges = [requests(10), tokens(100, 10)];
    server.command::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    let refused = fixture.store.reserve(&hold(9, &charges), TIME).await;
    assert!(matches!(&refused, Err(StoreError::Refused(reason)) if reason.contains("OOM")), "{refused:?}");
    let tell: crate::store::TellSettled<'_> = &|_, _| Some("event".to_owned());
    let batch = [booking(1, &charges, 7), settlement(2, UNSENT)];
    let closed = fixture.store.settle(&batch, tell, TIME).await;
    let settled: Vec<_> = closed.into_iter().map(|closed| closed.unwrap().settled).collect();
    assert_eq!(settled, [Settled::Booked, Settled::Unknown]);
    assert_eq!(uses(&fixture.explain(&charges).await.gauges), [1, 7]);
    // After a close that came first, and once.
    for expected in [Settled::Booked, Settled::Already] {
        assert_eq!(fixture.settle(booking(2, &charges, 5)).await, expected);
    }
    assert_eq!(fixture.settle(booking(1, &charges, 7)).await, Settled::Already);
    assert_eq!(uses(&fixture.explain(&charges).await.gauges), [2, 12]);
    let kept: u64 = server.command(&["HLEN", &format!("t:{{{}}}:e", account())]);
    assert_eq!(kept, 2);
    let correction = Correction { meter: charges[1].charge.meter, change: Change::GiveBack { amount: 2 } };
    let amendment = Amendment { account: account(), id: Tag::of("correction", [Some("1")]), correction };
    assert_eq!(fixture.store.amend(&amendment, TIME).await, Ok(Amended::Done));
    assert_eq!(fixture.used(&charges[1]).await, 10);
    assert_eq!(fixture.verdict(&hold(1, &charges)).await, Verdict::Gone);
}

/// Each key of each script in turn holds something else: an error or a part that is passed over, and nothing is half
/// done.
#[tokio::test]
async fn keys_of_another_type_stop_a_script_before_it_writes() {
    let fixture = Fixture::redis().await;
    let server = fixture.server.clone().unwrap();
    let charges = [requests(100), tokens(1_000, 10), requests(9).named("n").algorithm(SLOTS)];
    assert_eq!(fixture.verdict(&hold(1, &charges)).await, HELD);
    let home = format!("t:{{{}}}", account());
    let (open, record) = (format!("{home}:o"), format!("{home}:r:{}", id(1)));
    let other = format!("{home}:r:{}", id(2));
    let last = format!("{home}:b:{}:{}", bucket("n").limit, bucket("n").subject);
    let first = format!("{home}:b:{}:{}", bucket("requests").limit, bucket("requests").subject);
    // Key, and whether reserve, extend and settle of the others fail by it.
    for (key, reserves, extends, settles) in [
        (&open, false, false, true),
        (&other, false, true, true),
        (&record, true, false, false),
        (&first, false, true, true),
        (&last, false, false, true),
    ] {
        server.command::<u64>(&["COPY", key, "aside"]);
        server.command::<()>(&["DEL", key]);
        server.command::<()>(&["HSET", key, "something", "else"]);
        let before = server.dump();
        let reserved = fixture.store.reserve(&hold(2, &charges), TIME).await;
        assert_eq!(reserved.is_ok(), reserves, "{key}: {reserved:?}");
        if reserves {
            fixture.settle(settlement(2, UNSENT)).await;
        } else {
            assert_eq!(server.dump(), before, "{key}");
        }
        let before = server.dump();
        let both = crate::store::Extension { lease: true, ..extension(1, 5) };
        let extended = fixture.store.extend(&[both], TIME).await.remove(0);
        assert_eq!(extended.is_ok(), extends, "{key}: {extended:?}");
        if !extends {
            assert_eq!(server.dump(), before, "{key}");
        }
        let closed = fixture.store.settle(&[settlement(1, UNSENT)], &|_, _| None, TIME).await.remove(0);
        assert_eq!(closed.is_ok(), settles, "{key}: {closed:?}");
        server.command::<()>(&["DEL", key]);
        if server.command::<u64>(&["EXISTS", "aside"]) == 1 {
            server.command::<()>(&["RENAME", "aside", key]);
        }
        // All of it is given back but what could not be read.
        if settles {
            assert_eq!(fixture.used(&charges[1]).await, 0, "{key}");
        }
        server.command::<()>(&["FLUSHALL"]);
        assert_eq!(fixture.verdict(&hold(1, &charges)).await, HELD);
    }
}

#[tokio::test]
async fn unreadable_state_is_left_alone() {
    let fixture = Fixture::redis().await;
    let server = fixture.server.clone().unwrap();
    let charges = [tokens(100, 10)];
    fixture.reserve(&hold(1, &charges)).await;
    let key = |part: &str| server.command::<Vec<String>>(&["KEYS", &format!("*{part}*")]).remove(0);
    let (bucket, record) = (key(":b:"), key(":r:"));
    for spoil in [
        ["SET", &bucket, "F\u{2}0123456789abcdef"].as_slice(),
        &["SET", &bucket, ""],
        &["ZADD", &bucket, "1", "x"],
    ] {
        server.command::<()>(&["DEL", &bucket]);
        server.command::<()>(spoil);
        let before = server.dump();
        assert_eq!(fixture.store.reserve(&hold(2, &charges), TIME).await, Err(StoreError::Format));
        assert_eq!(fixture.settle_all(&[settlement(1, used(1))]).await, [Err(StoreError::Format)]);
        assert_eq!(server.dump(), before);
    }
    server.command::<()>(&["DEL", &bucket]);
    for value in ["R\u{3}", "R\u{2}", "R\u{1}", "Q", ""] {
        server.command::<()>(&["SET", &record, value]);
        let before = server.dump();
        assert_eq!(fixture.store.reserve(&hold(1, &charges), TIME).await, Err(StoreError::Format), "{value}");
        let settled = fixture.settle_all(&[settlement(1, used(1))]).await;
        assert_eq!(settled, [Err(StoreError::Format)], "{value}");
        assert_eq!(server.dump(), before);
    }
}

/// Releases that fail for a bucket which cannot be read wait behind the others, however many they are.
#[tokio::test]
async fn unreadable_state_holds_up_no_other_release() {
    let fixture = Fixture::redis().await;
    let server = fixture.server.clone().unwrap();
    let bad = [tokens(100_000, 10).named("bad")];
    for number in 0..300 {
        assert_eq!(fixture.verdict(&hold(number, &bad)).await, HELD);
    }
    let key = server.command::<Vec<String>>(&["KEYS", "*:b:*"]).remove(0);
    server.command::<()>(&["SET", &key, "something else"]);
    assert_eq!(fixture.verdict(&hold(300, &[tokens(100, 10)])).await, HELD);
    let releases = ReleaseQueue::default();
    for number in 0..=300 {
        releases.push(settlement(number, UNSENT));
    }
    let sender = tokio::spawn(releases.clone().run(fixture.store.clone()));
    eventually("the release", || async { fixture.used(&tokens(100, 0)).await == 0 }).await;
    assert_eq!((fixture.open_holds().await, releases.is_empty()), (300, false));
    server.command::<()>(&["DEL", &key]);
    eventually("the others", || async { releases.is_empty() }).await;
    assert_eq!(fixture.open_holds().await, 0);
    sender.abort();
}

/// Production decides by the server's clock, and not at all when the machine's is far from it.
#[tokio::test]
async fn the_servers_clock_decides() {
    use std::sync::Arc;

    use crate::clock::{Clock, ManualClock, SystemClock};
    use crate::store::redis::RedisStore;
    use crate::store::{Extended, Extension, Lifetimes, Store, TopUp};

    let server = redis_server::RedisServer::start();
    let clock = Arc::new(ManualClock::new(SystemClock.now_ms()));
    let store = RedisStore::connect(&server.url, "t", clock.clone(), Lifetimes::default()).await.unwrap();
    let held = store.reserve(&hold(1, &[tokens(100, 10)]), TIME).await.unwrap();
    assert!(held.now_ms.abs_diff(SystemClock.now_ms()) < 20_000);
    let top_up = TopUp { account: account(), bucket: bucket("b"), grant_id: "g".to_owned(), amount: 500 };
    store.top_up(&top_up, TIME).await.unwrap();
    let day = SystemClock.now_ms() / 86_400_000;
    let boundaries_ms = [0, 1, 2, 3].map(|later| (day - 1 + later) * 86_400_000);
    let calendar = Algorithm::CalendarWindow { boundaries_ms };
    let mut charges = one_of_each();
    charges.push(tokens(1_000, 10).named("c").algorithm(calendar));
    assert_eq!(store.reserve(&hold(3, &charges), TIME).await.unwrap().verdict, HELD);
    let both = Extension { lease: true, ..extension(3, 5) };
    assert_eq!(store.extend(&[both], TIME).await, [Ok(Extended::Held { output_tokens: 5 })]);
    assert_eq!(settle_all(&store, &[settlement(3, used(1))]).await, [Ok(Settled::Replaced)]);
    clock.set(SystemClock.now_ms() + 60_000);
    let before = server.dump();
    assert_eq!(store.reserve(&hold(2, &[tokens(100, 10)]), TIME).await, Err(StoreError::Clock));
    assert_eq!(settle_all(&store, &[settlement(1, used(1))]).await, [Err(StoreError::Clock)]);
    assert_eq!(server.dump(), before);
}

#[tokio::test]
async fn a_server_that_is_not_there() {
    use std::sync::Arc;

    use crate::clock::SystemClock;
    use crate::store::Lifetimes;
    use crate::store::redis::RedisStore;

    let refused = |url, says| async move {
        let opened = RedisStore::connect(url, "t", Arc::new(SystemClock), Lifetimes::default()).await;
        let message = opened.err().unwrap().to_string();
        assert!(message.contains(says) && !message.contains("hunter2"), "{message}");
        assert!(!message.contains('\n'));
    };
    // Each waits for as long as a start does.
    tokio::join!(
        refused("redis://:hunter2@127.0.0.1:1", "127.0.0.1:1"),
        refused("http://hunter2", "URL cannot be read"),
        refused("", "URL cannot be read"),
        refused("rediss://:hunter2@127.0.0.1:1", "127.0.0.1:1"),
    );
}
