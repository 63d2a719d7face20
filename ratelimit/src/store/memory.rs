//! Counts in the memory of this process, for one instance. One lock covers everything a decision touches.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokengate_api::ReservationId;

use super::decision::decide;
use super::extension::{Growth, growth};
use super::lifetimes::ms;
use super::record::{Entry, Record};
use super::settlement::{Change, Correction, Step, Stored, step};
use super::{
    BucketId, Charge, Explained, Extended, Extension, Hold, Lifetimes, Meter, Reserved, Settled, Settlement,
    Standing, Store, StoreError, TopUp, ToppedUp, Verdict,
};
use crate::clock::Clock;
use crate::limits::{Account, Algorithm, Bucket, State as BucketState, Wait};
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
    buckets: HashMap<(Tag, BucketId), Kept<BucketState>>,
    records: HashMap<(Tag, ReservationId), Kept<Stored>>,
    /// Amounts of the top-ups of a balance, by their ids. Never thrown away.
    grants: HashMap<(Tag, BucketId), HashMap<String, u64>>,
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

    fn settle_one(&self, settlement: &Settlement) -> Result<Settled, StoreError> {
        let now = self.clock.now_ms();
        let mut state = self.lock();
        state.trim(now);
        let Settlement { account, id, .. } = settlement;
        let stored = state.record(*account, id, now);
        let (settled, corrections) = match step(settlement, &stored, &self.lifetimes) {
            Step::Answer(answer) => return Ok(answer),
            Step::Replace(corrections) => (Settled::Replaced, corrections),
            Step::Book(corrections) => (Settled::Booked, corrections),
            Step::Refuse { attempt } => {
                let tombstone = Stored::Refused { attempt };
                state.keep_record(*account, id, tombstone, now, self.lifetimes.refused);
                return Ok(Settled::Unknown);
            }
        };
        // Of a copy: a bucket that cannot be read must leave the others as they are.
        let mut buckets = HashMap::new();
        for Correction { meter, change } in &corrections {
            let stored = buckets.get(&meter.bucket).or_else(|| state.bucket(*account, meter.bucket, now));
            let mut bucket = Bucket::open_to_correct(meter.algorithm, meter.limit, stored, now)?;
            let before = bucket.state();
            match change {
                Change::Refund { mark, amount } => bucket.refund(id, mark, *amount),
                Change::Excess { amount } => bucket.excess(*amount),
            }
            if bucket.state() != before {
                buckets.insert(meter.bucket, bucket.state());
            }
        }
        for Correction { meter, .. } in &corrections {
            if let Some(corrected) = buckets.remove(&meter.bucket) {
                let bucket = Bucket::open_to_correct(meter.algorithm, meter.limit, Some(&corrected), now)?;
                state.keep_bucket(*account, meter.bucket, &bucket, now);
            }
        }
        state.keep_record(*account, id, Stored::Settled, now, self.lifetimes.settled);
        Ok(settled)
    }

    fn extend_one(&self, extension: &Extension) -> Result<Extended, StoreError> {
        let now = self.clock.now_ms();
        let mut state = self.lock();
        state.trim(now);
        let Extension { account, id, .. } = extension;
        let Stored::Open(mut record) = state.record(*account, id, now) else { return Ok(Extended::Unknown) };
        let (output_tokens, charges) = match growth(&record, extension) {
            Growth::Nothing => return Ok(Extended::Held { output_tokens: record.output_tokens }),
            Growth::TooMuch => return Ok(Extended::Refused),
            Growth::By { output_tokens, charges } => (output_tokens, charges),
        };
        let mut changed = Vec::with_capacity(charges.len());
        for mut entry in charges {
            let Meter { bucket: at, algorithm, limit } = entry.meter;
            let mut bucket = Bucket::open(algorithm, limit, state.bucket(*account, at, now), now)?;
            if matches!(bucket.state(), BucketState::Concurrency(_)) {
                if !bucket.renew(id, entry.shadow) {
                    return Ok(Extended::Refused);
                }
            } else if bucket.fits(entry.amount) {
                entry.mark = bucket.charge(id, entry.amount);
                record.entries.push(entry);
            } else if entry.shadow {
                continue;
            } else {
                return Ok(Extended::Refused);
            }
            changed.push((at, bucket));
        }
        for (at, bucket) in changed {
            state.keep_bucket(*account, at, &bucket, now);
        }
        record.output_tokens = output_tokens;
        if let Some(kept) = state.records.get_mut(&(*account, id.clone())) {
            kept.value = Stored::Open(record);
        }
        Ok(Extended::Held { output_tokens })
    }
}

impl State {
    fn record(&self, account: Tag, id: &ReservationId, now: u64) -> Stored {
        match self.records.get(&(account, id.clone())) {
            Some(kept) if kept.until_ms > now => kept.value.clone(),
            _ => Stored::Absent,
        }
    }

    fn bucket(&self, account: Tag, bucket: BucketId, now: u64) -> Option<&BucketState> {
        self.buckets.get(&(account, bucket)).filter(|kept| kept.until_ms > now).map(|kept| &kept.value)
    }

    fn open(&self, account: Tag, meter: &Meter, now: u64) -> Result<Bucket, StoreError> {
        let stored = self.bucket(account, meter.bucket, now);
        Ok(Bucket::open(meter.algorithm, meter.limit, stored, now)?)
    }

    fn keep_bucket(&mut self, account: Tag, at: BucketId, bucket: &Bucket, now: u64) {
        let until_ms = bucket.keep_ms().map_or(u64::MAX, |keep| now.saturating_add(keep));
        let key = Key::Bucket(account, at);
        if let Some(old) = self.buckets.insert((account, at), Kept { value: bucket.state(), until_ms }) {
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

    /// What a reserve finds under its id: an answer, or nothing that stands in its way.
    fn earlier(&mut self, hold: &Hold, now: u64) -> Option<Verdict> {
        match self.record(hold.account, &hold.id, now) {
            Stored::Settled => Some(Verdict::Gone),
            Stored::Refused { attempt } if hold.attempt <= attempt => Some(Verdict::Gone),
            Stored::Open(record) if record.identity != hold.identity => Some(Verdict::Gone),
            Stored::Open(record) => {
                if let Some(Kept { value: Stored::Open(record), .. }) =
                    self.records.get_mut(&(hold.account, hold.id.clone()))
                {
                    record.attempt = record.attempt.max(hold.attempt);
                }
                Some(Verdict::Held { grant: record.grant, replayed: true })
            }
            Stored::Absent | Stored::Refused { .. } => None,
        }
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
                let Charge { meter, rates, shadow, .. } = **charge;
                entries.push(Entry { meter, rates, shadow, amount: *amount, mark });
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
            entries,
        };
        state.keep_record(hold.account, &hold.id, Stored::Open(record), now, self.lifetimes.record);
        answer(Verdict::Held { grant: granted.grant, replayed: false }, &weighed)
    }

    async fn settle(&self, batch: &[Settlement], _within: Duration) -> Vec<Result<Settled, StoreError>> {
        batch.iter().map(|settlement| self.settle_one(settlement)).collect()
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
        let key = (top_up.account, top_up.bucket);
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
        let Some(old) = state.buckets.remove(&(account, bucket)) else { return Ok(false) };
        state.expiries.remove(&(old.until_ms, Key::Bucket(account, bucket)));
        Ok(old.until_ms > self.clock.now_ms())
    }

    async fn ping(&self, _within: Duration) -> Result<(), StoreError> {
        Ok(())
    }
}
