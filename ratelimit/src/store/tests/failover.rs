//! A master that is demoted while its connections stay open, and servers of other kinds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::proxy::Proxy;
use super::redis_server::RedisServer;
use super::*;
use crate::clock::SystemClock;
use crate::limits::Algorithm;
use crate::metrics::Metrics;
use crate::store::redis::RedisStore;
use crate::store::{Lifetimes, Settled, Store, StoreError};

async fn opened(url: &str) -> Result<RedisStore, String> {
    let opened = RedisStore::connect(url, "t", Arc::new(SystemClock), Lifetimes::default()).await;
    opened.map_err(|error| error.to_string())
}

/// A window that does not end while a test runs.
fn charge() -> [Amount; 1] {
    [tokens(1_000, 10).algorithm(Algorithm::FixedWindow { length_ms: 366 * 86_400_000 })]
}

/// Two servers, the second a replica of the first that has all that was written until now.
async fn pair() -> (RedisServer, RedisServer) {
    let (master, replica) = (RedisServer::start(), RedisServer::start());
    master.command::<()>(&["CONFIG", "SET", "repl-diskless-sync-delay", "0"]);
    replica.follow(Some(&master));
    in_step(&master, &replica).await;
    (master, replica)
}

async fn in_step(master: &RedisServer, replica: &RedisServer) {
    eventually("the replica", || async {
        replica.command::<String>(&["INFO", "replication"]).contains("master_link_status:up")
            && master.command::<usize>(&["WAIT", "1", "1000"]) == 1
            && master.dump() == replica.dump()
    })
    .await;
}

/// Within this time after the address leads to the new master.
const BACK: Duration = Duration::from_secs(2);

/// The old master stays up as a replica, and so does the connection to it.
#[tokio::test]
async fn a_master_that_is_demoted() {
    for stale_data in ["yes", "no"] {
        let (old, new) = pair().await;
        let (proxy, url) = Proxy::before(&old.url).await;
        let store = opened(&url).await.unwrap();
        assert_eq!(store.reserve(&hold(1, &charge()), TIME).await.unwrap().verdict, HELD);
        in_step(&old, &new).await;
        new.follow(None);
        old.command::<()>(&["CONFIG", "SET", "replica-serve-stale-data", stale_data]);
        if stale_data == "no" {
            // Its link stays down.
            old.command::<()>(&["REPLICAOF", "127.0.0.1", "1"]);
        } else {
            old.follow(Some(&new));
        }
        let reserve = async |number, time| store.reserve(&hold(number, &charge()), time).await;
        for number in 2..20 {
            let refused = reserve(number, Duration::from_millis(100)).await.unwrap_err();
            assert!(matches!(refused, StoreError::Refused(_) | StoreError::Timeout), "{refused}");
        }
        let tried = proxy.accepted();
        assert!(tried < 20, "each of 18 refused calls has connected anew: {tried}");
        assert!(store.ping(TIME).await.is_err());

        proxy.turn_to(&new.url);
        let turned = Instant::now();
        let mut number = 20;
        while reserve(number, Duration::from_millis(100)).await.is_err() {
            number += 1;
            assert!(turned.elapsed() < BACK, "still refused after {:?}", turned.elapsed());
        }
        assert!(turned.elapsed() < BACK, "{:?}", turned.elapsed());
        assert_eq!(store.ping(TIME).await, Ok(()));
        // What was held before is known there.
        assert_eq!(settle_all(&store, &[settlement(1, used(3))]).await, [Ok(Settled::Replaced)]);
    }
}

/// No call has met a word of refusal: reads are answered, and nothing was written. The look from time to time finds it.
#[tokio::test]
async fn a_replica_that_may_be_written_to() {
    let (old, new) = pair().await;
    let (proxy, url) = Proxy::before(&old.url).await;
    let store = opened(&url).await.unwrap();
    in_step(&old, &new).await;
    new.follow(None);
    old.command::<()>(&["CONFIG", "SET", "replica-read-only", "no"]);
    old.follow(Some(&new));
    in_step(&new, &old).await;
    assert_eq!(store.ping(TIME).await, Err(StoreError::Unfit("replica")));
    proxy.turn_to(&new.url);
    let watch = store.watch();
    let watching = tokio::spawn(watch.run(Arc::new(Metrics::default()), || 0));
    eventually("the master", || async { store.ping(TIME).await.is_ok() }).await;
    assert_eq!(store.reserve(&hold(1, &charge()), TIME).await.unwrap().verdict, HELD);
    assert!(new.dump().contains(":r:"));
    watching.abort();
}

/// It takes connections and answers nothing: its address leads to another one by now.
#[tokio::test]
async fn a_master_that_hangs() {
    let (old, new) = pair().await;
    let (proxy, url) = Proxy::before(&old.url).await;
    let store = opened(&url).await.unwrap();
    in_step(&old, &new).await;
    new.follow(None);
    old.signal("STOP");
    proxy.turn_to(&new.url);
    let watching = tokio::spawn(store.watch().run(Arc::new(Metrics::default()), || 0));
    let mut number = 0;
    eventually("the new master", || {
        number += 1;
        let store = &store;
        async move { store.reserve(&hold(number, &charge()), Duration::from_millis(100)).await.is_ok() }
    })
    .await;
    watching.abort();
    old.signal("CONT");
}

/// Each word of a server that is not the right one makes for a new connection; each of a busy one does not.
#[tokio::test]
async fn words_of_a_wrong_server() {
    let server = RedisServer::start();
    for (said, again) in [
        ("-READONLY You can't write against a read only replica.\r\n", true),
        ("-MOVED 3999 127.0.0.1:6381\r\n", true),
        ("-CLUSTERDOWN The cluster is down\r\n", true),
        ("-NOREPLICAS Not enough good replicas to write.\r\n", true),
        ("-NOAUTH Authentication required.\r\n", true),
        ("-ERR unknown command 'EVALSHA', with args beginning with: \r\n", true),
        ("-MISCONF Errors writing to the AOF file\r\n", false),
        ("-OOM command not allowed when used memory > 'maxmemory'.\r\n", false),
    ] {
        let (proxy, url) = Proxy::before(&server.url).await;
        let store = opened(&url).await.unwrap();
        proxy.answer_instead(&[said]);
        let answer = store.reserve(&hold(1, &charge()), TIME).await;
        assert_eq!(answer.is_ok(), again, "{said}{answer:?}");
        assert_eq!(proxy.accepted(), 1 + usize::from(again), "{said}");
        server.command::<()>(&["FLUSHALL"]);
    }
}

/// What cannot be counted on is refused at the start by its name.
#[tokio::test]
async fn servers_of_other_kinds() {
    let cluster = RedisServer::start_with(&["--cluster-enabled", "yes"]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sentinel.conf");
    std::fs::write(&file, "").unwrap();
    let sentinel = RedisServer::start_sentinel(&file);
    let (master, replica) = pair().await;
    for (url, says) in [
        (cluster.url.clone(), "it is a node of a Redis Cluster, which is not supported"),
        (format!("{}/1", cluster.url), "Redis Cluster"),
        (sentinel.url.clone(), "it is a Sentinel, which keeps no data; give the address of the master"),
        (format!("{}/1", sentinel.url), "Sentinel"),
        (replica.url.clone(), "it is a replica, and what is written to one is lost"),
    ] {
        let refused = opened(&url).await.err().unwrap();
        assert!(refused.starts_with("Redis at 127.0.0.1:") && refused.contains(says), "{refused}");
    }
    // A replica that becomes the master while a start waits for it.
    let (proxy, url) = Proxy::before(&replica.url).await;
    let start = tokio::spawn(async move { opened(&url).await });
    eventually("the start", || async { proxy.accepted() > 0 }).await;
    replica.follow(None);
    assert!(start.await.unwrap().is_ok());
    drop(master);
}
