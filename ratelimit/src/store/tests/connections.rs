//! Connections that break while nobody looks: whoever calls next does not notice.

use std::sync::Arc;

use super::proxy::Proxy;
use super::redis_server::RedisServer;
use super::*;
use crate::clock::{Clock, ManualClock, SystemClock};
use crate::limits::Algorithm;
use crate::store::redis::RedisStore;
use crate::store::{
    Amended, Amendment, Change, Correction, Extended, Lifetimes, Settled, Store, StoreError, Sweep, TopUp,
    ToppedUp,
};
use crate::tag::Tag;

async fn connected(url: &str) -> RedisStore {
    let clock = Arc::new(ManualClock::new(T0));
    RedisStore::connect_with_given_time(url, "t", clock, Lifetimes::default()).await.unwrap()
}

/// Every call of a store, each right behind a connection that was killed.
#[tokio::test]
async fn the_call_behind_a_killed_connection() {
    let server = RedisServer::start();
    let store = connected(&server.url).await;
    let charge = [tokens(100, 10)];
    server.kill_connections();
    assert_eq!(store.reserve(&hold(1, &charge), TIME).await.unwrap().verdict, HELD);
    server.kill_connections();
    assert_eq!(store.extend(&[extension(1, 5)], TIME).await, [Ok(Extended::Held { output_tokens: 5 })],);
    server.kill_connections();
    assert_eq!(
        store.explain(account(), model(), &[charge[0].charge.meter], TIME).await.unwrap().open_holds,
        1
    );
    server.kill_connections();
    assert_eq!(store.open_holds(account(), 9, TIME).await.unwrap().total, 1);
    server.kill_connections();
    assert_eq!(settle_all(&store, &[settlement(1, used(3))]).await, [Ok(Settled::Replaced)]);
    // The events and the records of a batch are read and written in one go.
    let batch = [settlement(1, used(3)), settlement(7, UNSENT)];
    server.kill_connections();
    assert_eq!(settle_all(&store, &batch).await, [Ok(Settled::Already), Ok(Settled::Unknown)]);
    server.kill_connections();
    let top_up = TopUp { account: account(), bucket: bucket("b"), grant_id: "g".to_owned(), amount: 5 };
    assert!(matches!(store.top_up(&top_up, TIME).await, Ok(ToppedUp::Done(_))));
    server.kill_connections();
    let correction = Correction { meter: charge[0].charge.meter, change: Change::Excess { amount: 2 } };
    let amendment = Amendment { account: account(), id: Tag::of("amend", []), correction };
    assert_eq!(store.amend(&amendment, TIME).await, Ok(Amended::Done));
    let note = Tag::of("note", []);
    server.kill_connections();
    assert_eq!(store.note(note, Some("text"), TIME).await, Ok(()));
    server.kill_connections();
    assert_eq!(store.notes(TIME).await, Ok(vec!["text".to_owned()]));
    server.kill_connections();
    assert_eq!(store.forget_note(note, "text", TIME).await, Ok(true));
    server.kill_connections();
    assert_eq!(store.delivered(&[(account(), id(1))], TIME).await, Ok(()));
    server.kill_connections();
    let sweep =
        Sweep { cursor: None, alone_for: MINUTE_TIME, kept_before_ms: 0, most_events: None, tell: &|_| None };
    assert!(store.sweep(&sweep, TIME).await.is_ok());
    server.kill_connections();
    assert_eq!(store.ping(TIME).await, Ok(()));
    server.kill_connections();
    assert_eq!(store.reset(account(), charge[0].charge.meter.bucket, TIME).await, Ok(true));
}

const MINUTE_TIME: std::time::Duration = std::time::Duration::from_secs(60);

/// Many calls under way when the connection breaks: each is answered once it is back, and is held once.
#[tokio::test]
async fn calls_under_way_when_the_connection_breaks() {
    let server = RedisServer::start();
    let (proxy, url) = Proxy::before(&server.url).await;
    let store = Arc::new(connected(&url).await);
    let charge = [tokens(1_000, 1)];
    store.reserve(&hold(0, &charge), TIME).await.unwrap();
    proxy.drop_next_answer();
    let calls = (1..=100).map(|number| {
        let (store, charge) = (store.clone(), charge);
        tokio::spawn(async move { store.reserve(&hold(number, &charge), TIME).await })
    });
    for call in calls.collect::<Vec<_>>() {
        assert!(matches!(call.await.unwrap().unwrap().verdict, HELD | REPLAYED));
    }
    assert_eq!(proxy.dropped(), 1);
    let explained = store.explain(account(), model(), &[charge[0].charge.meter], TIME).await.unwrap();
    assert_eq!((explained.gauges[0].used, explained.open_holds), (101, 101));
    // One connection at the start, and one for all of them.
    assert_eq!(proxy.accepted(), 2);
}

/// The server closes connections that nothing was asked on.
#[tokio::test]
async fn the_call_behind_a_connection_closed_for_being_idle() {
    let server = RedisServer::start();
    let store = connected(&server.url).await;
    server.command::<()>(&["CONFIG", "SET", "timeout", "1"]);
    let mut watching = server.connection();
    for number in 1..=2 {
        eventually("the server to close it", || {
            let clients: String = redis::cmd("CLIENT").arg("LIST").query(&mut watching).unwrap();
            std::future::ready(clients.lines().count() == 1)
        })
        .await;
        assert_eq!(store.reserve(&hold(number, &[tokens(100, 10)]), TIME).await.unwrap().verdict, HELD);
    }
}

/// The error of a connect that failed is not given to who calls when the server is back.
#[tokio::test]
async fn the_first_call_after_the_server_was_away() {
    let mut server = RedisServer::start();
    let store = connected(&server.url).await;
    server.stop();
    assert!(store.reserve(&hold(1, &[tokens(100, 10)]), TIME).await.unwrap_err().indeterminate());
    server.start_again(&[]);
    assert_eq!(store.reserve(&hold(2, &[tokens(100, 10)]), TIME).await.unwrap().verdict, HELD);
}

/// A handshake that was refused is tried again: the password may be right by now.
#[tokio::test]
async fn a_password_that_is_wrong_for_a_while() {
    let server = RedisServer::start();
    let rules = |password: &str| {
        server.command::<()>(&["ACL", "SETUSER", "svc", "on", "resetpass", password, "~t:*", "+@all"]);
    };
    rules(">hunter2");
    let store = connected(&server.url.replace("redis://", "redis://svc:hunter2@")).await;
    rules(">hunter3");
    server.kill_connections();
    for number in 1..=3 {
        let refused = store.reserve(&hold(number, &[tokens(100, 10)]), TIME).await.unwrap_err();
        assert!(refused.to_string().contains("refused the credentials"), "{refused}");
    }
    rules(">hunter2");
    assert_eq!(store.reserve(&hold(4, &[tokens(100, 10)]), TIME).await.unwrap().verdict, HELD);
}

/// A start waits for a server that is not there yet, longer than a few hurried tries take.
#[tokio::test]
async fn a_server_that_comes_up_during_the_start() {
    let server = RedisServer::start();
    let (proxy, url) = Proxy::before(&server.url).await;
    proxy.refuse(6);
    let start = std::time::Instant::now();
    let store = connected(&url).await;
    assert!(start.elapsed() > std::time::Duration::from_millis(300), "{:?}", start.elapsed());
    assert_eq!(proxy.accepted(), 7);
    assert_eq!(store.reserve(&hold(1, &[tokens(100, 10)]), TIME).await.unwrap().verdict, HELD);

    // It is there, and reads its disk.
    let (proxy, url) = Proxy::before(&server.url).await;
    proxy.answer_instead(&["-LOADING Redis is loading the dataset in memory\r\n"; 20]);
    connected(&url).await;
}

/// A start that is refused says within which time it had tried.
#[tokio::test]
async fn a_server_that_does_not_come_up() {
    let (proxy, url) = Proxy::before("127.0.0.1:1").await;
    let start = std::time::Instant::now();
    let opened = RedisStore::connect(&url, "t", Arc::new(SystemClock), Lifetimes::default()).await;
    let message = opened.err().unwrap().to_string();
    assert!(message.contains("cannot be used"), "{message}");
    assert!(start.elapsed() >= std::time::Duration::from_millis(2_900), "{:?}", start.elapsed());
    // It is tried for as long, and not as often as a machine can.
    assert!((6..=40).contains(&proxy.accepted()), "{}", proxy.accepted());
}

/// Ready is what a reserve needs; asking changes nothing, and a full server is still needed for settles.
#[tokio::test]
async fn ready_is_what_a_reserve_needs() {
    let server = RedisServer::start();
    server.command::<()>(&["ACL", "SETUSER", "svc", "on", ">hunter2", "~t:*", "+@all"]);
    let url = server.url.replace("redis://", "redis://svc:hunter2@");
    let clock = Arc::new(ManualClock::new(SystemClock.now_ms()));
    let store = RedisStore::connect(&url, "t", clock.clone(), Lifetimes::default()).await.unwrap();
    let charge = [tokens(100, 10).algorithm(Algorithm::FixedWindow { length_ms: 366 * 86_400_000 })];
    store.reserve(&hold(1, &charge), TIME).await.unwrap();
    let before = server.dump();
    let written = || -> String {
        let info: String = server.command(&["INFO", "persistence"]);
        info.lines().find(|line| line.starts_with("rdb_changes_since_last_save")).unwrap().to_owned()
    };
    let changes = written();
    assert_eq!(store.ping(TIME).await, Ok(()));
    assert_eq!((server.dump(), written()), (before, changes));

    for command in ["evalsha", "set", "get", "zadd", "zrem", "hdel", "pexpire", "unlink", "info"] {
        server.command::<()>(&["ACL", "SETUSER", "svc", &format!("-{command}")]);
        assert!(store.ping(TIME).await.is_err(), "{command}");
        server.command::<()>(&["ACL", "SETUSER", "svc", "+@all"]);
    }
    server.command::<()>(&["ACL", "SETUSER", "svc", "resetkeys", "~u:*"]);
    assert!(store.ping(TIME).await.is_err());
    server.command::<()>(&["ACL", "SETUSER", "svc", "~t:*"]);
    for ahead in [-60_000i64, 60_000] {
        clock.set(SystemClock.now_ms().saturating_add_signed(ahead));
        assert_eq!(store.ping(TIME).await, Err(StoreError::Clock));
    }
    clock.set(SystemClock.now_ms());
    server.command::<()>(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    assert!(matches!(store.ping(TIME).await, Err(StoreError::Refused(said)) if said.contains("NOREPLICAS")));
    server.command::<()>(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    server.command::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(store.ping(TIME).await, Ok(()));
}
