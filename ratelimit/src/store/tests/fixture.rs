use std::sync::Arc;
use std::time::Duration;

use tokengate_api::{Metric, ReservationId};

use super::redis_server::RedisServer;
use crate::clock::ManualClock;
use crate::limits::fixed_window::Window;
use crate::store::memory::MemoryStore;
use crate::store::redis::RedisStore;
use crate::store::{
    Booking, BucketId, Charge, Closing, Explained, Hold, Lifetimes, Reserved, Settled, Settlement, Store,
    Verdict,
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
        let clock = Arc::new(ManualClock::new(T0));
        let store = Arc::new(MemoryStore::new(clock.clone(), lifetimes));
        let seen = store.clone();
        Self { store, clock, dump: Box::new(move || seen.dump()), server: None }
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
        self.store.settle(&[settlement], TIME).await.remove(0).unwrap()
    }

    pub async fn explain(&self, charges: &[Charge]) -> Explained {
        let buckets: Vec<_> = charges.iter().map(|charge| (charge.bucket, charge.window_ms)).collect();
        self.store.explain(account(), model(), &buckets, TIME).await.unwrap()
    }

    pub async fn used(&self, charge: &Charge) -> u64 {
        self.explain(std::slice::from_ref(charge)).await.windows[0].used
    }

    pub async fn open_holds(&self) -> u64 {
        self.explain(&[]).await.open_holds
    }
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
    BucketId { limit: Tag::of("limit", [Some(name)]), subject: Tag::of("bucket", [Some("tenant")]) }
}

pub fn tokens(limit: u64, amount: u64) -> Charge {
    Charge { bucket: bucket("tokens"), metric: Metric::Tokens, limit, amount, window_ms: MINUTE }
}

pub fn requests(limit: u64) -> Charge {
    Charge { bucket: bucket("requests"), metric: Metric::Requests, limit, amount: 1, window_ms: MINUTE }
}

pub fn hold(number: u64, charges: &[Charge]) -> Hold {
    let held = |charge: &&Charge| charge.metric == Metric::Tokens;
    Hold {
        id: id(number),
        attempt: 1,
        account: account(),
        identity: Tag::of("identity", [Some("key")]),
        model: model(),
        grant: Some(7),
        tokens: charges.iter().find(held).map_or(0, |charge| charge.amount),
        charges: charges.to_vec(),
    }
}

pub fn settlement(number: u64, closing: Closing) -> Settlement {
    Settlement {
        id: id(number),
        account: account(),
        closing,
        attempt: None,
        age_ms: 0,
        queued_ms: 0,
        booking: None,
    }
}

pub fn booking(number: u64, charges: &[Charge], amount: u64) -> Settlement {
    let booking = |charge: &Charge| Booking {
        bucket: charge.bucket,
        amount: if charge.metric == Metric::Requests { 1 } else { amount },
        window_ms: charge.window_ms,
    };
    let booking = Some(charges.iter().map(booking).collect());
    Settlement { booking, ..settlement(number, Closing::Used { tokens: amount }) }
}

pub const HELD: Verdict = Verdict::Held { grant: Some(7), replayed: false };
pub const REPLAYED: Verdict = Verdict::Held { grant: Some(7), replayed: true };
pub const RELEASED: Closing = Closing::Released { sent: true };
pub const UNSENT: Closing = Closing::Released { sent: false };

pub fn used(tokens: u64) -> Closing {
    Closing::Used { tokens }
}

pub fn window(start_ms: u64, used: u64) -> Window {
    Window { start_ms, used }
}
