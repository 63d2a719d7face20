#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]
use std::collections::VecDeque;
use std::sync::Mutex;

use async_trait::async_trait;
use axum::http::StatusCode;
use serde_json::{Value, json};
use tokengate_api::{ReservationId, SettleItem, SettleStatus};

use super::sink::{Sink, SinkError};
use super::*;
use std::time::Duration;

use crate::clock::{Clock, ManualClock, SystemClock};
use crate::http::tests::{ID, KEY, Setup, policy, post, reserve_body, start, with};
use crate::limits::Rates;
use crate::metrics::EventOutcome;
use crate::metrics::Metrics;
use crate::store::memory::MemoryStore;
use crate::store::{
    Amended, Amendment, BucketId, Closed, Explained, Extended, Extension, Hold, Lifetimes, Meter, OpenHolds,
    Reserved, Settlement, Store, StoreError, Sweep, Swept, TellSettled, TopUp, ToppedUp,
};
use crate::store::{HeldRecord, KeptEvent};
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

fn kept(line: &str) -> KeptEvent {
    let id = ReservationId::try_from(format!("{line:0>32}")).unwrap();
    KeptEvent { account: Tag::account("t"), id, line: line.to_owned() }
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
    let before = SystemClock.now_ms();
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
            json!({"id": ID, "status": "settled", "outcome": "used", "sent": true, "reserved_at": lines[0]["reserved_at"],
                "settled_at": NOW, "tenant": pseudonym, "plan": "basic", "model": "gpt", "estimate_tokens": 50,
                "usage": {"input": 10, "cache_read": 0, "cache_write": 0, "output": 3, "reasoning": 0},
                "charged_tokens": 13, "cost_nano_usd": null, "policy_version": held["policy_version"]}),
            json!({"id": booked, "status": "booked", "outcome": "estimated", "sent": true, "reserved_at": NOW - 7,
                "settled_at": NOW, "tenant": pseudonym, "plan": "basic", "model": "gpt", "estimate_tokens": null,
                "usage": {"input": 0, "cache_read": 0, "cache_write": 0, "output": 4, "reasoning": 0},
                "charged_tokens": 4, "cost_nano_usd": null, "policy_version": held["policy_version"]}),
        ]
    );
    // By the store's clock, not by what the filter says.
    let reserved_at = lines[0]["reserved_at"].as_u64().unwrap();
    assert!(reserved_at >= before && reserved_at <= SystemClock.now_ms(), "{reserved_at}");
    assert_eq!(pseudonym.len(), 16);
    let text = serde_json::to_string(&lines).unwrap();
    assert!(!text.contains(KEY) && !text.contains(held["account"].as_str().unwrap()), "{text}");
}

/// A release, and a number that nobody can have used: neither is counted as usage.
#[tokio::test]
async fn usage_that_is_not_charged_is_not_told() {
    let metrics = Arc::new(Metrics::default());
    let (events, queue) = events(&metrics);
    let telemetry = Telemetry { metrics: metrics.clone(), events: Some(events) };
    let server = start(Setup { telemetry, ..Setup::default() }).await;
    // What was held is charged instead.
    for (id, outcome, charged) in [("a", "used", json!(50)), ("b", "released", json!(0))] {
        let reserve = with(reserve_body(), "id", json!(id.repeat(32)));
        let (_, held) = post(server.api, "/v1/reserve", &reserve).await;
        assert_eq!(held["decision"], "allow");
        let usage = json!({"input": u64::MAX, "output": 1});
        let item = json!({"id": reserve["id"], "account": held["account"], "outcome": outcome, "sent": true,
            "usage": usage, "age_ms": 0, "queued_ms": 0});
        post(server.api, "/v1/settle", &json!([item])).await;
        let last = lines(&queue).pop().unwrap();
        assert_eq!((&last["usage"], &last["charged_tokens"]), (&Value::Null, &charged), "{last}");
    }
    assert!(!metrics.text().unwrap().contains("tokens_total{model"));
}

/// Settles, and says of the second item that it does not know.
struct Doubtful(MemoryStore);

#[async_trait]
impl Store for Doubtful {
    async fn reserve(&self, hold: &Hold, within: Duration) -> Result<Reserved, StoreError> {
        self.0.reserve(hold, within).await
    }

    async fn settle(
        &self,
        batch: &[Settlement],
        tell: TellSettled<'_>,
        within: Duration,
    ) -> Vec<Result<Closed, StoreError>> {
        let mut answers = self.0.settle(batch, tell, within).await;
        if let Some(second) = answers.get_mut(1) {
            *second = Err(StoreError::Timeout);
        }
        answers
    }

    async fn delivered(&self, events: &[(Tag, ReservationId)], within: Duration) -> Result<(), StoreError> {
        self.0.delivered(events, within).await
    }

    async fn sweep(&self, sweep: &Sweep<'_>, within: Duration) -> Result<Swept, StoreError> {
        self.0.sweep(sweep, within).await
    }

    async fn explain(
        &self,
        account: Tag,
        model: Tag,
        meters: &[Meter],
        within: Duration,
    ) -> Result<Explained, StoreError> {
        self.0.explain(account, model, meters, within).await
    }

    async fn extend(&self, batch: &[Extension], within: Duration) -> Vec<Result<Extended, StoreError>> {
        self.0.extend(batch, within).await
    }

    async fn top_up(&self, top_up: &TopUp, within: Duration) -> Result<ToppedUp, StoreError> {
        self.0.top_up(top_up, within).await
    }

    async fn reset(&self, account: Tag, bucket: BucketId, within: Duration) -> Result<bool, StoreError> {
        self.0.reset(account, bucket, within).await
    }

    async fn open_holds(&self, account: Tag, most: usize, within: Duration) -> Result<OpenHolds, StoreError> {
        self.0.open_holds(account, most, within).await
    }

    async fn amend(&self, amendment: &Amendment, within: Duration) -> Result<Amended, StoreError> {
        self.0.amend(amendment, within).await
    }

    async fn notes(&self, within: Duration) -> Result<Vec<String>, StoreError> {
        self.0.notes(within).await
    }

    async fn note(&self, name: Tag, text: Option<&str>, within: Duration) -> Result<(), StoreError> {
        self.0.note(name, text, within).await
    }

    async fn ping(&self, within: Duration) -> Result<(), StoreError> {
        self.0.ping(within).await
    }
}

#[tokio::test]
async fn a_batch_that_fails_in_part_is_told_in_part() {
    let metrics = Arc::new(Metrics::default());
    let (events, queue) = events(&metrics);
    let telemetry = Telemetry { metrics, events: Some(events) };
    let store = Arc::new(Doubtful(MemoryStore::new(Arc::new(SystemClock), Lifetimes::default())));
    let server = start(Setup { telemetry, store, ..Setup::default() }).await;
    let item = |id: &str| {
        let reserve = with(reserve_body(), "id", json!(id.repeat(32)));
        json!({"id": reserve["id"], "outcome": "used", "sent": true, "usage": {"input": 1}, "age_ms": 0,
            "queued_ms": 0, "reserve": reserve})
    };
    let batch = json!([item("a"), item("b")]);
    assert_eq!(post(server.api, "/v1/settle", &batch).await.0, StatusCode::SERVICE_UNAVAILABLE);
    let told: Vec<_> = lines(&queue).iter().map(|line| line["id"].clone()).collect();
    assert_eq!(told, [json!("a".repeat(32))]);
}

#[test]
fn the_record_tells_the_estimate() {
    let policy = policy();
    let record = HeldRecord {
        model: Tag::model(Some("gpt")),
        plan: Some(Tag::plan("basic")),
        prompt_tokens: 10,
        output_tokens: 40,
        reserved_at_ms: Some(9),
        prices: Some(Rates { input: 1_000_000, output: 3_000_000, per: 1_000, ..Rates::TOKENS }),
    };
    let key = PseudonymKey::new("secret").unwrap();
    let event = |outcome: &str, usage: Value, record| {
        let item = item(json!({"id": ID, "outcome": outcome, "sent": true, "usage": usage, "age_ms": 5,
            "queued_ms": 0}));
        let account = Tag::account("t");
        let settlement = SettleFacts {
            item: &item,
            usage: item.usage.as_ref(),
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
    assert_eq!(
        (used.estimate_tokens, used.charged_tokens, used.cost_nano_usd),
        (Some(50), Some(3), Some(9_000))
    );
    let charged = |event: UsageEvent| (event.charged_tokens, event.cost_nano_usd);
    assert_eq!(charged(event("held", Value::Null, Some(&record))), (Some(50), Some(130_000)));
    assert_eq!(charged(event("held", Value::Null, None)), (None, None));
    assert_eq!(charged(event("released", Value::Null, Some(&record))), (Some(0), Some(0)));
    let old = HeldRecord { plan: None, reserved_at_ms: None, prices: None, ..record };
    let old = event("used", json!({"output": 3}), Some(&old));
    assert_eq!((old.plan, old.reserved_at, old.cost_nano_usd), (None, NOW - 5, None));
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
        queue.push(kept(line));
    }
    // "1" and "2" are with the sink when "1" has to go.
    assert_eq!(queue.take(2), ["1", "2"]);
    queue.push(kept("4"));
    queue.done(EventOutcome::Written);
    assert_eq!(queue.take(9), ["3", "4"]);
    let text = metrics.text().unwrap();
    assert!(text.contains("usage_events_total{outcome=\"overflowed\"} 1\n"), "{text}");
    assert!(text.contains("usage_events_pending 2\n"), "{text}");
    // The store need not keep what was dropped either.
    let over: Vec<_> = queue.over().into_iter().map(|(_, id)| id).collect();
    assert_eq!(over, ["1", "2"].map(|line| kept(line).id));
    queue.told();
    assert_eq!(queue.abandon(EventOutcome::Abandoned), 2);
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
    let store = Arc::new(MemoryStore::new(Arc::new(SystemClock), Lifetimes::default()));
    let sender = tokio::spawn(send(queue.clone(), Box::new(Scripted(script.clone())), store));
    queue.push(kept("1"));
    let emptied = || crate::store::tests::eventually("the queue", || async { queue.is_empty() });
    emptied().await;
    queue.push(kept("2"));
    emptied().await;
    sender.abort();
    assert_eq!(script.lock().unwrap().offered, [["1"], ["1"], ["1"], ["2"]]);
    let text = metrics.text().unwrap();
    assert!(text.contains("usage_events_total{outcome=\"written\"} 1\n"), "{text}");
    assert!(text.contains("usage_events_total{outcome=\"rejected\"} 1\n"), "{text}");
    assert!(text.contains("usage_events_pending 0\n"), "{text}");
}
