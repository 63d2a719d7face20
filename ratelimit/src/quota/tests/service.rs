//! The service over each store, with the clock and the events in the test's hand.

use std::collections::BTreeMap;

use serde_json::Value;

use super::*;
use crate::events::{Events, PseudonymKey, Queue};
use crate::metrics::Metrics;
use crate::store::redis::RedisStore;
use crate::store::tests::eventually;
use crate::store::tests::redis_server::RedisServer;

/// Keys of callers by one hex digit.
pub fn key(digit: char) -> String {
    format!("{digit:0>64}")
}

pub struct Running {
    pub quota: Arc<Quota>,
    pub clock: Arc<ManualClock>,
    events: Queue,
    /// Kept for as long as it is asked.
    pub redis: Option<RedisServer>,
}

impl Running {
    pub fn in_memory(policy: &str) -> Self {
        let clock = Arc::new(ManualClock::new(T0));
        let store = Arc::new(MemoryStore::new(clock.clone(), Lifetimes::default()));
        Self::with(policy, clock, store, None)
    }

    pub async fn on_redis(policy: &str) -> Self {
        let (clock, server) = (Arc::new(ManualClock::new(T0)), RedisServer::start());
        let lifetimes = Lifetimes::default();
        let store = RedisStore::connect_with_given_time(&server.url, "t", clock.clone(), lifetimes).await;
        Self::with(policy, clock, Arc::new(store.unwrap()), Some(server))
    }

    /// One over each store.
    pub async fn both(policy: &str) -> [Self; 2] {
        [Self::in_memory(policy), Self::on_redis(policy).await]
    }

    fn with(
        policy: &str,
        clock: Arc<ManualClock>,
        store: Arc<dyn Store>,
        redis: Option<RedisServer>,
    ) -> Self {
        let metrics = Arc::new(Metrics::default());
        let queue = Queue::new(100, metrics.clone());
        let events = Events::new(PseudonymKey::new("secret").unwrap(), clock.clone(), queue.clone());
        let policy = Policy::parse("p", policy).unwrap();
        let quota = Quota::new(policy, store, ReleaseQueue::default(), clock.clone())
            .with_telemetry(Telemetry { metrics, events: Some(events) });
        Self { quota: Arc::new(quota), clock, events: queue, redis }
    }

    pub fn replace_policy(&self, policy: &str) {
        self.quota.replace_policy(Policy::parse("p", policy).unwrap());
    }

    pub async fn reserve(&self, request: &ReserveRequest) -> ReserveResponse {
        self.quota.reserve(request).await
    }

    /// What a limit says of its use, by its name; of the first row where it has several.
    pub async fn used(&self, asked: &Asked<'_>) -> BTreeMap<String, u64> {
        let mut used = BTreeMap::new();
        for row in self.quota.explain(asked).await.unwrap().limits {
            used.entry(row.name).or_insert(row.used);
        }
        used
    }

    pub async fn settle(&self, item: SettleItem) -> SettleStatus {
        self.quota.settle(&[item]).await.unwrap().results[0].status
    }

    /// Sends the releases that wait.
    pub async fn release_all(&self) {
        let sender = tokio::spawn(self.quota.releases.clone().run(Arc::clone(&self.quota.store)));
        eventually("the releases", || async { self.quota.releases.is_empty() }).await;
        sender.abort();
    }

    pub fn metrics(&self) -> String {
        self.quota.telemetry().metrics.text().unwrap()
    }

    /// The events since the last look.
    pub fn events(&self) -> Vec<Value> {
        let lines = self.events.take(100);
        self.events.done(crate::metrics::EventOutcome::Written);
        lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// Uses of limits, by name.
pub fn uses(expected: &[(&str, u64)]) -> BTreeMap<String, u64> {
    expected.iter().map(|(name, used)| ((*name).to_owned(), *used)).collect()
}

/// A settle of what `account` holds.
pub fn usage_of(number: u8, account: &str, input: u64, output: u64) -> SettleItem {
    SettleItem {
        account: Some(account.to_owned()),
        reserve: None,
        usage: Some(Usage { input, output, ..Usage::default() }),
        ..item(number, Outcome::Used, None)
    }
}
