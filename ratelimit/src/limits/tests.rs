//! Each algorithm against a naive model of what it promises.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod concurrency_and_balance;
mod sliding;
mod token_bucket;
mod windows;

use tokengate_api::ReservationId;

use super::*;

const MINUTE: u64 = 60_000;
/// The beginning of a minute.
const T0: u64 = 1_800_000_000_000;

fn id(number: u64) -> ReservationId {
    let mut bytes = [0; 16];
    bytes[8..].copy_from_slice(&number.to_be_bytes());
    ReservationId::from_bytes(bytes)
}

/// One bucket of a store, and its clock.
struct Sim {
    algorithm: Algorithm,
    limit: u64,
    state: Option<BucketState>,
    now: u64,
}

impl Sim {
    fn new(algorithm: Algorithm, limit: u64) -> Self {
        Self { algorithm, limit, state: None, now: T0 }
    }

    fn open(&self) -> Bucket {
        Bucket::open(self.algorithm, self.limit, self.state.as_ref(), self.now).unwrap()
    }

    /// The mark, or how long to wait.
    fn reserve(&mut self, number: u64, amount: u64) -> Result<Mark, Wait> {
        let mut bucket = self.open();
        match bucket.wait(amount) {
            Wait::No => {
                let mark = bucket.charge(&id(number), amount);
                self.state = Some(bucket.state());
                Ok(mark)
            }
            wait => Err(wait),
        }
    }

    fn refund(&mut self, number: u64, mark: &Mark, amount: u64) {
        let mut bucket = self.open();
        bucket.refund(&id(number), mark, amount);
        self.state = Some(bucket.state());
    }

    fn excess(&mut self, amount: u64) {
        let mut bucket = self.open();
        bucket.excess(amount);
        self.state = Some(bucket.state());
    }

    fn used(&self) -> u64 {
        self.open().gauge().used
    }

    /// A refusal holds until exactly the end of its wait, if nothing else happens.
    fn check_wait(&self, amount: u64, wait: Wait) {
        let fits_at =
            |now| Bucket::open(self.algorithm, self.limit, self.state.as_ref(), now).unwrap().fits(amount);
        match wait {
            Wait::Ms(ms) => {
                assert!(ms > 0 && !fits_at(self.now + ms - 1), "{ms} ms for {amount} are too many: {self:?}");
                assert!(fits_at(self.now + ms), "{ms} ms for {amount} are too few: {self:?}");
            }
            Wait::Never => assert!(amount > self.limit),
            other => panic!("{other:?}"),
        }
    }
}

impl std::fmt::Debug for Sim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} {:?}", self.now - T0, self.limit, self.state)
    }
}

/// A small generator of numbers that is the same in every run.
pub struct Numbers(pub u64);

impl Numbers {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}
