use std::sync::Arc;
use std::time::Duration;

use tokengate_api::{ReservationId, Usage};

use super::redis_server::RedisServer;
use crate::clock::ManualClock;
use crate::limits::{Algorithm, Gauge, Rates};
use crate::store::memory::MemoryStore;
use crate::store::redis::{Mutation, RedisStore};
use crate::store::{
    Alternatives, Answered, Booking, BucketId, Charge, Closing, Explained, Extended, Extension, Hold,
    Lifetimes, Meter, OnStoreFailure, Reserved, Settled, Settlement, Store, StoreError, Verdict,
};
use crate::tag::Tag;

pub const MINUTE: u64 = 60_000;
/// The beginning of a minute.
pub const T0: u64 = 1_800_000_000_000;
pub const TIME: Duration = Duration::from_secs(20);

pub struct Fixture {
    pub store: Arc<dyn Store>,
    pub clock: Arc<ManualClock>,
    dump: Box<dyn Fn() -> String + Send + Sync>,
    pub server: Option<Arc<RedisServer>>,
}

impl Fixture {
    pub fn memory() -> Self {
        Self::memory_with(Lifetimes::default())
    }

    pub fn memory_with(lifetimes: Lifetimes) -> Self {
        Self::memory_and_store(lifetimes).0
    }

    pub fn memory_and_store(lifetimes: Lifetimes) -> (Self, Arc<MemoryStore>) {
        let clock = Arc::new(ManualClock::new(T0));
        let store = Arc::new(MemoryStore::new(clock.clone(), lifetimes));
        let seen = store.clone();
        let fixture = Self { store: store.clone(), clock, dump: Box::new(move || seen.dump()), server: None };
        (fixture, store)
    }

    pub async fn redis() -> Self {
        Self::redis_with(Lifetimes::default()).await
    }

    pub async fn redis_with(lifetimes: Lifetimes) -> Self {
        let server = Arc::new(RedisServer::start());
        let clock = Arc::new(ManualClock::new(T0));
        let store = RedisStore::connect_with_given_time(&server.url, "t", clock.clone(), lifetimes).await;
        let seen = server.clone();
        Self {
            store: Arc::new(store.unwrap()),
            clock,
            dump: Box::new(move || seen.dump()),
            server: Some(server),
        }
    }

    pub async fn redis_mutated(mutation: Mutation) -> Self {
        let server = Arc::new(RedisServer::start());
        let clock = Arc::new(ManualClock::new(T0));
        let lifetimes = Lifetimes::default();
        let store = RedisStore::connect_mutated(&server.url, clock.clone(), lifetimes, mutation).await;
        let seen = server.clone();
        let dump = Box::new(move || seen.dump());
        Self { store: Arc::new(store.unwrap()), clock, dump, server: Some(server) }
    }

    pub fn dump(&self) -> String {
        (self.dump)()
    }

    pub async fn reserve(&self, hold: &Hold) -> Reserved {
        self.store.reserve(hold, TIME).await.unwrap()
    }

    pub async fn verdict(&self, hold: &Hold) -> Verdict {
        self.reserve(hold).await.verdict
    }

    pub async fn settle(&self, settlement: Settlement) -> Settled {
        self.settle_all(&[settlement]).await.remove(0).unwrap()
    }

    pub async fn settle_all(&self, batch: &[Settlement]) -> Vec<Result<Settled, StoreError>> {
        settle_all(self.store.as_ref(), batch).await
    }

    pub async fn extend(&self, extension: Extension) -> Extended {
        self.store.extend(&[extension], TIME).await.remove(0).unwrap()
    }

    pub async fn explain(&self, charges: &[Amount]) -> Explained {
        let meters: Vec<_> = charges.iter().map(|amount| amount.charge.meter).collect();
        self.store.explain(account(), model(), &meters, TIME).await.unwrap()
    }

    pub async fn used(&self, charge: &Amount) -> u64 {
        self.explain(std::slice::from_ref(charge)).await.gauges[0].used
    }

    pub async fn open_holds(&self) -> u64 {
        self.explain(&[]).await.open_holds
    }
}

/// Without what was held.
pub async fn settle_all(store: &dyn Store, batch: &[Settlement]) -> Vec<Result<Settled, StoreError>> {
    let answers = store.settle(batch, &|_, _| None, TIME).await;
    answers.into_iter().map(|answer| answer.map(|closed| closed.settled)).collect()
}

pub fn account() -> Tag {
    Tag::account("tenant")
}

pub fn model() -> Tag {
    Tag::model(Some("gpt"))
}

pub fn id(number: u64) -> ReservationId {
    let mut bytes = [0; 16];
    bytes[8..].copy_from_slice(&number.to_be_bytes());
    ReservationId::from_bytes(bytes)
}

pub fn bucket(name: &str) -> BucketId {
    BucketId {
        shared: false,
        limit: Tag::of("limit", [Some(name)]),
        subject: Tag::of("bucket", [Some("tenant")]),
    }
}

/// A charge and how many tokens are held; requests count as one whatever the tokens.
#[derive(Clone, Copy, Debug)]
pub struct Amount {
    pub charge: Charge,
    pub tokens: u64,
}

impl Amount {
    pub fn algorithm(mut self, algorithm: Algorithm) -> Self {
        self.charge.meter.algorithm = algorithm;
        self
    }

    /// In a bucket of this name.
    pub fn named(mut self, name: &str) -> Self {
        self.charge.meter.bucket = bucket(name);
        self
    }

    pub fn shadow(mut self) -> Self {
        self.charge.shadow = true;
        self
    }

    pub fn attempts(mut self) -> Self {
        self.charge.attempts = true;
        self
    }

    pub fn rates(mut self, rates: Rates) -> Self {
        self.charge.rates = rates;
        self
    }
}

fn amount(name: &str, rates: Rates, limit: u64, tokens: u64) -> Amount {
    let algorithm = Algorithm::FixedWindow { length_ms: MINUTE };
    let meter = Meter { bucket: bucket(name), algorithm, limit };
    let on_store_failure = OnStoreFailure::Closed;
    let charge =
        Charge { meter, rates, shadow: false, attempts: false, priced: false, model: None, on_store_failure };
    Amount { charge, tokens }
}

pub fn tokens(limit: u64, tokens: u64) -> Amount {
    amount("tokens", Rates::TOKENS, limit, tokens)
}

pub fn requests(limit: u64) -> Amount {
    amount("requests", Rates::REQUESTS, limit, 0)
}

/// A limit of every algorithm but the calendar. The balance `b` has to be topped up.
pub fn one_of_each() -> Vec<Amount> {
    vec![
        requests(100),
        tokens(1_000, 0),
        tokens(1_000, 0)
            .named("s")
            .algorithm(Algorithm::SlidingWindow { sub_window_ms: 1_000, sub_windows: 60 }),
        tokens(1_000, 0).named("t").algorithm(Algorithm::TokenBucket { num: 1, den: 100 }),
        tokens(0, 0).named("b").algorithm(Algorithm::Balance),
        requests(10).named("n").algorithm(Algorithm::Concurrency { lease_ms: MINUTE }),
    ]
}

/// Holds the tokens of the charges, all of them prompt.
pub fn hold(number: u64, charges: &[Amount]) -> Hold {
    Hold {
        id: id(number),
        attempt: 1,
        account: account(),
        identity: Tag::of("identity", [Some("key")]),
        model: model(),
        plan: Tag::plan("plan"),
        grant: Some(7),
        prompt_tokens: charges.iter().map(|amount| amount.tokens).max().unwrap_or(0),
        output_tokens: 0,
        choices: 1,
        clamp: None,
        refuse: false,
        alternatives: Alternatives::default(),
        charges: charges.iter().map(|amount| amount.charge).collect(),
    }
}

pub fn settlement(number: u64, closing: Closing) -> Settlement {
    Settlement {
        id: id(number),
        account: account(),
        closing,
        answered: Answered::default(),
        attempt: None,
        age_ms: 0,
        queued_ms: 0,
        booking: None,
    }
}

pub fn booking(number: u64, charges: &[Amount], output: u64) -> Settlement {
    let Closing::Used(usage) = used(output) else { unreachable!() };
    let booking = |amount: &Amount| Booking {
        meter: amount.charge.meter,
        amount: amount.charge.rates.of_usage(&usage),
    };
    let booking = Some(charges.iter().map(booking).collect());
    Settlement { booking, ..settlement(number, Closing::Used(usage)) }
}

pub fn extension(number: u64, output_tokens: u64) -> Extension {
    Extension { id: id(number), account: account(), output_tokens: Some(output_tokens), lease: false }
}

pub const HELD: Verdict = Verdict::Held { grant: Some(7), replayed: false };
pub const REPLAYED: Verdict = Verdict::Held { grant: Some(7), replayed: true };
pub const RELEASED: Closing = Closing::Released { sent: true };
pub const UNSENT: Closing = Closing::Released { sent: false };

pub fn used(output: u64) -> Closing {
    Closing::Used(Usage { output, ..Usage::default() })
}

/// What gauges say is used.
pub fn uses(gauges: &[Gauge]) -> Vec<u64> {
    gauges.iter().map(|gauge| gauge.used).collect()
}

/// The same of an answer to a reserve.
pub fn uses_of(reserved: &Reserved) -> Vec<u64> {
    reserved.limits.iter().map(|standing| standing.gauge.used).collect()
}
