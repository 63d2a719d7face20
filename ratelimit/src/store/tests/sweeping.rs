//! What nobody came back for: holds that lapse, and usage events that wait for another instance.

use std::sync::Arc;
use std::time::Duration;

use super::proxy::Proxy;
use super::*;
use crate::clock::ManualClock;
use crate::store::redis::RedisStore;
use crate::store::{
    Closed, Hold, KeptEvent, LapsedHold, Lifetimes, OpenHold, Settled, Settlement, Store, StoreError, Sweep,
    Swept,
};
use crate::tag::Tag;

const RECORD_MS: u64 = 70 * MINUTE;

fn lapsed_line(lapsed: &LapsedHold) -> Option<String> {
    Some(format!("lapsed {}", lapsed.hold.tokens))
}

/// One sweep from its beginning to its end; events kept before the time given are taken for left over.
async fn swept(store: &dyn Store, kept_before_ms: u64, most_events: Option<usize>) -> Swept {
    let mut all = Swept::default();
    let mut cursor = None;
    loop {
        let alone_for = Duration::from_millis(1);
        let sweep = Sweep { cursor, alone_for, kept_before_ms, most_events, tell: &lapsed_line };
        let step = store.sweep(&sweep, TIME).await.unwrap();
        all.lapsed.extend(step.lapsed);
        all.events.extend(step.events);
        cursor = step.next;
        if cursor.is_none() {
            return all;
        }
    }
}

/// Waits until the claim of the sweep before is over, which is real time of the server.
async fn swept_again(fixture: &Fixture, kept_before_ms: u64, most_events: Option<usize>) -> Swept {
    if let Some(server) = &fixture.server {
        server.command::<u64>(&["UNLINK", "t:sweeper"]);
    }
    swept(fixture.store.as_ref(), kept_before_ms, most_events).await
}

async fn settle_and_tell(store: &dyn Store, settlements: &[Settlement]) -> Vec<Closed> {
    let tell = |place: usize, closed: &Closed| Some(format!("{place} {:?}", closed.settled));
    store.settle(settlements, &tell, TIME).await.into_iter().map(Result::unwrap).collect()
}

fn kept(number: u64, line: &str) -> KeptEvent {
    KeptEvent { account: account(), id: id(number), line: line.to_owned() }
}

mod suite {
    use super::*;

    pub async fn a_hold_that_nobody_settles(fixture: Fixture) {
        let charge = [tokens(1_000, 50)];
        fixture.reserve(&Hold { prompt_tokens: 20, output_tokens: 30, ..hold(1, &charge) }).await;
        fixture.reserve(&hold(2, &charge)).await;
        fixture.settle(settlement(2, used(5))).await;
        fixture.clock.set(T0 + RECORD_MS - 1);
        assert_eq!(swept_again(&fixture, 0, Some(10)).await, Swept::default());
        fixture.clock.set(T0 + RECORD_MS + MINUTE);
        let found = swept_again(&fixture, 0, Some(10)).await;
        let hold = OpenHold { id: id(1), model: hold(1, &charge).model, tokens: 50, reserved_at_ms: T0 };
        assert_eq!(found.lapsed, [LapsedHold { account: account(), hold }]);
        assert_eq!(found.events, [kept(1, "lapsed 50")]);
        // Once, whoever looks.
        assert_eq!(swept_again(&fixture, 0, Some(10)).await, Swept::default());
        assert_eq!(fixture.open_holds().await, 0);
    }

    pub async fn lapsed_holds_are_not_lost_where_there_is_no_room(fixture: Fixture) {
        let charge = [tokens(1_000, 50)];
        for number in 1..=3 {
            fixture.reserve(&hold(number, &charge)).await;
        }
        fixture.clock.set(T0 + RECORD_MS + MINUTE);
        assert_eq!(swept_again(&fixture, 0, Some(0)).await, Swept::default());
        let found = swept_again(&fixture, 0, Some(10)).await;
        assert_eq!((found.lapsed.len(), found.events.len()), (3, 3));
    }

    pub async fn events_are_told_of_changes_only(fixture: Fixture) {
        let charge = [tokens(1_000, 50)];
        fixture.reserve(&hold(1, &charge)).await;
        let batch = [settlement(1, used(5)), settlement(1, used(5)), booking(3, &charge, 7)];
        let closed = settle_and_tell(fixture.store.as_ref(), &batch).await;
        let settled: Vec<_> = closed.iter().map(|closed| closed.settled).collect();
        assert_eq!(settled, [Settled::Replaced, Settled::Already, Settled::Booked]);
        assert_eq!(closed[0].event.as_deref(), Some("0 Replaced"));
        assert_eq!(closed[2].event.as_deref(), Some("2 Booked"));
    }
}

over_both_stores!(
    suite: a_hold_that_nobody_settles,
    lapsed_holds_are_not_lost_where_there_is_no_room,
    events_are_told_of_changes_only
);

/// An instance that is gone has settled, and delivered only one of its events. The other one finds the rest.
#[tokio::test]
async fn another_instance_delivers_what_is_left_over() {
    let fixture = Fixture::redis().await;
    let server = fixture.server.clone().unwrap();
    let charge = [tokens(1_000, 50)];
    for number in 1..=3 {
        fixture.reserve(&hold(number, &charge)).await;
    }
    let batch = [settlement(1, used(5)), settlement(2, used(6)), settlement(3, used(7))];
    settle_and_tell(fixture.store.as_ref(), &batch).await;
    fixture.store.delivered(&[(account(), id(2))], TIME).await.unwrap();

    let clock = Arc::new(ManualClock::new(T0 + MINUTE));
    let other =
        RedisStore::connect_with_given_time(&server.url, "t", clock, Lifetimes::default()).await.unwrap();
    // Not yet old enough.
    assert_eq!(swept(&other, T0, Some(10)).await, Swept::default());
    // While one sweeps, nobody else does.
    assert_eq!(server.command::<String>(&["SET", "t:sweeper", "1"]), "OK");
    assert_eq!(swept(&other, T0 + 1, Some(10)).await, Swept::default());
    let mut found = swept_again(&fixture, T0 + 1, Some(10)).await.events;
    found.sort_by(|a, b| a.id.cmp(&b.id));
    assert_eq!(found, [kept(1, "0 Replaced"), kept(3, "2 Replaced")]);
    // They stay until their sink has them.
    assert_eq!(swept_again(&fixture, T0 + 1, Some(10)).await.events.len(), 2);
    // Who has no sink takes none.
    assert_eq!(swept_again(&fixture, T0 + 1, None).await, Swept::default());
    let names: Vec<_> = found.iter().map(|event| (event.account, event.id.clone())).collect();
    other.delivered(&names, TIME).await.unwrap();
    assert_eq!(swept_again(&fixture, T0 + 1, Some(10)).await, Swept::default());
}

/// The service was told nothing of a settle that was carried out: to the repeat it is settled already.
#[tokio::test]
async fn the_event_of_a_settle_whose_answer_was_lost() {
    let fixture = Fixture::redis().await;
    let server = fixture.server.clone().unwrap();
    let (proxy, url) = Proxy::before(&server.url).await;
    let clock = Arc::new(ManualClock::new(T0));
    let store = RedisStore::connect_with_given_time(&url, "t", clock, Lifetimes::default()).await.unwrap();
    let charge = [tokens(100, 50)];
    store.reserve(&hold(1, &charge), TIME).await.unwrap();
    settle_all(&store, &[settlement(9, UNSENT)]).await.remove(0).unwrap();
    let tell = |_: usize, _: &Closed| Some("told".to_owned());
    while fixture.used(&charge[0]).await == 50 {
        proxy.drop_next_answer();
        let _ = store.settle(&[settlement(1, used(7))], &tell, TIME).await;
    }
    eventually("the repeat", || async {
        let again = store.settle(&[settlement(1, used(7))], &tell, TIME).await;
        again == [Ok(Settled::Already.into())]
    })
    .await;
    assert_eq!(swept_again(&fixture, T0 + 1, Some(10)).await.events, [kept(1, "told")]);
}

/// A sweep goes through more tenants than fit into one step, and forgets those that nothing is left of.
#[tokio::test]
async fn many_tenants() {
    let fixture = Fixture::redis().await;
    let charge = [tokens(1_000, 50)];
    let accounts: Vec<_> = (0..300).map(|number| Tag::account(&format!("tenant {number}"))).collect();
    for account in &accounts {
        fixture.reserve(&Hold { account: *account, ..hold(1, &charge) }).await;
    }
    fixture.clock.set(T0 + RECORD_MS + MINUTE);
    let mut found: Vec<_> = swept_again(&fixture, 0, Some(1_000)).await.lapsed;
    found.sort_by_key(|lapsed| lapsed.account);
    let mut expected = accounts.clone();
    expected.sort();
    assert_eq!(found.iter().map(|lapsed| lapsed.account).collect::<Vec<_>>(), expected);

    let server = fixture.server.clone().unwrap();
    assert_eq!(server.command::<usize>(&["ZCARD", "t:accounts"]), accounts.len());
    fixture.clock.set(T0 + 9 * 24 * 60 * MINUTE);
    fixture.reserve(&hold(2, &charge)).await;
    swept_again(&fixture, 0, Some(1_000)).await;
    assert_eq!(server.command::<usize>(&["ZCARD", "t:accounts"]), 1);
}

/// A server without memory to spare takes settlements and their events; a key that holds something else is an error
/// before anything is written.
#[tokio::test]
async fn where_an_event_cannot_be_kept_nothing_changes() {
    let fixture = Fixture::redis().await;
    let server = fixture.server.clone().unwrap();
    let charge = [tokens(1_000, 50)];
    for number in 1..=3 {
        fixture.reserve(&hold(number, &charge)).await;
    }
    server.command::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    let closed = settle_and_tell(fixture.store.as_ref(), &[settlement(1, used(3))]).await;
    assert_eq!(closed[0].settled, Settled::Replaced);
    server.command::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(swept_again(&fixture, T0 + 1, Some(10)).await.events, [kept(1, "0 Replaced")]);

    let outbox = format!("t:{{{}}}:e", account());
    server.command::<()>(&["SET", &outbox, "something else"]);
    server.command::<u64>(&["UNLINK", "t:sweeper"]);
    let before = server.dump();
    let tell = |_: usize, _: &Closed| Some("told".to_owned());
    let refused = fixture.store.settle(&[settlement(2, used(3))], &tell, TIME).await;
    assert!(matches!(&refused[..], [Err(StoreError::Format)]), "{refused:?}");
    fixture.clock.set(T0 + RECORD_MS + MINUTE);
    // Passed over.
    assert_eq!(swept_again(&fixture, 0, Some(9)).await, Swept::default());
    server.command::<u64>(&["UNLINK", "t:sweeper"]);
    assert_eq!(server.dump(), before);
    server.command::<()>(&["DEL", &outbox]);
    let found = swept_again(&fixture, 0, Some(9)).await;
    assert_eq!((found.lapsed.len(), found.events.len()), (2, 2));
}

/// Whatever stands under one tenant's keys: the others' holds are found.
#[tokio::test]
async fn a_tenant_whose_keys_cannot_be_read_stops_no_sweep() {
    let (spoilt, whole) = (Tag::account("spoilt"), Tag::account("whole"));
    let charge = [tokens(1_000, 50)];
    for (key, command) in [("o", "SET"), ("o", "ZADD"), ("e", "SET")] {
        let fixture = Fixture::redis().await;
        let server = fixture.server.clone().unwrap();
        for account in [spoilt, whole] {
            fixture.reserve(&Hold { account, ..hold(1, &charge) }).await;
        }
        let name = format!("t:{{{spoilt}}}:{key}");
        match command {
            "SET" => server.command::<()>(&["SET", &name, "something else"]),
            _ => server.command::<()>(&["ZADD", &name, "1", "no hold"]),
        }
        fixture.clock.set(T0 + RECORD_MS + MINUTE);
        let found = swept_again(&fixture, 0, Some(9)).await;
        let of: Vec<_> = found.lapsed.iter().map(|lapsed| lapsed.account).collect();
        assert_eq!(of, [whole], "{key} {command}");
    }
}
