//! What is kept, and until when.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use tokengate_api::ReservationId;

use super::super::decision::same_request;
use super::super::lifetimes::ms;
use super::super::record::Record;
use super::super::settlement::Stored;
use super::super::{BucketId, Hold, LapsedHold, Meter, OpenHold, StoreError, Verdict};
use crate::limits::{Bucket, BucketState};
use crate::tag::Tag;

/// More lapsed holds than this wait for no sweep: the oldest goes.
const MOST_LAPSED: usize = 100_000;

/// Entries thrown away per call at most: more than a call can add, so that the past cannot pile up.
const TRIMS_PER_CALL: usize = 32;

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct State {
    pub buckets: HashMap<(Tag, BucketId), Kept<BucketState>>,
    pub records: HashMap<(Tag, ReservationId), Kept<Stored>>,
    /// Amounts of the top-ups of a balance, by their ids. Never thrown away.
    pub grants: HashMap<(Tag, BucketId), HashMap<String, u64>>,
    /// What operators' changes were, and until when that is remembered.
    pub amendments: HashMap<(Tag, Tag), (Tag, u64)>,
    pub notes: BTreeMap<Tag, String>,
    /// The open ones among the records, by account, soonest to lapse first.
    pub open: HashMap<Tag, BTreeSet<(u64, ReservationId)>>,
    /// Holds that nobody settled in time, until a sweep takes them.
    pub lapsed: VecDeque<LapsedHold>,
    /// When what may be thrown away, soonest first; exactly one entry for everything above.
    pub expiries: BTreeSet<(u64, Key)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept<T> {
    pub value: T,
    pub until_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    Bucket(Tag, BucketId),
    Record(Tag, ReservationId),
}

impl State {
    pub fn record(&self, account: Tag, id: &ReservationId, now: u64) -> Stored {
        match self.records.get(&(account, id.clone())) {
            Some(kept) if kept.until_ms > now => kept.value.clone(),
            _ => Stored::Absent,
        }
    }

    pub fn bucket(&self, account: Tag, bucket: BucketId, now: u64) -> Option<&BucketState> {
        self.buckets
            .get(&(bucket.home(account), bucket))
            .filter(|kept| kept.until_ms > now)
            .map(|kept| &kept.value)
    }

    pub fn open(&self, account: Tag, meter: &Meter, now: u64) -> Result<Bucket, StoreError> {
        let stored = self.bucket(account, meter.bucket, now);
        Ok(Bucket::open(meter.algorithm, meter.limit, stored, now)?)
    }

    pub fn keep_bucket(&mut self, account: Tag, at: BucketId, bucket: &Bucket, now: u64) {
        let until_ms = bucket.keep_ms().map_or(u64::MAX, |keep| now.saturating_add(keep));
        let account = at.home(account);
        let key = Key::Bucket(account, at);
        if let Some(old) = self.buckets.insert((account, at), Kept { value: bucket.state(), until_ms }) {
            self.expiries.remove(&(old.until_ms, key.clone()));
        }
        self.expiries.insert((until_ms, key));
    }

    pub fn keep_record(&mut self, account: Tag, id: &ReservationId, value: Stored, now: u64, life: Duration) {
        let until_ms = now.saturating_add(ms(life));
        let key = Key::Record(account, id.clone());
        let is_open = matches!(value, Stored::Open(_));
        if let Some(old) = self.records.insert((account, id.clone()), Kept { value, until_ms }) {
            self.expiries.remove(&(old.until_ms, key.clone()));
            self.no_longer_open(account, old.until_ms, id);
            if old.until_ms <= now {
                self.lapse(account, id, old.value);
            }
        }
        if is_open {
            self.open.entry(account).or_default().insert((until_ms, id.clone()));
        }
        self.expiries.insert((until_ms, key));
    }

    fn no_longer_open(&mut self, account: Tag, until_ms: u64, id: &ReservationId) {
        if let Some(open) = self.open.get_mut(&account) {
            open.remove(&(until_ms, id.clone()));
            if open.is_empty() {
                self.open.remove(&account);
            }
        }
    }

    /// Open records of an account with when they lapse, the oldest first.
    pub fn open_records(
        &self,
        account: Tag,
        now: u64,
    ) -> impl Iterator<Item = (&ReservationId, &Record, u64)> {
        let open = self.open.get(&account).into_iter().flatten();
        open.skip_while(move |(until_ms, _)| *until_ms <= now).filter_map(move |(until_ms, id)| {
            match &self.records.get(&(account, id.clone()))?.value {
                Stored::Open(record) => Some((id, record, *until_ms)),
                _ => None,
            }
        })
    }

    pub fn open_count(&self, account: Tag, now: u64) -> u64 {
        let Some(open) = self.open.get(&account) else { return 0 };
        let lapsed = open.iter().take_while(|(until_ms, _)| *until_ms <= now).count();
        u64::try_from(open.len() - lapsed).unwrap_or(u64::MAX)
    }

    /// Throws away what is over; whether there may be more of it.
    pub fn trim(&mut self, now: u64) -> bool {
        for _ in 0..TRIMS_PER_CALL {
            let Some((until_ms, key)) = self.expiries.pop_first() else { return false };
            if until_ms > now {
                self.expiries.insert((until_ms, key));
                return false;
            }
            match key {
                Key::Bucket(account, bucket) => {
                    self.buckets.remove(&(account, bucket));
                }
                Key::Record(account, id) => {
                    if let Some(Kept { value, .. }) = self.records.remove(&(account, id.clone())) {
                        self.no_longer_open(account, until_ms, &id);
                        self.lapse(account, &id, value);
                    }
                }
            }
        }
        true
    }

    /// Remembers a record that is over, if it was open.
    fn lapse(&mut self, account: Tag, id: &ReservationId, value: Stored) {
        if let Stored::Open(record) = value {
            let reserved_at_ms = record.reserved_at_ms.unwrap_or(0);
            let (id, model, tokens) = (id.clone(), record.model, record.tokens());
            self.lapsed
                .push_back(LapsedHold { account, hold: OpenHold { id, model, tokens, reserved_at_ms } });
            if self.lapsed.len() > MOST_LAPSED {
                self.lapsed.pop_front();
            }
        }
    }

    /// What a reserve finds under its id: an answer, or nothing that stands in its way.
    pub fn earlier(&mut self, hold: &Hold, now: u64) -> Option<Verdict> {
        match self.record(hold.account, &hold.id, now) {
            Stored::Settled => Some(Verdict::Gone),
            Stored::Refused { attempt } if hold.attempt <= attempt => Some(Verdict::Gone),
            Stored::Open(record) if !same_request(&record, hold) => Some(Verdict::Gone),
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
