//! Servers that answer, and cannot or may not do what they are asked; and state that nobody can read.

use std::sync::Arc;

use super::*;
use crate::clock::ManualClock;
use crate::limits::Algorithm;
use crate::store::redis::RedisStore;
use crate::store::{Lifetimes, Settled, Settlement, Store, StoreError, TopUp};

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
            fixture.settle_all(&[settlement(1, used(3))]).await.remove(0).map(|_| ()),
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
        assert!(settle_all(&store, &[settlement(1, used(3))]).await[0].is_err());
        assert_eq!(server.dump(), before, "{rule}");
    }
    server.command::<()>(&["ACL", "SETUSER", "svc", "+@all"]);
    assert_eq!(settle_all(&store, &[settlement(1, used(3))]).await, [Ok(Settled::Replaced)]);
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

/// State of another kind, cut off, or of a format to come, under every algorithm: an error, nothing written.
#[tokio::test]
async fn unreadable_buckets_of_every_kind() {
    let fixture = Fixture::redis().await;
    let server = fixture.server.clone().unwrap();
    let calendar =
        Algorithm::CalendarWindow { boundaries_ms: [T0 - MINUTE, T0, T0 + MINUTE, T0 + 2 * MINUTE] };
    let mut all = one_of_each();
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
            spoilt.push([&whole[..1], b"\x03", &whole[2..]].concat());
            // Not a number.
            spoilt.push([&whole[..2], &[0xff; 8], &whole[10..]].concat());
        }
        if whole[1] == 2 {
            // More portions than there are, and one that is no number.
            spoilt.push([&whole[..2], b"\x02", &whole[3..]].concat());
            spoilt.push([&whole[..3], &[0xff; 8], &whole[11..]].concat());
        }
        fixture.settle(settlement(number, UNSENT)).await;
        for (spoil, value) in spoilt.into_iter().enumerate() {
            let number = number + 1 + spoil as u64;
            assert_eq!(fixture.verdict(&hold(number, &charge)).await, HELD, "{value:?}");
            let usable: Option<Vec<u8>> = match kind.as_str() {
                "string" => redis::cmd("GET").arg(&key).query(&mut connection).unwrap(),
                _ => None,
            };
            let () = redis::cmd("SET").arg(&key).arg(&value).query(&mut connection).unwrap();
            let before = server.dump();
            assert!(fixture.store.reserve(&hold(99, &charge), TIME).await.is_err(), "{value:?}");
            assert!(fixture.settle_all(&[alone(99, &charge[1])]).await[0].is_err(), "{value:?}");
            assert_eq!(server.dump(), before);
            // What else was held is given back; what cannot be read is left alone, and counted.
            let batch = [settlement(number, UNSENT)];
            let closed = fixture.store.settle(&batch, &|_, _| None, TIME).await.remove(0).unwrap();
            assert_eq!((closed.settled, closed.unreadable), (Settled::Replaced, 1), "{value:?}");
            assert_eq!(fixture.used(&charge[0]).await, 0, "{value:?}");
            let left: Vec<u8> = redis::cmd("GET").arg(&key).query(&mut connection).unwrap();
            assert_eq!(left, value);
            // A booking charges what can be charged.
            assert_eq!(fixture.settle(booking(number + 1_000, &charge, 3)).await, Settled::Booked);
            assert_eq!(fixture.used(&charge[0]).await, 1, "{value:?}");
            fixture.store.reset(account(), charge[0].charge.meter.bucket, TIME).await.unwrap();
            match usable {
                Some(usable) => redis::cmd("SET").arg(&key).arg(usable).query::<()>(&mut connection).unwrap(),
                None => server.command::<()>(&["DEL", &key]),
            }
        }
    }
}

/// A booking of one charge.
fn alone(number: u64, charge: &Amount) -> Settlement {
    booking(number, std::slice::from_ref(charge), 3)
}
