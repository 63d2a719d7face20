use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use super::{Metrics, StoreCall, StoreOutcome};
use crate::store::{BucketId, Explained, Hold, Reserved, Settled, Settlement, Store, StoreError};
use crate::tag::Tag;

/// A store that tells the metrics how long it took.
pub struct TimedStore {
    store: Arc<dyn Store>,
    metrics: Arc<Metrics>,
}

impl TimedStore {
    pub fn new(store: Arc<dyn Store>, metrics: Arc<Metrics>) -> Self {
        Self { store, metrics }
    }

    fn took(&self, call: StoreCall, since: Instant, error: Option<&StoreError>) {
        let outcome = match error {
            None => StoreOutcome::Ok,
            Some(StoreError::Timeout) => StoreOutcome::Timeout,
            Some(StoreError::Unreachable(_)) => StoreOutcome::Unreachable,
            Some(StoreError::Refused(_)) => StoreOutcome::Refused,
            Some(_) => StoreOutcome::Unusable,
        };
        self.metrics.store_call(call, outcome, since.elapsed().as_secs_f64());
    }
}

#[async_trait]
impl Store for TimedStore {
    async fn reserve(&self, hold: &Hold, within: Duration) -> Result<Reserved, StoreError> {
        let since = Instant::now();
        let answer = self.store.reserve(hold, within).await;
        self.took(StoreCall::Reserve, since, answer.as_ref().err());
        answer
    }

    async fn settle(&self, batch: &[Settlement], within: Duration) -> Vec<Result<Settled, StoreError>> {
        let since = Instant::now();
        let answers = self.store.settle(batch, within).await;
        self.took(StoreCall::Settle, since, answers.iter().find_map(|answer| answer.as_ref().err()));
        answers
    }

    async fn explain(
        &self,
        account: Tag,
        model: Tag,
        buckets: &[(BucketId, u64)],
        within: Duration,
    ) -> Result<Explained, StoreError> {
        let since = Instant::now();
        let answer = self.store.explain(account, model, buckets, within).await;
        self.took(StoreCall::Explain, since, answer.as_ref().err());
        answer
    }

    async fn ping(&self, within: Duration) -> Result<(), StoreError> {
        let since = Instant::now();
        let answer = self.store.ping(within).await;
        self.took(StoreCall::Ping, since, answer.as_ref().err());
        answer
    }
}
