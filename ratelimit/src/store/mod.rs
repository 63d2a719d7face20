//! Where the counts live. A store decides a reserve as a whole, replaces a hold once, and never lets two
//! decisions overlap. It knows buckets and amounts; names, plans and models are told elsewhere.

mod lifetimes;
pub mod memory;
mod record;
pub mod redis;
mod settlement;

#[cfg(test)]
pub mod tests;

use std::time::Duration;

use async_trait::async_trait;
use tokengate_api::{Metric, ReservationId};

pub use lifetimes::Lifetimes;
pub use settlement::{Booking, Closing, Settlement};

use crate::limits::fixed_window::Window;
use crate::tag::Tag;

/// The state of one limit for one key. Both halves are hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BucketId {
    pub limit: Tag,
    pub subject: Tag,
}

/// What one limit has to take for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charge {
    pub bucket: BucketId,
    pub metric: Metric,
    pub limit: u64,
    pub amount: u64,
    pub window_ms: u64,
}

/// A reserve: all charges are held, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    pub id: ReservationId,
    pub attempt: u8,
    pub account: Tag,
    /// Hash of the caller's key hash: nobody else's reserve is replayed to a caller.
    pub identity: Tag,
    pub model: Tag,
    /// Output tokens per choice, when the client gave a limit.
    pub grant: Option<u64>,
    pub tokens: u64,
    pub charges: Vec<Charge>,
}

/// The store's answer to a [`Hold`]. `windows` has one entry per charge, in the same order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserved {
    pub verdict: Verdict,
    /// The store's clock when it decided.
    pub now_ms: u64,
    /// After the hold; as they are when nothing was held.
    pub windows: Vec<Window>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Held, now or by an earlier reserve of the same id; `grant` is that of the record.
    Held { grant: Option<u64>, replayed: bool },
    /// At least one limit does not fit; nothing changed.
    Refused,
    /// The id was closed before.
    Gone,
}

/// What became of a [`Settlement`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    Replaced,
    Already,
    Booked,
    /// Too old to be booked; nothing changed.
    Late,
    /// There was no hold; a later reserve of the id will be told that it is gone.
    Unknown,
}

/// The state of some buckets and the open holds of one model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    pub now_ms: u64,
    pub windows: Vec<Window>,
    pub open_holds: u64,
    pub open_tokens: u64,
}

/// The store gave no usable answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    #[error("the store did not answer in time")]
    Timeout,
    #[error("the store cannot be reached: {0}")]
    Unreachable(String),
    #[error("the store refused the command: {0}")]
    Refused(String),
    #[error("the store's clock and this machine's differ by more than {} s", MAX_CLOCK_DIFFERENCE.as_secs())]
    Clock,
    #[error("the store holds something this version cannot read")]
    Format,
    #[error("the reservation changed again and again while it was settled")]
    Contended,
}

impl StoreError {
    /// The command may have been carried out all the same.
    pub fn indeterminate(&self) -> bool {
        matches!(self, Self::Timeout | Self::Unreachable(_) | Self::Refused(_))
    }
}

/// Beyond this the windows of two instances would not be the same.
pub const MAX_CLOCK_DIFFERENCE: Duration = Duration::from_secs(30);

/// One place that keeps counts. `within` bounds a call as a whole; when it is over the answer is
/// [`StoreError::Timeout`] and the call may still take effect.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    async fn reserve(&self, hold: &Hold, within: Duration) -> Result<Reserved, StoreError>;

    /// One answer per settlement, in the same order. Repeating a settlement is harmless.
    async fn settle(&self, batch: &[Settlement], within: Duration) -> Vec<Result<Settled, StoreError>>;

    /// `buckets` with the lengths of their windows.
    async fn explain(
        &self,
        account: Tag,
        model: Tag,
        buckets: &[(BucketId, u64)],
        within: Duration,
    ) -> Result<Explained, StoreError>;

    /// Whether the store answers at all.
    async fn ping(&self, within: Duration) -> Result<(), StoreError>;
}
