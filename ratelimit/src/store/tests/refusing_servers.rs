//! Servers that answer, and cannot or may not do what they are asked; and state that nobody can read.

use std::sync::Arc;

use super::*;
use crate::clock::ManualClock;
use crate::limits::Algorithm;
use crate::store::redis::RedisStore;
use crate::store::{Lifetimes, Settled, Store, StoreError, TopUp};

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
            spoilt.push([&whole[..1], b"\x02", &whole[2..]].concat());
            // Not a number.
            spoilt.push([&whole[..2], &[0xff; 8], &whole[10..]].concat());
        }
        for value in spoilt {
            let () = redis::cmd("SET").arg(&key).arg(&value).query(&mut connection).unwrap();
            let before = server.dump();
            assert!(fixture.store.reserve(&hold(number + 1, &charge), TIME).await.is_err(), "{value:?}");
            let settled = fixture.settle_all(&[settlement(number, UNSENT)]).await;
            assert!(settled[0].is_err(), "{value:?}");
            assert_eq!(server.dump(), before);
        }
        server.command::<()>(&["DEL", &key]);
        assert_eq!(fixture.settle(settlement(number, UNSENT)).await, Settled::Replaced);
    }
}
