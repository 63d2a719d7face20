//! Closing and extending what is open.

use std::collections::HashMap;

use super::super::extension::{Growth, growth};
use super::super::settlement::{Change, Correction, Step, Stored, step};
use super::super::{Closed, Extended, Extension, Meter, Settled, Settlement, StoreError};
use super::MemoryStore;
use crate::limits::{Bucket, State as BucketState};

impl MemoryStore {
    pub(super) fn settle_one(&self, settlement: &Settlement) -> Result<Closed, StoreError> {
        let now = self.clock.now_ms();
        let mut state = self.lock();
        state.trim(now);
        let Settlement { account, id, .. } = settlement;
        let stored = state.record(*account, id, now);
        let (settled, corrections) = match step(settlement, &stored, &self.lifetimes) {
            Step::Answer(answer) => return Ok(answer.into()),
            Step::Replace(corrections) => (Settled::Replaced, corrections),
            Step::Book(corrections) => (Settled::Booked, corrections),
            Step::Refuse { attempt } => {
                let tombstone = Stored::Refused { attempt };
                state.keep_record(*account, id, tombstone, now, self.lifetimes.refused);
                return Ok(Settled::Unknown.into());
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
                Change::GiveBack { amount } => bucket.give_back(*amount),
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
        Ok(Closed { settled, held: stored.held_for(settlement), event: None })
    }

    pub(super) fn extend_one(&self, extension: &Extension) -> Result<Extended, StoreError> {
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
