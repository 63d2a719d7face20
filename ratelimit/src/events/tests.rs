#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]
use std::collections::VecDeque;
use std::sync::Mutex;

use async_trait::async_trait;
use axum::http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use tokengate_api::{SettleItem, SettleStatus};

use super::sink::{FileSink, HttpSink, Reopen, Sink, SinkError, SinkKind};
use super::*;
use crate::clock::ManualClock;
use crate::http::tests::{ID, KEY, Setup, policy, post, reserve_body, start, with};
use crate::metrics::EventOutcome;
use crate::metrics::Metrics;
use crate::tag::Tag;
use crate::telemetry::Telemetry;

const NOW: u64 = 1_800_000_000_000;

fn events(metrics: &Arc<Metrics>) -> (Events, Queue) {
    let queue = Queue::new(3, metrics.clone());
    let key = PseudonymKey::new("secret").unwrap();
    (Events::new(key, Arc::new(ManualClock::new(NOW)), queue.clone()), queue)
}

fn lines(queue: &Queue) -> Vec<Value> {
    queue.take(100).iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn item(body: Value) -> SettleItem {
    serde_json::from_value(body).unwrap()
}

#[tokio::test]
async fn one_event_for_each_settlement_that_counts() {
    let metrics = Arc::new(Metrics::default());
    let (events, queue) = events(&metrics);
    let telemetry = Telemetry { metrics, events: Some(events) };
    let server = start(Setup { telemetry, ..Setup::default() }).await;
    let (_, held) = post(server.api, "/v1/reserve", &reserve_body()).await;
    let booked = json!("b".repeat(32));
    let used = json!({"id": ID, "account": held["account"], "outcome": "used", "sent": true,
        "usage": {"input": 10, "output": 3}, "age_ms": 5000, "queued_ms": 1});
    let items = json!([
        used,
        used,
        {"id": "c".repeat(32), "account": held["account"], "outcome": "used", "sent": true,
         "usage": {"input": 1}, "age_ms": 0, "queued_ms": 0},
        {"id": booked, "outcome": "estimated", "sent": true, "usage": {"output": 4}, "age_ms": 7, "queued_ms": 0,
         "reserve": with(reserve_body(), "id", booked.clone())},
    ]);
    post(server.api, "/v1/settle", &items).await;

    let lines = lines(&queue);
    let pseudonym = lines[0]["tenant"].as_str().unwrap();
    assert_eq!(
        lines,
        [
            json!({"id": ID, "status": "settled", "outcome": "used", "sent": true, "reserved_at": NOW - 5000,
                "settled_at": NOW, "tenant": pseudonym, "plan": null, "model": null, "estimate_tokens": null,
                "usage": {"input": 10, "cache_read": 0, "cache_write": 0, "output": 3, "reasoning": 0},
                "charged_tokens": 13, "cost_nano_usd": null, "policy_version": held["policy_version"]}),
            json!({"id": booked, "status": "booked", "outcome": "estimated", "sent": true, "reserved_at": NOW - 7,
                "settled_at": NOW, "tenant": pseudonym, "plan": "basic", "model": "gpt", "estimate_tokens": null,
                "usage": {"input": 0, "cache_read": 0, "cache_write": 0, "output": 4, "reasoning": 0},
                "charged_tokens": 4, "cost_nano_usd": null, "policy_version": held["policy_version"]}),
        ]
    );
    assert_eq!(pseudonym.len(), 16);
    let text = serde_json::to_string(&lines).unwrap();
    assert!(!text.contains(KEY) && !text.contains(held["account"].as_str().unwrap()), "{text}");
}

#[test]
fn the_record_tells_the_estimate() {
    let policy = policy();
    let record = HeldRecord {
        model: Tag::model(Some("gpt")),
        plan: Tag::plan("basic"),
        tokens: 50,
        reserved_at_ms: 9,
    };
    let key = PseudonymKey::new("secret").unwrap();
    let event = |outcome: &str, usage: Value, record| {
        let item = item(json!({"id": ID, "outcome": outcome, "sent": true, "usage": usage, "age_ms": 5,
            "queued_ms": 0}));
        let account = Tag::account("t");
        let settlement = SettleFacts {
            item: &item,
            status: SettleStatus::Settled,
            account,
            model: Some("gpt"),
            record,
            policy: &policy,
        };
        UsageEvent::of(&settlement, &key, NOW)
    };
    let used = event("used", json!({"output": 3}), Some(&record));
    assert_eq!((used.reserved_at, used.plan.as_deref()), (9, Some("basic")));
    assert_eq!((used.estimate_tokens, used.charged_tokens), (Some(50), Some(3)));
    assert_eq!(event("held", Value::Null, Some(&record)).charged_tokens, Some(50));
    assert_eq!(event("held", Value::Null, None).charged_tokens, None);
    assert_eq!(event("released", Value::Null, Some(&record)).charged_tokens, Some(0));
}

#[test]
fn pseudonyms_depend_on_the_key() {
    let (one, two) = (PseudonymKey::new("one").unwrap(), PseudonymKey::new("two").unwrap());
    let (a, b) = (Tag::account("a"), Tag::account("b"));
    assert_eq!(one.pseudonym(a), PseudonymKey::new("one").unwrap().pseudonym(a));
    assert_ne!(one.pseudonym(a), one.pseudonym(b));
    assert_ne!(one.pseudonym(a), two.pseudonym(a));
    assert!(PseudonymKey::new("").is_none());
    assert!(!format!("{one:?}").contains("one"));
}

#[test]
fn the_oldest_goes_when_too_many_wait() {
    let metrics = Arc::new(Metrics::default());
    let (_, queue) = events(&metrics);
    for line in ["1", "2", "3"] {
        queue.push(line.to_owned());
    }
    // "1" and "2" are with the sink when "1" has to go.
    assert_eq!(queue.take(2), ["1", "2"]);
    queue.push("4".to_owned());
    queue.done(EventOutcome::Written);
    assert_eq!(queue.take(9), ["3", "4"]);
    let text = metrics.text().unwrap();
    assert!(text.contains("usage_events_total{outcome=\"overflowed\"} 1\n"), "{text}");
    assert!(text.contains("usage_events_pending 2\n"), "{text}");
    assert_eq!(queue.abandon(), 2);
    assert!(queue.is_empty());
}

/// Answers from a list, and keeps what it was offered.
struct Scripted(Arc<Mutex<Script>>);

#[derive(Default)]
struct Script {
    answers: VecDeque<Result<(), SinkError>>,
    offered: Vec<Vec<String>>,
}

#[async_trait]
impl Sink for Scripted {
    async fn write(&mut self, lines: &[String]) -> Result<(), SinkError> {
        let mut script = self.0.lock().unwrap();
        script.offered.push(lines.to_vec());
        script.answers.pop_front().unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn events_come_again_until_they_are_taken() {
    let metrics = Arc::new(Metrics::default());
    let (_, queue) = events(&metrics);
    let away = || Err(SinkError::Away("away".to_owned()));
    let refused = Err(SinkError::Refused("bad".to_owned()));
    let script = Script { answers: [away(), away(), Ok(()), refused].into(), offered: Vec::new() };
    let script = Arc::new(Mutex::new(script));
    let sender = tokio::spawn(send(queue.clone(), Box::new(Scripted(script.clone()))));
    queue.push("1".to_owned());
    let emptied = || crate::store::tests::eventually("the queue", || async { queue.is_empty() });
    emptied().await;
    queue.push("2".to_owned());
    emptied().await;
    sender.abort();
    assert_eq!(script.lock().unwrap().offered, [["1"], ["1"], ["1"], ["2"]]);
    let text = metrics.text().unwrap();
    assert!(text.contains("usage_events_total{outcome=\"written\"} 1\n"), "{text}");
    assert!(text.contains("usage_events_total{outcome=\"rejected\"} 1\n"), "{text}");
    assert!(text.contains("usage_events_pending 0\n"), "{text}");
}

#[tokio::test]
async fn a_file_is_appended_to_and_opened_again() {
    let directory = tempfile::tempdir().unwrap();
    let (path, moved) = (directory.path().join("usage.jsonl"), directory.path().join("usage.1"));
    std::fs::write(&path, "0\n").unwrap();
    let reopen = Reopen::default();
    let mut sink = FileSink::open(&path, reopen.clone()).unwrap();
    sink.write(&["1".to_owned(), "2".to_owned()]).await.unwrap();
    std::fs::rename(&path, &moved).unwrap();
    sink.write(&["3".to_owned()]).await.unwrap();
    reopen.ask();
    sink.write(&["4".to_owned()]).await.unwrap();
    assert_eq!(std::fs::read_to_string(&moved).unwrap(), "0\n1\n2\n3\n");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "4\n");
    // A disk that is full.
    let mut full = FileSink::open(std::path::Path::new("/dev/full"), Reopen::default()).unwrap();
    let error = full.write(&["1".to_owned()]).await.unwrap_err();
    assert!(matches!(&error, SinkError::Away(reason) if reason.contains("/dev/full")), "{error:?}");
    assert!(FileSink::open(&directory.path().join("no/such"), Reopen::default()).is_err());
}

#[tokio::test]
async fn an_http_sink_tells_a_no_from_a_not_now() {
    let answers = [204, 503, 429, 404, 400, 413];
    type Seen = Arc<Mutex<Vec<(HeaderMap, String)>>>;
    let seen = Seen::default();
    let left = Arc::new(Mutex::new(VecDeque::from(answers)));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let collect = seen.clone();
    let app = axum::Router::new().fallback(async move |headers: HeaderMap, body: String| {
        collect.lock().unwrap().push((headers, body));
        StatusCode::from_u16(left.lock().unwrap().pop_front().unwrap()).unwrap()
    });
    tokio::spawn(async move { axum::serve(listener, app).await });
    let tls = || {
        rustls::ClientConfig::builder()
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth()
    };
    let uri: hyper::Uri = format!("http://{address}/usage").parse().unwrap();
    let mut sink = HttpSink::new(uri, Some("t0ken"), tls()).unwrap();
    for status in answers {
        let answer = sink.write(&["{}".to_owned(), "[]".to_owned()]).await;
        match (status, answer) {
            (204, Ok(()))
            | (503 | 429 | 404, Err(SinkError::Away(_)))
            | (400 | 413, Err(SinkError::Refused(_))) => {}
            other => panic!("{other:?}"),
        }
    }
    let (headers, body) = seen.lock().unwrap()[0].clone();
    assert_eq!(body, "{}\n[]\n");
    assert_eq!(headers["content-type"], "application/x-ndjson");
    assert_eq!(headers["authorization"], "Bearer t0ken");
    let mut nobody = HttpSink::new("http://127.0.0.1:1/".parse().unwrap(), None, tls()).unwrap();
    assert!(matches!(nobody.write(&["{}".to_owned()]).await, Err(SinkError::Away(_))));
    assert!(HttpSink::new("http://h/".parse().unwrap(), Some("a\nb"), tls()).is_err());
}

#[test]
fn a_sink_is_named_by_one_word() {
    let read = |text: &str| text.parse::<SinkKind>();
    assert_eq!(read("none"), Ok(SinkKind::None));
    assert_eq!(read("stdout"), Ok(SinkKind::Stdout));
    assert_eq!(read("file:/a b"), Ok(SinkKind::File("/a b".into())));
    assert_eq!(read("https://h:1/p"), Ok(SinkKind::Http("https://h:1/p".parse().unwrap())));
    for bad in ["", "file:", "/path", "ftp://h/", "http://", "STDOUT"] {
        assert!(read(bad).is_err(), "{bad}");
    }
}
