//! Real servers: with TLS, with users, and such that forget.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use super::*;
use crate::clock::{Clock, ManualClock, SystemClock};
use crate::limits::Algorithm;
use crate::store::redis::RedisStore;
use crate::store::tests::proxy::Proxy;
use crate::store::tests::redis_server::RedisServer;
use crate::store::tests::{HELD, TIME, booking, eventually, hold, settle_all, settlement, tokens, used};
use crate::store::{Lifetimes, Settled, Store};
use server_info::Finding;

async fn open(target: Target) -> Result<RedisStore, ConnectError> {
    RedisStore::connect(target, "t", Arc::new(SystemClock), Lifetimes::default()).await
}

/// An authority of the test's own.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        // With the name of what it issues, that would look as if it had signed itself.
        params.distinguished_name.push(DnType::CommonName, "an authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// A certificate for this machine and its key.
    fn issue(&self) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}

/// A server that speaks TLS only, and wants a certificate of every client.
struct TlsServer {
    child: Child,
    port: u16,
    _directory: tempfile::TempDir,
}

impl TlsServer {
    fn start(authority: &Authority) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let (certificate, key) = authority.issue();
        let files = [file("ca.pem", &authority.pem), file("cert.pem", &certificate), file("key.pem", &key)];
        // Between choosing a port and using it another process may take it: then another one.
        for _ in 0..5 {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let mut child = run(port, directory.path(), &files);
            let deadline = std::time::Instant::now() + Duration::from_secs(20);
            while child.try_wait().unwrap().is_none() {
                if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
                    return Self { child, port, _directory: directory };
                }
                assert!(std::time::Instant::now() < deadline, "redis-server does not listen");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        panic!("redis-server did not start on any of five ports");
    }

    fn target(&self, tls: TlsFiles) -> Target {
        Target { url: format!("rediss://127.0.0.1:{}", self.port), tls }
    }
}

fn run(port: u16, directory: &Path, [ca, certificate, key]: &[String; 3]) -> Child {
    Command::new("redis-server")
        .args(["--port", "0", "--tls-port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--tls-ca-cert-file", ca, "--tls-cert-file", certificate, "--tls-key-file", key])
        .args(["--save", "", "--dir"])
        .arg(directory)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn tls_with_certificates_on_both_sides() {
    let authority = Authority::new();
    let server = TlsServer::start(&authority);
    let (certificate, key) = authority.issue();
    let ca = Some(authority.pem.clone().into_bytes());
    let client = Some((certificate.clone().into_bytes(), key.clone().into_bytes()));
    let store = open(server.target(TlsFiles { ca: ca.clone(), client: client.clone() })).await.unwrap();
    let held = store.reserve(&hold(1, &[tokens(100, 10)]), TIME).await.unwrap();
    assert_eq!(held.verdict, HELD);

    let strange = Authority::new();
    let (foreign_certificate, foreign_key) = strange.issue();
    for (what, tls) in [
        ("nobody vouches for the server", TlsFiles { ca: None, client: client.clone() }),
        (
            "somebody else vouches for it",
            TlsFiles { ca: Some(strange.pem.clone().into_bytes()), client: client.clone() },
        ),
        ("no certificate of ours", TlsFiles { ca: ca.clone(), client: None }),
        (
            "a certificate of somebody else's",
            TlsFiles {
                ca: ca.clone(),
                client: Some((foreign_certificate.into_bytes(), foreign_key.into_bytes())),
            },
        ),
    ] {
        let error = open(server.target(tls)).await.err().expect(what);
        assert!(matches!(error, ConnectError::Unusable { .. }), "{what}: {error}");
        assert!(error.to_string().contains("127.0.0.1:"), "{what}: {error}");
    }
    for (what, tls) in [
        ("no PEM", TlsFiles { ca: ca.clone(), client: Some((b"x".to_vec(), b"y".to_vec())) }),
        ("keys swapped", TlsFiles { ca, client: Some((key.into_bytes(), certificate.into_bytes())) }),
    ] {
        let error = open(server.target(tls)).await.err().expect(what);
        assert!(matches!(error, ConnectError::Certificates), "{what}: {error}");
        assert!(!error.to_string().contains("PRIVATE"), "{error}");
    }
    let plain = Target {
        url: "redis://127.0.0.1:1".to_owned(),
        tls: TlsFiles { ca: Some(Vec::new()), client: None },
    };
    assert!(matches!(open(plain).await, Err(ConnectError::TlsUnused)));
}

#[tokio::test]
async fn a_user_with_just_enough_rights() {
    let server = RedisServer::start();
    // What docs/service.md says that it takes, and nothing else.
    let docs = include_str!("../../../../../docs/service.md");
    let commands = docs.lines().find(|line| line.starts_with("`info ping ")).unwrap().trim_end_matches(';');
    let commands: Vec<_> =
        commands.trim_matches('`').split(' ').map(|command| format!("+{command}")).collect();
    let mut rights = vec!["~t:*", "-@all"];
    rights.extend(commands.iter().map(String::as_str));
    let user = |name: &str, rights: &[&str]| {
        let words = [&["ACL", "SETUSER", name, "on", ">hunter2"], rights].concat();
        server.command::<()>(&words);
        Target::from(&server.url.replace("redis://", &format!("redis://{name}:hunter2@")))
    };
    let store = open(user("quota", &rights)).await.unwrap();
    assert_eq!(store.reserve(&hold(1, &[tokens(100, 10)]), TIME).await.unwrap().verdict, HELD);
    assert!(store.watch().look(0).await.unwrap().is_empty());
    for (what, target) in [
        ("another password", Target::from(&server.url.replace("redis://", "redis://quota:hunter3@"))),
        ("another user", Target::from(&server.url.replace("redis://", "redis://other:hunter2@"))),
        ("no scripts", user("weak", &["~t:*", "-@all", "+info", "+ping"])),
        ("other keys", user("apart", &[&["~u:*"], &rights[1..]].concat())),
    ] {
        match open(target).await {
            Err(error) => {
                let said = error.to_string();
                assert!(said.contains("127.0.0.1:") && !said.contains("hunter"), "{what}: {said}");
            }
            Ok(_) => panic!("{what}"),
        }
    }
}

#[tokio::test]
async fn a_server_that_evicts_is_refused() {
    let server = RedisServer::start();
    server.command::<()>(&["CONFIG", "SET", "maxmemory", "100mb"]);
    server.command::<()>(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let error = open(Target::from(&server.url)).await.err().unwrap().to_string();
    assert!(error.contains("maxmemory-policy is allkeys-lru"), "{error}");
    server.command::<()>(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    let store = open(Target::from(&server.url)).await.unwrap();
    // It may be set later on, too.
    let mut watch = store.watch();
    assert_eq!(watch.look(0).await, Ok(Vec::new()));
    server.command::<()>(&["CONFIG", "SET", "maxmemory-policy", "volatile-lru"]);
    let evicts = Finding::Evicts { policy: "volatile-lru".to_owned() };
    assert_eq!(watch.look(0).await, Ok(vec![evicts]));
    assert_eq!(watch.look(0).await, Ok(Vec::new()));
}

#[tokio::test]
async fn a_server_that_was_emptied_is_noticed() {
    let server = RedisServer::start();
    let store = open(Target::from(&server.url)).await.unwrap();
    let mut watch = store.watch();
    let day = 86_400_000;
    // The tests' servers write nothing to disk.
    assert_eq!(watch.look(day).await, Ok(vec![Finding::Forgets { longest_window_ms: day }]));
    assert_eq!(watch.look(day).await, Ok(Vec::new()));
    server.command::<()>(&["FLUSHALL"]);
    assert_eq!(watch.look(day).await, Ok(vec![Finding::Wiped]));
    assert_eq!(watch.look(day).await, Ok(Vec::new()));
    // Another instance that starts finds the marker.
    assert_eq!(store.watch().look(0).await, Ok(Vec::new()));

    let metrics = Arc::new(crate::metrics::Metrics::default());
    server.command::<()>(&["DEL", "t:marker"]);
    let watching = tokio::spawn({
        let metrics = metrics.clone();
        async move { watch.run(metrics, || 0).await }
    });
    eventually("the metric", || async { metrics.text().unwrap().contains("store_wiped_total 1\n") }).await;
    watching.abort();
}

/// The address leads to a server of another kind, and back.
#[tokio::test]
async fn a_server_of_another_kind_is_noticed() {
    let server = RedisServer::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sentinel.conf");
    std::fs::write(&file, "").unwrap();
    let others = [
        (RedisServer::start_sentinel(&file), Unfit::Sentinel),
        (RedisServer::start_with(&["--cluster-enabled", "yes"]), Unfit::Cluster),
        (RedisServer::start_with(&["--replicaof", "127.0.0.1", "1"]), Unfit::Replica),
    ];
    let (proxy, url) = Proxy::before(&server.url).await;
    let store = open(Target::from(&url)).await.unwrap();
    let mut watch = store.watch();
    assert_eq!(watch.look(0).await, Ok(Vec::new()));
    for (other, unfit) in others {
        proxy.turn_to(&other.url);
        server.kill_connections();
        let found = watch.look(0).await.unwrap();
        assert_eq!(found, [Finding::Restarted, Finding::Unfit(unfit)]);
        assert!(store.ping(TIME).await.is_err());
        proxy.turn_to(&server.url);
        eventually("the right one", || async { store.ping(TIME).await.is_ok() }).await;
        assert_eq!(watch.look(0).await, Ok(vec![Finding::Restarted]));
    }
}

/// How far the clocks are apart is a metric, and an error in the log when it is too much.
#[tokio::test]
async fn clocks_that_come_apart_are_noticed() {
    let server = RedisServer::start();
    let clock = Arc::new(ManualClock::new(SystemClock.now_ms()));
    let store = RedisStore::connect(&server.url, "t", clock.clone(), Lifetimes::default()).await.unwrap();
    let mut watch = store.watch();
    assert_eq!(watch.look(0).await, Ok(Vec::new()));
    for behind in [7_200_000, -7_200_000] {
        clock.set(SystemClock.now_ms().saturating_add_signed(-behind));
        let found = watch.look(0).await.unwrap();
        let [Finding::ClocksDiffer { ahead_ms }] = found[..] else { panic!("{found:?}") };
        assert!(ahead_ms.abs_diff(behind) < 20_000, "{ahead_ms}");
        // Said once.
        assert_eq!(watch.look(0).await, Ok(Vec::new()));
        clock.set(SystemClock.now_ms());
        assert_eq!(watch.look(0).await, Ok(Vec::new()));
    }
    clock.set(SystemClock.now_ms() - 7_200_000);
    let metrics = Arc::new(crate::metrics::Metrics::default());
    let watching = tokio::spawn(watch.run(metrics.clone(), || 0));
    eventually("the metric", || async {
        let text = metrics.text().unwrap();
        let line =
            text.lines().find(|line| line.starts_with("tokengate_ratelimit_store_clock_ahead_seconds "));
        line.unwrap().rsplit_once(' ').unwrap().1.parse::<f64>().unwrap() > 7_100.0
    })
    .await;
    watching.abort();
}

/// Another process at the same address: what it knows is what was on disk, and what it lost is told.
#[tokio::test]
async fn a_server_that_is_started_again() {
    let mut server = RedisServer::start();
    let store = open(Target::from(&server.url)).await.unwrap();
    let mut watch = store.watch();
    // A window that does not end while the test runs.
    let charge = [tokens(100, 60).algorithm(Algorithm::FixedWindow { length_ms: 366 * 86_400_000 })];
    let reserve = async |number| store.reserve(&hold(number, &charge), TIME).await;
    let again = async |number| {
        eventually("a reserve", || async { reserve(number).await.is_ok() }).await;
        reserve(number).await.unwrap()
    };
    assert_eq!(watch.look(0).await, Ok(Vec::new()));
    assert_eq!(reserve(1).await.unwrap().verdict, HELD);
    server.stop();
    assert!(reserve(2).await.unwrap_err().indeterminate());
    assert!(watch.look(0).await.is_err());

    // Empty: the window is free again, which is an error in the log, and what was held is booked.
    server.start_again(&[]);
    assert_eq!(again(2).await.limits[0].gauge.used, 60);
    assert_eq!(watch.look(0).await, Ok(vec![Finding::Restarted, Finding::Wiped]));
    assert_eq!(watch.look(0).await, Ok(Vec::new()));
    assert_eq!(settle_all(&store, &[settlement(1, used(5))]).await, [Ok(Settled::Unknown)]);
    assert_eq!(settle_all(&store, &[booking(1, &charge, 5)]).await, [Ok(Settled::Booked)]);

    // With its memory: nothing is lost but the connection.
    server.command::<()>(&["CONFIG", "SET", "appendonly", "yes"]);
    eventually("the file", || async {
        let info: String = server.command(&["INFO", "persistence"]);
        let done = ["aof_enabled:1", "aof_rewrite_in_progress:0", "aof_rewrite_scheduled:0"];
        done.iter().all(|line| info.contains(line))
    })
    .await;
    server.stop();
    assert!(reserve(3).await.is_err());
    server.start_again(&["--appendonly", "yes"]);
    assert_eq!(again(2).await.limits[0].gauge.used, 65);
    assert_eq!(watch.look(0).await, Ok(vec![Finding::Restarted]));
    assert_eq!(settle_all(&store, &[settlement(2, used(7))]).await, [Ok(Settled::Replaced)]);
    assert_eq!(again(4).await.limits[0].gauge.used, 72);

    // With other settings: the service, which runs, says what a start would have been refused for.
    server.stop();
    server.start_again(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]);
    again(5).await;
    let evicts = Finding::Evicts { policy: "allkeys-lru".to_owned() };
    assert_eq!(watch.look(0).await, Ok(vec![Finding::Restarted, Finding::Wiped, evicts]));
    assert!(open(Target::from(&server.url)).await.is_err());
}
