//! An instance whose clock is hours ahead or behind changes nothing of what the others hold.

use std::sync::Arc;
use std::time::Duration;

use super::redis_server::RedisServer;
use super::*;
use crate::clock::{Clock, ManualClock, SystemClock};
use crate::store::redis::RedisStore;
use crate::store::{Lifetimes, Settled, Store, StoreError, Sweep};
use crate::tag::Tag;

const HOURS: i64 = 2 * 3_600_000;

#[tokio::test]
async fn sweeps_nothing_and_keeps_nobody_from_it() {
    let server = RedisServer::start();
    let clock = Arc::new(ManualClock::new(SystemClock.now_ms()));
    let wrong = RedisStore::connect(&server.url, "t", clock.clone(), Lifetimes::default()).await.unwrap();
    let right =
        RedisStore::connect(&server.url, "t", Arc::new(SystemClock), Lifetimes::default()).await.unwrap();
    let charge = [tokens(1_000, 50)];
    for number in 1..=3 {
        right.reserve(&hold(number, &charge), TIME).await.unwrap();
    }
    let sweep = Sweep {
        cursor: None,
        alone_for: Duration::from_secs(60),
        kept_before_ms: u64::MAX,
        most_events: Some(100),
        tell: &|lapsed| Some(format!("lapsed {}", lapsed.hold.tokens)),
    };
    let before = server.dump();
    for ahead in [HOURS, -HOURS] {
        clock.set(SystemClock.now_ms().saturating_add_signed(ahead));
        assert_eq!(wrong.sweep(&sweep, TIME).await, Err(StoreError::Clock));
        // A later step of a sweep, when the clock was set in between.
        let step = Sweep { cursor: Some(0), ..sweep };
        assert_eq!(wrong.sweep(&step, TIME).await, Err(StoreError::Clock));
        assert_eq!(server.dump(), before);
    }
    let swept = right.sweep(&sweep, TIME).await.unwrap();
    assert_eq!((swept.lapsed.len(), swept.events.len(), swept.next), (0, 0, None));
    assert!(server.dump().contains("t:sweeper"));
    assert_eq!(settle_all(&right, &[settlement(1, used(7))]).await, [Ok(Settled::Replaced)]);
}

/// Not even what it does before it is refused: sweeps still look at the account.
#[tokio::test]
async fn hides_no_account_and_no_hold() {
    let server = RedisServer::start();
    let clock = Arc::new(ManualClock::new(SystemClock.now_ms()));
    let wrong = RedisStore::connect(&server.url, "t", clock.clone(), Lifetimes::default()).await.unwrap();
    let right =
        RedisStore::connect(&server.url, "t", Arc::new(SystemClock), Lifetimes::default()).await.unwrap();
    right.reserve(&hold(1, &[tokens(1_000, 50)]), TIME).await.unwrap();
    let announced = || server.command::<f64>(&["ZSCORE", "t:accounts", &account().to_string()]);
    let before = announced();
    clock.set(SystemClock.now_ms().saturating_add_signed(-240 * HOURS));
    assert_eq!(settle_all(&wrong, &[settlement(1, used(7))]).await, [Err(StoreError::Clock)]);
    assert_eq!(announced(), before);
    clock.set(SystemClock.now_ms().saturating_add_signed(HOURS));
    assert_eq!(wrong.open_holds(account(), 10, TIME).await, Err(StoreError::Clock));
    assert_eq!(right.open_holds(account(), 10, TIME).await.unwrap().total, 1);
}

#[tokio::test]
async fn forgets_no_note() {
    let server = RedisServer::start();
    let clock = Arc::new(ManualClock::new(SystemClock.now_ms()));
    let store = RedisStore::connect(&server.url, "t", clock.clone(), Lifetimes::default()).await.unwrap();
    let name = Tag::of("note", []);
    store.note(name, Some("text"), TIME).await.unwrap();
    clock.set(SystemClock.now_ms().saturating_add_signed(HOURS));
    assert_eq!(store.forget_note(name, "text", TIME).await, Ok(false));
    clock.set(SystemClock.now_ms());
    assert_eq!(store.forget_note(name, "text", TIME).await, Ok(true));
}
