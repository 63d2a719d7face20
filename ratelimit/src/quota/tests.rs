#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]
mod alternatives;
mod held;
mod limits;
mod mid_stream;
mod no_plan;
mod overrides;
mod service;
mod settles;
mod telling;
mod unreadable;

use std::sync::Mutex;

use async_trait::async_trait;
use tokengate_api::{
    Decision, ExtendItem, ExtendStatus, LimitState, Outcome, Reason, ReservationId, ReserveRequest,
    ReserveResponse, SettleItem, SettleStatus, Usage,
};

use super::*;
use crate::clock::{ManualClock, SystemClock};
use crate::store::memory::MemoryStore;
use crate::store::{
    Amended, Amendment, BucketId, Closed, Explained, Extended, Extension, Hold, Lifetimes, Meter, OpenHolds,
    Reserved, Settlement, StoreError, Sweep, Swept, TellSettled, TopUp, ToppedUp,
};
use crate::tag::Tag;

const T0: u64 = 1_800_000_000_000;

const POLICY: &str = r#"
version: "1"
models:
  - {name: big, match: ["big*"], max_output_tokens: 1000, default_output_tokens: 20}
plans:
  basic: {models: ["*"]}
  free: {models: ["*"]}
keys:
  - {sha256: "000000000000000000000000000000000000000000000000000000000000000a", tenant: t, plan: basic}
  - {sha256: "100000000000000000000000000000000000000000000000000000000000000b", tenant: t, plan: basic}
  - {sha256: "000000000000000000000000000000000000000000000000000000000000000c", tenant: two, plan: basic}
  - {sha256: "000000000000000000000000000000000000000000000000000000000000000d", tenant: two, plan: free}
limits:
  - {name: rpm, per: [tenant, model], count: requests, algorithm: fixed_window, every: 1m, limit: 3}
  - {name: tpm, per: [tenant, model], count: tokens, algorithm: fixed_window, every: 1m, limit: 100}
  - {name: day, per: [key], count: tokens, algorithm: fixed_window, every: 24h, limit: 150}
"#;

fn asked<'a>(tenant: &'a str, model: Option<&'a str>, plan: Option<&'a str>) -> Asked<'a> {
    Asked { tenant, model, plan, ..Asked::default() }
}

struct Service {
    quota: Quota,
    clock: Arc<ManualClock>,
}

fn service() -> Service {
    let clock = Arc::new(ManualClock::new(T0 + 10_000));
    let store = Arc::new(MemoryStore::new(clock.clone(), Lifetimes::default()));
    let quota =
        Quota::new(Policy::parse("p", POLICY).unwrap(), store, ReleaseQueue::default(), clock.clone());
    Service { quota, clock }
}

fn request(number: u8, prompt_tokens: u64, max_output_tokens: Option<u64>) -> ReserveRequest {
    ReserveRequest {
        id: ReservationId::from_bytes([number; 16]),
        attempt: 1,
        deadline_ms: 100,
        key_hash: format!("{:0>64}", "a"),
        model: Some("Big-1".to_owned()),
        models: Vec::new(),
        service_tier: None,
        dialect: "openai".to_owned(),
        endpoint: "chat.completions".to_owned(),
        prompt_tokens,
        max_output_tokens,
        choices: 1,
        stream: false,
        can_clamp: true,
        request_id: None,
        identity: None,
        asserted: std::collections::BTreeMap::new(),
        ip: None,
    }
}

fn item(number: u8, outcome: Outcome, output: Option<u64>) -> SettleItem {
    SettleItem {
        id: ReservationId::from_bytes([number; 16]),
        account: None,
        outcome,
        sent: true,
        usage: output.map(|output| Usage { output, ..Usage::default() }),
        model: None,
        service_tier: None,
        age_ms: 0,
        queued_ms: 0,
        reserve: Some(request(number, 10, Some(20))),
    }
}

fn limit<'a>(response: &'a ReserveResponse, name: &str) -> &'a LimitState {
    response.limits.iter().find(|limit| limit.name == name).unwrap()
}

impl Service {
    async fn settle(&self, item: SettleItem) -> SettleStatus {
        self.quota.settle(&[item]).await.unwrap().results[0].status
    }

    async fn used(&self, name: &str) -> u64 {
        let explained = self.quota.explain(&asked("t", Some("big"), None)).await.unwrap();
        explained.limits.iter().find(|limit| limit.name == name).unwrap().used
    }
}

#[tokio::test]
async fn an_allowed_request_is_told_how_it_stands() {
    let service = service();
    let response = service.quota.reserve(&request(1, 10, Some(20))).await;
    assert_eq!(response.decision, Decision::Allow);
    assert_eq!(response.account, Tag::account("t").to_string());
    assert_eq!(response.model.as_deref(), Some("big"));
    assert_eq!(response.grant.max_output_tokens, Some(20));
    assert!(response.reason.is_none() && response.retry_after_ms.is_none() && !response.degraded);
    let tpm = limit(&response, "tpm");
    assert_eq!((tpm.limit, tpm.remaining, tpm.reset_ms, tpm.window_ms), (100, 70, 50_000, 60_000));
    assert_eq!(tpm.plan.as_deref(), Some("basic"));
    assert_eq!((limit(&response, "rpm").remaining, limit(&response, "day").remaining), (2, 120));
    assert_eq!(service.quota.reserve(&request(2, 10, None)).await.grant.max_output_tokens, None);
    let capped = service.quota.reserve(&request(3, 0, Some(5_000))).await;
    assert_eq!(capped.reason, Some(Reason::RequestExceedsLimit));
}

#[tokio::test]
async fn a_refusal_names_the_limit_and_the_longest_wait() {
    let service = service();
    for number in 0..3 {
        service.quota.reserve(&request(number, 0, Some(10))).await;
    }
    let refused = service.quota.reserve(&request(9, 0, Some(10))).await;
    assert_eq!(refused.decision, Decision::Deny);
    assert_eq!(refused.reason, Some(Reason::RpmLimitExceeded));
    assert_eq!(refused.refused_by.as_deref(), Some("rpm"));
    assert_eq!(refused.retry_after_ms, Some(50_000));
    assert_eq!((limit(&refused, "rpm").remaining, limit(&refused, "tpm").remaining), (0, 70));
    assert_eq!(refused.account, "");
    // Both the minute's and the day's tokens are short: the day's wait is the longer one.
    service.clock.set(T0 + 60_000);
    service.quota.reserve(&request(4, 0, Some(95))).await;
    service.settle(item(4, Outcome::Used, Some(95))).await;
    let refused = service.quota.reserve(&request(5, 0, Some(60))).await;
    assert_eq!(refused.reason, Some(Reason::TpmLimitExceeded));
    assert_eq!(refused.refused_by.as_deref(), Some("day"));
    assert_eq!(refused.retry_after_ms, Some(86_400_000 - (T0 + 60_000) % 86_400_000));
    // What never fits comes before every wait.
    let never = service.quota.reserve(&request(6, 0, Some(101))).await;
    assert_eq!(never.reason, Some(Reason::RequestExceedsLimit));
    assert_eq!((never.refused_by.as_deref(), never.retry_after_ms), (Some("tpm"), None));
}

#[tokio::test]
async fn a_debt_shows_as_nothing_left() {
    let service = service();
    service.quota.reserve(&request(1, 10, Some(20))).await;
    assert_eq!(service.settle(item(1, Outcome::Used, Some(5_000))).await, SettleStatus::Settled);
    assert_eq!(service.used("tpm").await, 5_000);
    let refused = service.quota.reserve(&request(2, 0, Some(1))).await;
    assert_eq!((limit(&refused, "tpm").remaining, limit(&refused, "tpm").limit), (0, 100));
    let explained = service.quota.explain(&asked("t", Some("big"), None)).await.unwrap();
    assert_eq!((explained.limits[1].used, explained.limits[1].remaining), (5_000, 0));
}

#[tokio::test]
async fn every_outcome_settles_once() {
    for (outcome, sent, output, rpm, tpm) in [
        (Outcome::Used, true, Some(7), 1, 7),
        (Outcome::Estimated, true, Some(8), 1, 8),
        (Outcome::Held, true, None, 1, 30),
        (Outcome::Released, true, None, 1, 0),
        (Outcome::Released, false, None, 0, 0),
        (Outcome::Used, true, Some(u64::MAX), 1, 30),
    ] {
        let service = service();
        service.quota.reserve(&request(1, 10, Some(20))).await;
        let item = SettleItem { sent, ..item(1, outcome, output) };
        assert_eq!(service.settle(item.clone()).await, SettleStatus::Settled);
        assert_eq!(service.settle(item).await, SettleStatus::AlreadySettled);
        assert_eq!((service.used("rpm").await, service.used("tpm").await), (rpm, tpm), "{outcome:?}");
        assert_eq!(service.quota.explain(&asked("t", Some("big"), None)).await.unwrap().open_holds, 0);
    }
}

#[tokio::test]
async fn what_was_let_through_without_a_hold_is_booked() {
    for (outcome, output, status, rpm, tpm) in [
        (Outcome::Used, Some(7), SettleStatus::Booked, 1, 7),
        (Outcome::Held, None, SettleStatus::Booked, 1, 30),
        // It was sent: the request counts.
        (Outcome::Released, None, SettleStatus::Booked, 1, 0),
    ] {
        let service = service();
        assert_eq!(service.settle(item(1, outcome, output)).await, status);
        assert_eq!((service.used("rpm").await, service.used("tpm").await), (rpm, tpm), "{outcome:?}");
        let late = service.quota.reserve(&request(1, 10, Some(20))).await;
        assert_eq!(late.decision, Decision::Gone);
        assert_eq!(late.account, "");
    }
    let service = service();
    let old = SettleItem { age_ms: 3_900_000, ..item(1, Outcome::Used, Some(7)) };
    assert_eq!(service.settle(old).await, SettleStatus::Late);
    let nobody = SettleItem { reserve: None, ..item(1, Outcome::Used, Some(7)) };
    assert_eq!(service.settle(nobody).await, SettleStatus::Unknown);
    assert_eq!(service.used("tpm").await, 0);
}

#[tokio::test]
async fn account_alone_finds_the_hold() {
    let service = service();
    let account = service.quota.reserve(&request(1, 10, Some(20))).await.account;
    let item = SettleItem { account: Some(account), reserve: None, ..item(1, Outcome::Used, Some(7)) };
    assert_eq!(service.settle(item).await, SettleStatus::Settled);
    assert_eq!(service.used("tpm").await, 7);
}

#[tokio::test]
async fn explain_shows_one_row_per_key() {
    let service = service();
    service.quota.reserve(&request(1, 10, Some(20))).await;
    let explained = service.quota.explain(&asked("t", Some("big"), None)).await.unwrap();
    let rows: Vec<_> =
        explained.limits.iter().map(|row| (row.name.as_str(), row.scope.get("key"), row.used)).collect();
    let (a, b) = ("00000000".to_owned(), "10000000".to_owned());
    assert_eq!(rows, [("rpm", None, 1), ("tpm", None, 30), ("day", Some(&a), 30), ("day", Some(&b), 0)]);
    assert_eq!((explained.open_holds, explained.open_tokens), (1, 30));
    assert_eq!(service.quota.explain(&asked("t", None, None)).await.unwrap().limits.len(), 1);
    for (tenant, model, plan, message) in [
        ("nobody", None, None, "no caller can be this tenant"),
        ("t", Some("small"), None, "the policy has no such model"),
        ("t", None, Some("gold"), "the tenant cannot have this plan; its plans: basic"),
    ] {
        let error = service.quota.explain(&asked(tenant, model, plan)).await.unwrap_err();
        assert_eq!(error.to_string(), message);
    }
    let explained = service.quota.explain(&asked("two", None, Some("free"))).await.unwrap();
    assert_eq!(explained.plan.as_deref(), Some("free"));
}

#[tokio::test]
async fn an_open_reservation_is_extended() {
    let service = service();
    let account = service.quota.reserve(&request(1, 10, Some(20))).await.account;
    let item = |number: u8, account: &str, total| ExtendItem {
        id: ReservationId::from_bytes([number; 16]),
        account: account.to_owned(),
        hold_output_tokens: Some(total),
        lease: true,
    };
    let items = [
        item(9, &account, 30),
        item(1, "not an account", 30),
        item(1, &account, 91),
        item(1, &account, 30),
        item(1, &account, 25),
    ];
    let response = service.quota.extend(&items).await.unwrap();
    let results: Vec<_> =
        response.results.iter().map(|result| (result.status, result.hold_output_tokens)).collect();
    use ExtendStatus::*;
    assert_eq!(
        results,
        [(Unknown, None), (Unknown, None), (Deny, None), (Allow, Some(30)), (Allow, Some(30))]
    );
    assert!(response.results.iter().zip(&items).all(|(result, item)| result.id == item.id));
    assert_eq!(service.used("tpm").await, 40);
    assert_eq!(service.settle(item_used(1, 7)).await, SettleStatus::Settled);
    assert_eq!(service.used("tpm").await, 7);
}

fn item_used(number: u8, output: u64) -> SettleItem {
    item(number, Outcome::Used, Some(output))
}

/// Fails every call; keeps what it was asked to settle.
#[derive(Default)]
struct Broken {
    settled: Mutex<Vec<Settlement>>,
    /// Answers to the next reserves, last first.
    reserves: Mutex<Vec<Result<Reserved, StoreError>>>,
}

#[async_trait]
impl Store for Broken {
    async fn reserve(&self, _: &Hold, _: Duration) -> Result<Reserved, StoreError> {
        self.reserves.lock().unwrap().pop().unwrap_or(Err(StoreError::Timeout))
    }

    async fn settle(
        &self,
        batch: &[Settlement],
        _: TellSettled<'_>,
        _: Duration,
    ) -> Vec<Result<Closed, StoreError>> {
        self.settled.lock().unwrap().extend(batch.iter().cloned());
        batch.iter().map(|_| Err(StoreError::Timeout)).collect()
    }

    async fn delivered(&self, _: &[(Tag, ReservationId)], _: Duration) -> Result<(), StoreError> {
        Err(StoreError::Timeout)
    }

    async fn sweep(&self, _: &Sweep<'_>, _: Duration) -> Result<Swept, StoreError> {
        Err(StoreError::Timeout)
    }

    async fn explain(&self, _: Tag, _: Tag, _: &[Meter], _: Duration) -> Result<Explained, StoreError> {
        Err(StoreError::Timeout)
    }

    async fn extend(&self, batch: &[Extension], _: Duration) -> Vec<Result<Extended, StoreError>> {
        batch.iter().map(|_| Err(StoreError::Timeout)).collect()
    }

    async fn top_up(&self, _: &TopUp, _: Duration) -> Result<ToppedUp, StoreError> {
        Err(StoreError::Timeout)
    }

    async fn reset(&self, _: Tag, _: BucketId, _: Duration) -> Result<bool, StoreError> {
        Err(StoreError::Timeout)
    }

    async fn open_holds(&self, _: Tag, _: usize, _: Duration) -> Result<OpenHolds, StoreError> {
        Err(StoreError::Timeout)
    }

    async fn amend(&self, _: &Amendment, _: Duration) -> Result<Amended, StoreError> {
        Err(StoreError::Timeout)
    }

    async fn notes(&self, _: Duration) -> Result<Vec<String>, StoreError> {
        Err(StoreError::Timeout)
    }

    async fn note(&self, _: Tag, _: Option<&str>, _: Duration) -> Result<(), StoreError> {
        Err(StoreError::Timeout)
    }

    async fn ping(&self, _: Duration) -> Result<(), StoreError> {
        Err(StoreError::Timeout)
    }
}

#[tokio::test]
async fn a_store_that_fails_refuses_and_the_release_is_queued() {
    let store = Arc::new(Broken::default());
    let releases = ReleaseQueue::default();
    let quota = Quota::new(
        Policy::parse("p", POLICY).unwrap(),
        store.clone(),
        releases.clone(),
        Arc::new(SystemClock),
    );
    let refused = quota.reserve(&request(1, 10, Some(20))).await;
    assert_eq!(refused.decision, Decision::Deny);
    assert_eq!(refused.reason, Some(Reason::QuotaUnavailable));
    assert!(refused.limits.is_empty() && refused.retry_after_ms.is_none());
    assert!(!releases.is_empty());
    // Who was refused by the policy has nothing to be released.
    let unknown = ReserveRequest { key_hash: "f".repeat(64), ..request(2, 10, Some(20)) };
    assert_eq!(quota.reserve(&unknown).await.reason, Some(Reason::UnknownKey));

    let sender = tokio::spawn(releases.run(store.clone()));
    crate::store::tests::eventually("the release", || async { !store.settled.lock().unwrap().is_empty() })
        .await;
    sender.abort();
    let sent = store.settled.lock().unwrap().first().cloned().unwrap();
    assert_eq!((sent.id, sent.attempt), (ReservationId::from_bytes([1; 16]), Some(1)));
    assert!(quota.settle(&[item(1, Outcome::Held, None)]).await.is_err());
    let extend = ExtendItem {
        id: ReservationId::from_bytes([1; 16]),
        account: Tag::account("t").to_string(),
        hold_output_tokens: None,
        lease: true,
    };
    assert!(quota.extend(&[extend]).await.is_err());
    assert!(quota.ready().await.is_err());
}

/// When no record can be there any more, there is nothing to release.
#[tokio::test(start_paused = true)]
async fn a_release_that_never_succeeds_is_given_up() {
    let (store, releases) = (Arc::new(Broken::default()), ReleaseQueue::default());
    let policy = Policy::parse("p", POLICY).unwrap();
    let quota = Quota::new(policy, store.clone(), releases.clone(), Arc::new(SystemClock));
    quota.reserve(&request(1, 10, Some(20))).await;
    let sender = tokio::spawn(releases.clone().run(store.clone()));
    tokio::time::sleep(Duration::from_secs(69 * 60)).await;
    assert!(!releases.is_empty());
    tokio::time::sleep(Duration::from_secs(2 * 60)).await;
    assert!(releases.is_empty());
    assert!(store.settled.lock().unwrap().len() > 100);
    sender.abort();
}

/// The plan is made again once; a second time it is a failure, but nothing that has to be released.
#[tokio::test]
async fn a_calendar_that_turns_is_looked_at_again() {
    let held = Reserved {
        verdict: crate::store::Verdict::Held { grant: Some(20), replayed: false },
        now_ms: T0,
        limits: Vec::new(),
    };
    for (answers, decision) in [
        (vec![Ok(held), Err(StoreError::Boundary)], Decision::Allow),
        (vec![Err(StoreError::Boundary), Err(StoreError::Boundary)], Decision::Deny),
    ] {
        let store = Arc::new(Broken { reserves: Mutex::new(answers), ..Broken::default() });
        let releases = ReleaseQueue::default();
        let quota =
            Quota::new(Policy::parse("p", POLICY).unwrap(), store, releases.clone(), Arc::new(SystemClock));
        assert_eq!(quota.reserve(&request(1, 10, Some(20))).await.decision, decision);
        assert!(releases.is_empty());
    }
}
