use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokengate_api::ReservationId;
use tokio::time::Instant;

use super::{Metrics, StoreCall, StoreOutcome};
use crate::store::{
    Amended, Amendment, BucketId, Closed, Explained, Extended, Extension, Hold, Meter, OpenHolds, Reserved,
    Settlement, Store, StoreError, Sweep, Swept, TellSettled, TopUp, ToppedUp,
};
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

    async fn settle(
        &self,
        batch: &[Settlement],
        tell: TellSettled<'_>,
        within: Duration,
    ) -> Vec<Result<Closed, StoreError>> {
        let since = Instant::now();
        let answers = self.store.settle(batch, tell, within).await;
        self.took(StoreCall::Settle, since, answers.iter().find_map(|answer| answer.as_ref().err()));
        answers
    }

    async fn delivered(&self, events: &[(Tag, ReservationId)], within: Duration) -> Result<(), StoreError> {
        let since = Instant::now();
        let answer = self.store.delivered(events, within).await;
        self.took(StoreCall::Delivered, since, answer.as_ref().err());
        answer
    }

    async fn sweep(&self, sweep: &Sweep<'_>, within: Duration) -> Result<Swept, StoreError> {
        let since = Instant::now();
        let answer = self.store.sweep(sweep, within).await;
        self.took(StoreCall::Sweep, since, answer.as_ref().err());
        answer
    }

    async fn extend(&self, batch: &[Extension], within: Duration) -> Vec<Result<Extended, StoreError>> {
        let since = Instant::now();
        let answers = self.store.extend(batch, within).await;
        self.took(StoreCall::Extend, since, answers.iter().find_map(|answer| answer.as_ref().err()));
        answers
    }

    async fn explain(
        &self,
        account: Tag,
        model: Tag,
        meters: &[Meter],
        within: Duration,
    ) -> Result<Explained, StoreError> {
        let since = Instant::now();
        let answer = self.store.explain(account, model, meters, within).await;
        self.took(StoreCall::Explain, since, answer.as_ref().err());
        answer
    }

    async fn top_up(&self, top_up: &TopUp, within: Duration) -> Result<ToppedUp, StoreError> {
        let since = Instant::now();
        let answer = self.store.top_up(top_up, within).await;
        self.took(StoreCall::TopUp, since, answer.as_ref().err());
        answer
    }

    async fn reset(&self, account: Tag, bucket: BucketId, within: Duration) -> Result<bool, StoreError> {
        let since = Instant::now();
        let answer = self.store.reset(account, bucket, within).await;
        self.took(StoreCall::Reset, since, answer.as_ref().err());
        answer
    }

    async fn open_holds(&self, account: Tag, most: usize, within: Duration) -> Result<OpenHolds, StoreError> {
        let since = Instant::now();
        let answer = self.store.open_holds(account, most, within).await;
        self.took(StoreCall::OpenHolds, since, answer.as_ref().err());
        answer
    }

    async fn amend(&self, amendment: &Amendment, within: Duration) -> Result<Amended, StoreError> {
        let since = Instant::now();
        let answer = self.store.amend(amendment, within).await;
        self.took(StoreCall::Amend, since, answer.as_ref().err());
        answer
    }

    async fn notes(&self, within: Duration) -> Result<Vec<String>, StoreError> {
        let since = Instant::now();
        let answer = self.store.notes(within).await;
        self.took(StoreCall::Notes, since, answer.as_ref().err());
        answer
    }

    async fn note(&self, name: Tag, text: Option<&str>, within: Duration) -> Result<(), StoreError> {
        let since = Instant::now();
        let answer = self.store.note(name, text, within).await;
        self.took(StoreCall::Notes, since, answer.as_ref().err());
        answer
    }

    async fn forget_note(&self, name: Tag, text: &str, within: Duration) -> Result<bool, StoreError> {
        let since = Instant::now();
        let answer = self.store.forget_note(name, text, within).await;
        self.took(StoreCall::Notes, since, answer.as_ref().err());
        answer
    }

    async fn ping(&self, within: Duration) -> Result<(), StoreError> {
        let since = Instant::now();
        let answer = self.store.ping(within).await;
        self.took(StoreCall::Ping, since, answer.as_ref().err());
        answer
    }
}
