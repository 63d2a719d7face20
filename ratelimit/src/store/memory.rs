//! Counts in the memory of this process, for one instance. One lock covers everything a decision touches.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokengate_api::ReservationId;

use super::lifetimes::ms;
use super::record::{Entry, Record};
use super::settlement::{Change, Correction, Step, Stored, step};
use super::{
    BucketId, Explained, Hold, Lifetimes, Reserved, Settled, Settlement, Store, StoreError, Verdict,
};
use crate::clock::Clock;
use crate::limits::fixed_window::Window;
use crate::tag::Tag;

/// Entries thrown away per call at most: more than a call can add, so that the past cannot pile up.
const TRIMS_PER_CALL: usize = 32;

pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    lifetimes: Lifetimes,
    state: Mutex<State>,
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct State {
    buckets: HashMap<(Tag, BucketId), Kept<Window>>,
    records: HashMap<(Tag, ReservationId), Kept<Stored>>,
    /// When what may be thrown away, soonest first; exactly one entry for everything above.
    expiries: BTreeSet<(u64, Key)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Kept<T> {
    value: T,
    until_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Bucket(Tag, BucketId),
    Record(Tag, ReservationId),
}

impl MemoryStore {
    pub fn new(clock: Arc<dyn Clock>, lifetimes: Lifetimes) -> Self {
        Self { clock, lifetimes, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is written after all is decided, so a panic elsewhere leaves a whole state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All that is kept, in a fixed order.
    #[cfg(test)]
    pub fn dump(&self) -> String {
        use std::collections::BTreeMap;
        let state = self.lock();
        let buckets: BTreeMap<_, _> = state.buckets.iter().collect();
        let records: BTreeMap<_, _> = state.records.iter().collect();
        assert_eq!(state.expiries.len(), buckets.len() + records.len());
        format!("{buckets:?} {records:?}")
    }

    fn settle_one(&self, settlement: &Settlement) -> Settled {
        let now = self.clock.now_ms();
        let mut state = self.lock();
        state.trim(now);
        let account = settlement.account;
        let id = &settlement.id;
        let stored = state.record(account, id, now);
        match step(settlement, &stored, &self.lifetimes) {
            Step::Answer(answer) => answer,
            Step::Replace(corrections) => {
                state.correct(account, &corrections, now);
                state.keep_record(account, id, Stored::Settled, now, self.lifetimes.settled);
                Settled::Replaced
            }
            Step::Book(corrections) => {
                state.correct(account, &corrections, now);
                state.keep_record(account, id, Stored::Settled, now, self.lifetimes.settled);
                Settled::Booked
            }
            Step::Refuse { attempt } => {
                let tombstone = Stored::Refused { attempt };
                state.keep_record(account, id, tombstone, now, self.lifetimes.refused);
                Settled::Unknown
            }
        }
    }
}

impl State {
    fn record(&self, account: Tag, id: &ReservationId, now: u64) -> Stored {
        match self.records.get(&(account, id.clone())) {
            Some(kept) if kept.until_ms > now => kept.value.clone(),
            _ => Stored::Absent,
        }
    }

    fn window(&self, account: Tag, bucket: BucketId, now: u64, length_ms: u64) -> Window {
        let stored = self.buckets.get(&(account, bucket)).filter(|kept| kept.until_ms > now);
        Window::current(stored.map(|kept| kept.value), now, length_ms)
    }

    fn keep_window(&mut self, account: Tag, bucket: BucketId, window: Window, now: u64, length_ms: u64) {
        let until_ms = now.saturating_add(window.keep_ms(now, length_ms));
        let key = Key::Bucket(account, bucket);
        if let Some(old) = self.buckets.insert((account, bucket), Kept { value: window, until_ms }) {
            self.expiries.remove(&(old.until_ms, key.clone()));
        }
        self.expiries.insert((until_ms, key));
    }

    fn keep_record(&mut self, account: Tag, id: &ReservationId, value: Stored, now: u64, life: Duration) {
        let until_ms = now.saturating_add(ms(life));
        let key = Key::Record(account, id.clone());
        if let Some(old) = self.records.insert((account, id.clone()), Kept { value, until_ms }) {
            self.expiries.remove(&(old.until_ms, key.clone()));
        }
        self.expiries.insert((until_ms, key));
    }

    fn correct(&mut self, account: Tag, corrections: &[Correction], now: u64) {
        for Correction { bucket, window_ms, change } in corrections {
            let before = self.window(account, *bucket, now, *window_ms);
            let mut window = before;
            match *change {
                Change::Refund { start_ms, amount } => window.refund(start_ms, amount),
                Change::Excess { amount } => window.charge(amount),
            }
            if window == before {
                continue;
            }
            self.keep_window(account, *bucket, window, now, *window_ms);
        }
    }

    fn trim(&mut self, now: u64) {
        for _ in 0..TRIMS_PER_CALL {
            let Some((until_ms, key)) = self.expiries.pop_first() else { return };
            if until_ms > now {
                self.expiries.insert((until_ms, key));
                return;
            }
            match key {
                Key::Bucket(account, bucket) => {
                    self.buckets.remove(&(account, bucket));
                }
                Key::Record(account, id) => {
                    self.records.remove(&(account, id));
                }
            }
        }
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn reserve(&self, hold: &Hold, _within: Duration) -> Result<Reserved, StoreError> {
        let now = self.clock.now_ms();
        let mut state = self.lock();
        state.trim(now);
        let window =
            |charge: &super::Charge| state.window(hold.account, charge.bucket, now, charge.window_ms);
        let mut windows: Vec<_> = hold.charges.iter().map(window).collect();
        let answer = |verdict, windows| Ok(Reserved { verdict, now_ms: now, windows });
        match state.record(hold.account, &hold.id, now) {
            Stored::Settled => return answer(Verdict::Gone, windows),
            Stored::Refused { attempt } if hold.attempt <= attempt => return answer(Verdict::Gone, windows),
            Stored::Open(record) if record.identity != hold.identity => {
                return answer(Verdict::Gone, windows);
            }
            Stored::Open(record) => {
                let verdict = Verdict::Held { grant: record.grant, replayed: true };
                if let Some(Kept { value: Stored::Open(record), .. }) =
                    state.records.get_mut(&(hold.account, hold.id.clone()))
                {
                    record.attempt = record.attempt.max(hold.attempt);
                }
                return answer(verdict, windows);
            }
            Stored::Absent | Stored::Refused { .. } => {}
        }
        let fits = |(window, charge): (&Window, &super::Charge)| window.fits(charge.amount, charge.limit);
        if !windows.iter().zip(&hold.charges).all(fits) {
            return answer(Verdict::Refused, windows);
        }
        let mut entries = Vec::with_capacity(windows.len());
        for (window, charge) in windows.iter_mut().zip(&hold.charges) {
            window.charge(charge.amount);
            entries.push(Entry {
                bucket: charge.bucket,
                metric: charge.metric,
                amount: charge.amount,
                window_ms: charge.window_ms,
                start_ms: window.start_ms,
            });
            state.keep_window(hold.account, charge.bucket, *window, now, charge.window_ms);
        }
        let record = Record {
            attempt: hold.attempt,
            identity: hold.identity,
            model: hold.model,
            grant: hold.grant,
            tokens: hold.tokens,
            entries,
        };
        state.keep_record(hold.account, &hold.id, Stored::Open(record), now, self.lifetimes.record);
        answer(Verdict::Held { grant: hold.grant, replayed: false }, windows)
    }

    async fn settle(&self, batch: &[Settlement], _within: Duration) -> Vec<Result<Settled, StoreError>> {
        batch.iter().map(|settlement| Ok(self.settle_one(settlement))).collect()
    }

    async fn explain(
        &self,
        account: Tag,
        model: Tag,
        buckets: &[(BucketId, u64)],
        _within: Duration,
    ) -> Result<Explained, StoreError> {
        let now = self.clock.now_ms();
        let state = self.lock();
        let windows = buckets
            .iter()
            .map(|(bucket, length_ms)| state.window(account, *bucket, now, *length_ms))
            .collect();
        let mut explained = Explained { now_ms: now, windows, open_holds: 0, open_tokens: 0 };
        for ((owner, _), kept) in &state.records {
            if let Stored::Open(record) = &kept.value
                && *owner == account
                && record.model == model
                && kept.until_ms > now
            {
                explained.open_holds += 1;
                explained.open_tokens = explained.open_tokens.saturating_add(record.tokens);
            }
        }
        Ok(explained)
    }

    async fn ping(&self, _within: Duration) -> Result<(), StoreError> {
        Ok(())
    }
}
