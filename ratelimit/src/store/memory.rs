//! Counts in the memory of this process, for one instance. One lock covers everything a decision touches.

mod change;
mod state;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokengate_api::ReservationId;

use super::decision::decide;
use super::lifetimes::ms;
use super::record::{Entry, Record};
use super::settlement::Stored;
use super::{
    AMENDMENT_LIFE, Amended, Amendment, BucketId, Change, Charge, Closed, Correction, Explained, Extended,
    Extension, Hold, KeptEvent, LapsedHold, Lifetimes, Meter, OpenHold, OpenHolds, Reserved, Settlement,
    Standing, Store, StoreError, Sweep, Swept, TellSettled, TopUp, ToppedUp, Verdict,
};
use state::{Key, State};

use crate::clock::Clock;
use crate::limits::{Account, Algorithm, Bucket, State as BucketState, Wait};
use crate::tag::Tag;

pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    lifetimes: Lifetimes,
    state: Mutex<State>,
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
        let grants: BTreeMap<_, BTreeMap<_, _>> =
            state.grants.iter().map(|(key, grants)| (key, grants.iter().collect())).collect();
        format!("{buckets:?} {records:?} {grants:?}")
    }

    /// The states of all buckets, and what is stored under all ids.
    #[cfg(test)]
    pub fn snapshot(&self) -> super::tests::Snapshot {
        let state = self.lock();
        let mut snapshot = super::tests::Snapshot::default();
        for ((_, bucket), kept) in &state.buckets {
            snapshot.buckets.insert(*bucket, kept.value.clone());
        }
        for ((_, id), kept) in &state.records {
            snapshot.records.insert(id.clone(), kept.value.clone());
        }
        snapshot
    }
}

/// One charge of a reserve, on its way.
struct Weighed<'a> {
    charge: &'a Charge,
    bucket: Bucket,
    amount: u64,
    fits: bool,
    wait: Wait,
}

impl Weighed<'_> {
    fn standing(&self) -> Standing {
        Standing { gauge: self.bucket.gauge(), would_deny: !self.fits, wait: self.wait }
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn reserve(&self, hold: &Hold, _within: Duration) -> Result<Reserved, StoreError> {
        let now = self.clock.now_ms();
        let mut state = self.lock();
        state.trim(now);
        let mut weighed = Vec::with_capacity(hold.charges.len());
        for charge in &hold.charges {
            let bucket = state.open(hold.account, &charge.meter, now)?;
            weighed.push(Weighed { charge, bucket, amount: 0, fits: true, wait: Wait::No });
        }
        let answer = |verdict, weighed: &[Weighed<'_>]| {
            let limits = weighed.iter().map(Weighed::standing).collect();
            Ok(Reserved { verdict, now_ms: now, limits })
        };
        if let Some(verdict) = state.earlier(hold, now) {
            return answer(verdict, &weighed);
        }
        let rooms: Vec<_> = weighed.iter().map(|weighed| weighed.bucket.room()).collect();
        let granted = decide(hold, &rooms);
        let output_tokens = granted.map_or(hold.output_tokens, |granted| granted.output_tokens);
        let mut entries = Vec::with_capacity(weighed.len());
        for Weighed { charge, bucket, amount, fits, wait } in &mut weighed {
            *amount = hold.amount(charge, output_tokens);
            *wait = bucket.wait(*amount);
            *fits = *wait == Wait::No;
            if charge.attempts {
                bucket.charge(&hold.id, *amount);
                if !*fits {
                    *wait = bucket.wait(*amount);
                }
            } else if granted.is_some() && *fits {
                let mark = bucket.charge(&hold.id, *amount);
                let Charge { meter, rates, shadow, priced, model, .. } = **charge;
                entries.push(Entry { meter, rates, shadow, priced, model, amount: *amount, mark });
            } else if granted.is_some() || !bucket.went_back() {
                continue;
            }
            state.keep_bucket(hold.account, charge.meter.bucket, bucket, now);
        }
        let Some(granted) = granted else { return answer(Verdict::Refused, &weighed) };
        let record = Record {
            attempt: hold.attempt,
            identity: hold.identity,
            model: hold.model,
            grant: granted.grant,
            prompt_tokens: hold.prompt_tokens,
            output_tokens,
            reserved_at_ms: Some(now),
            plan: Some(hold.plan),
            alternatives: hold.alternatives.clone(),
            entries,
        };
        state.keep_record(hold.account, &hold.id, Stored::Open(record), now, self.lifetimes.record);
        answer(Verdict::Held { grant: granted.grant, replayed: false }, &weighed)
    }

    async fn settle(
        &self,
        batch: &[Settlement],
        tell: TellSettled<'_>,
        _within: Duration,
    ) -> Vec<Result<Closed, StoreError>> {
        let settle = |(place, settlement)| {
            let mut closed = self.settle_one(settlement)?;
            closed.event = tell(place, &closed);
            Ok(closed)
        };
        batch.iter().enumerate().map(settle).collect()
    }

    /// Nothing is kept here that would outlive who is to deliver it.
    async fn delivered(&self, _: &[(Tag, ReservationId)], _within: Duration) -> Result<(), StoreError> {
        Ok(())
    }

    async fn sweep(&self, sweep: &Sweep<'_>, _within: Duration) -> Result<Swept, StoreError> {
        let now = self.clock.now_ms();
        let mut state = self.lock();
        while state.trim(now) {}
        let most = sweep.most_events.unwrap_or(usize::MAX).min(state.lapsed.len());
        let lapsed: Vec<_> = state.lapsed.drain(..most).collect();
        let event = |lapsed: &LapsedHold| {
            let LapsedHold { account, hold } = lapsed;
            Some(KeptEvent { account: *account, id: hold.id.clone(), line: (sweep.tell)(lapsed)? })
        };
        let events = lapsed.iter().filter_map(event).collect();
        Ok(Swept { next: None, lapsed, events })
    }

    async fn extend(&self, batch: &[Extension], _within: Duration) -> Vec<Result<Extended, StoreError>> {
        batch.iter().map(|extension| self.extend_one(extension)).collect()
    }

    async fn explain(
        &self,
        account: Tag,
        model: Tag,
        meters: &[Meter],
        _within: Duration,
    ) -> Result<Explained, StoreError> {
        let now = self.clock.now_ms();
        let state = self.lock();
        let gauge = |meter: &Meter| Ok::<_, StoreError>(state.open(account, meter, now)?.gauge());
        let gauges = meters.iter().map(gauge).collect::<Result<_, _>>()?;
        let mut explained = Explained { now_ms: now, gauges, open_holds: 0, open_tokens: 0 };
        for ((owner, _), kept) in &state.records {
            if let Stored::Open(record) = &kept.value
                && *owner == account
                && record.model == model
                && kept.until_ms > now
            {
                explained.open_holds += 1;
                explained.open_tokens = explained.open_tokens.saturating_add(record.tokens());
            }
        }
        Ok(explained)
    }

    async fn top_up(&self, top_up: &TopUp, _within: Duration) -> Result<ToppedUp, StoreError> {
        let mut state = self.lock();
        let now = self.clock.now_ms();
        let key = (top_up.bucket.home(top_up.account), top_up.bucket);
        let account = match state.bucket(top_up.account, top_up.bucket, now) {
            None => Account::default(),
            Some(BucketState::Balance(account)) => *account,
            Some(_) => return Err(StoreError::Format),
        };
        match state.grants.get(&key).and_then(|grants| grants.get(&top_up.grant_id)) {
            Some(amount) if *amount == top_up.amount => return Ok(ToppedUp::Already(account)),
            Some(_) => return Ok(ToppedUp::Conflict),
            None => {}
        }
        let Some(topped_up) = account.topped_up(top_up.amount) else { return Ok(ToppedUp::TooMuch) };
        state.grants.entry(key).or_default().insert(top_up.grant_id.clone(), top_up.amount);
        let bucket = Bucket::open(Algorithm::Balance, 0, Some(&BucketState::Balance(topped_up)), now)?;
        state.keep_bucket(top_up.account, top_up.bucket, &bucket, now);
        Ok(ToppedUp::Done(topped_up))
    }

    async fn reset(&self, account: Tag, bucket: BucketId, _within: Duration) -> Result<bool, StoreError> {
        let mut state = self.lock();
        let account = bucket.home(account);
        let Some(old) = state.buckets.remove(&(account, bucket)) else { return Ok(false) };
        state.expiries.remove(&(old.until_ms, Key::Bucket(account, bucket)));
        Ok(old.until_ms > self.clock.now_ms())
    }

    async fn open_holds(
        &self,
        account: Tag,
        most: usize,
        _within: Duration,
    ) -> Result<OpenHolds, StoreError> {
        let now = self.clock.now_ms();
        let mut oldest = Vec::new();
        for ((owner, id), kept) in &self.lock().records {
            if let Stored::Open(record) = &kept.value
                && *owner == account
                && kept.until_ms > now
            {
                let reserved_at_ms = kept.until_ms.saturating_sub(ms(self.lifetimes.record));
                let (model, tokens) = (record.model, record.tokens());
                oldest.push(OpenHold { id: id.clone(), model, tokens, reserved_at_ms });
            }
        }
        oldest.sort_unstable_by(|a, b| (a.reserved_at_ms, &a.id).cmp(&(b.reserved_at_ms, &b.id)));
        let total = oldest.len().try_into().unwrap_or(u64::MAX);
        oldest.truncate(most);
        Ok(OpenHolds { total, oldest })
    }

    async fn amend(&self, amendment: &Amendment, _within: Duration) -> Result<Amended, StoreError> {
        let now = self.clock.now_ms();
        let mut state = self.lock();
        let Amendment { account, id, correction: Correction { meter, change } } = amendment;
        let name = (meter.bucket.home(*account), *id);
        let fingerprint = amendment.fingerprint();
        state.amendments.retain(|_, (_, until_ms)| *until_ms > now);
        match state.amendments.get(&name) {
            Some((earlier, _)) if *earlier == fingerprint => return Ok(Amended::Already),
            Some(_) => return Ok(Amended::Conflict),
            None => {}
        }
        let stored = state.bucket(*account, meter.bucket, now);
        let mut bucket = Bucket::open_to_correct(meter.algorithm, meter.limit, stored, now)?;
        let before = bucket.state();
        match change {
            Change::Excess { amount } => bucket.excess(*amount),
            Change::GiveBack { amount } => bucket.give_back(*amount),
            Change::Refund { .. } => return Err(StoreError::Format),
        }
        if bucket.state() != before {
            state.keep_bucket(*account, meter.bucket, &bucket, now);
        }
        state.amendments.insert(name, (fingerprint, now.saturating_add(ms(AMENDMENT_LIFE))));
        Ok(Amended::Done)
    }

    async fn notes(&self, _within: Duration) -> Result<Vec<String>, StoreError> {
        Ok(self.lock().notes.values().cloned().collect())
    }

    async fn note(&self, name: Tag, text: Option<&str>, _within: Duration) -> Result<(), StoreError> {
        let mut state = self.lock();
        match text {
            Some(text) => state.notes.insert(name, text.to_owned()),
            None => state.notes.remove(&name),
        };
        Ok(())
    }

    async fn forget_note(&self, name: Tag, text: &str, _within: Duration) -> Result<bool, StoreError> {
        let mut state = self.lock();
        let same = state.notes.get(&name).is_some_and(|noted| noted == text);
        if same {
            state.notes.remove(&name);
        }
        Ok(same)
    }

    async fn ping(&self, _within: Duration) -> Result<(), StoreError> {
        Ok(())
    }
}
