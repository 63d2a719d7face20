//! Where the counts live. A store decides a reserve as a whole, replaces a hold once, and never lets two
//! decisions overlap. It knows buckets and amounts; names, plans and models are told elsewhere.

mod alternatives;
mod codec;
mod decision;
mod error;
mod extension;
mod ledger;
mod lifetimes;
pub mod memory;
mod record;
pub mod redis;
mod settlement;

#[cfg(test)]
pub mod tests;

use std::time::Duration;

use async_trait::async_trait;
use tokengate_api::ReservationId;

pub use alternatives::{Alternatives, Answered, Counted, Price};
pub use error::{MAX_CLOCK_DIFFERENCE, StoreError};
pub use ledger::{KeptEvent, LapsedHold, Sweep, Swept, TellLapsed, TellSettled};
pub use lifetimes::Lifetimes;
pub use settlement::{Booking, Change, Closing, Correction, Settlement};

use crate::limits::{Account, Algorithm, Gauge, Rates, Wait};
use crate::tag::Tag;

/// The most charges one reservation may add up to, extensions included.
pub const MAX_ENTRIES: usize = 64;

/// The state of one limit for one key. Both halves are hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BucketId {
    /// One for all tenants, so that it lives with none of them.
    pub shared: bool,
    pub limit: Tag,
    pub subject: Tag,
}

impl BucketId {
    /// What keeps the keys together that one script touches: the tenant's account, or the shared limit.
    pub fn home(&self, account: Tag) -> Tag {
        if self.shared { Tag::shared(self.limit) } else { account }
    }
}

/// A bucket and how it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meter {
    pub bucket: BucketId,
    pub algorithm: Algorithm,
    /// In what [`Rates`] make of a request; at most [`MAX_AMOUNT`](crate::limits::MAX_AMOUNT).
    pub limit: u64,
}

/// What one limit has to do with a request. How much it takes, its rates make of the hold's tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    pub meter: Meter,
    pub rates: Rates,
    /// Never refuses, and is charged only where it would have admitted.
    pub shadow: bool,
    /// Charged by every reserve, refused ones too, and never given back.
    pub attempts: bool,
    /// The rates are prices: what is counted are nano-dollars.
    pub priced: bool,
    /// Owed only when this one of the hold's [`Alternatives`] answers; absent: whichever does.
    pub model: Option<u8>,
    pub on_store_failure: OnStoreFailure,
}

/// What becomes of a request while the store gives no answer. Decided outside the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnStoreFailure {
    #[default]
    Closed,
    Open,
}

/// A reserve: all charges are held, or none. No two charges may share a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    pub id: ReservationId,
    pub attempt: u8,
    pub account: Tag,
    /// Hash of the caller's key hash: nobody else's reserve is replayed to a caller.
    pub identity: Tag,
    pub model: Tag,
    pub plan: Tag,
    /// Output tokens per choice, when the client gave a limit.
    pub grant: Option<u64>,
    pub prompt_tokens: u64,
    /// Of all choices together.
    pub output_tokens: u64,
    /// At least 1.
    pub choices: u32,
    pub clamp: Option<Clamp>,
    /// Nothing is held whatever fits: it is refused for a reason that is no limit's, and only attempts are counted.
    pub refuse: bool,
    /// Who else may answer, and at which prices.
    pub alternatives: Alternatives,
    pub charges: Vec<Charge>,
}

impl Charge {
    pub fn counted(&self) -> Counted {
        Counted { rates: self.rates, priced: self.priced, model: self.model }
    }
}

/// Less output may be held where the whole does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clamp {
    /// Per choice; less than this is a refusal.
    pub min_output_tokens: u64,
}

impl Hold {
    pub fn tokens(&self) -> u64 {
        self.prompt_tokens.saturating_add(self.output_tokens)
    }

    /// What a charge takes when the output is so large.
    pub fn amount(&self, charge: &Charge, output_tokens: u64) -> u64 {
        charge.rates.of_hold(self.prompt_tokens, output_tokens)
    }
}

/// The store's answer to a [`Hold`]. `limits` has one entry per charge, in the same order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserved {
    pub verdict: Verdict,
    /// The store's clock when it decided.
    pub now_ms: u64,
    pub limits: Vec<Standing>,
}

/// How one limit stands after a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// After the charge; as it is where nothing was charged.
    pub gauge: Gauge,
    /// The amount did not fit. Never on a repeat.
    pub would_deny: bool,
    /// When the same amount fits if nothing else changes.
    pub wait: Wait,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Held, now or by an earlier reserve of the same id. `grant` is that of the record: output tokens per
    /// choice, when the client gave a limit or less than asked for was held.
    Held { grant: Option<u64>, replayed: bool },
    /// At least one limit does not fit; nothing changed but the count of attempts.
    Refused,
    /// The id was closed before.
    Gone,
}

/// More output to hold, or a lease to renew, for an open reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extension {
    pub id: ReservationId,
    pub account: Tag,
    /// The total of all choices that is to be held: a repeat changes nothing, and never is less held.
    pub output_tokens: Option<u64>,
    /// Keep the slots of concurrency limits for another lease.
    pub lease: bool,
}

/// What became of an [`Extension`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extended {
    /// So much output is held in all.
    Held { output_tokens: u64 },
    /// It does not fit, or the reservation was extended too often; nothing changed.
    Refused,
    /// There is no such open reservation.
    Unknown,
}

/// Adds to a [`Balance`](Algorithm::Balance), once for each grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopUp {
    pub account: Tag,
    pub bucket: BucketId,
    /// Chosen by whoever tops up; remembered for good.
    pub grant_id: String,
    pub amount: u64,
}

/// What became of a [`TopUp`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToppedUp {
    Done(Account),
    /// The same grant was there already.
    Already(Account),
    /// The grant's id was there with another amount; nothing changed.
    Conflict,
    /// More would be granted in all than can be counted; nothing changed.
    TooMuch,
}

/// An operator's change of one bucket, once for each id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Amendment {
    pub account: Tag,
    /// Made from the id that the operator has chosen.
    pub id: Tag,
    /// [`Change::Excess`] or [`Change::GiveBack`].
    pub correction: Correction,
}

impl Amendment {
    /// Two amendments of one id are the same one, or a mistake.
    fn fingerprint(&self) -> Tag {
        let Correction { meter: Meter { bucket, .. }, change } = &self.correction;
        let (word, amount) = match change {
            Change::Excess { amount } => ("charge", amount),
            Change::GiveBack { amount } => ("give back", amount),
            Change::Refund { amount, .. } => ("refund", amount),
        };
        let parts =
            [bucket.limit.to_string(), bucket.subject.to_string(), word.to_owned(), amount.to_string()];
        Tag::of("amendment", parts.iter().map(|part| Some(part.as_str())))
    }
}

/// What became of an [`Amendment`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amended {
    Done,
    /// The same one was carried out before.
    Already,
    /// The id was there for another bucket or another amount; nothing changed.
    Conflict,
}

/// How long the id of an [`Amendment`] is remembered.
pub const AMENDMENT_LIFE: Duration = Duration::from_secs(30 * 86_400);

/// A reservation that is not settled yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenHold {
    pub id: ReservationId,
    pub model: Tag,
    /// Held in all.
    pub tokens: u64,
    pub reserved_at_ms: u64,
}

/// The oldest open holds of a tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenHolds {
    /// How many there are, also those that are not listed.
    pub total: u64,
    /// Oldest first.
    pub oldest: Vec<OpenHold>,
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

/// A settlement's answer, and what the hold was that it has replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    pub settled: Settled,
    /// Present with [`Settled::Replaced`].
    pub held: Option<HeldRecord>,
    /// The usage event of it, if there is one: kept until [`Store::delivered`], where the store outlives us.
    pub event: Option<String>,
}

/// What the record of a reservation said of it, before a settle replaced it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldRecord {
    /// [`Tag::model`] of the canonical name: of the model that has answered, where others may.
    pub model: Tag,
    /// [`Tag::plan`] of the caller's plan; absent in records of an older version.
    pub plan: Option<Tag>,
    pub prompt_tokens: u64,
    /// Of all choices, extensions included.
    pub output_tokens: u64,
    /// By the store's clock, milliseconds since the Unix epoch; absent in records of an older version.
    pub reserved_at_ms: Option<u64>,
    /// Prices of that model, in the tier that it has answered in, when it was reserved; absent where no limit counted cost.
    pub prices: Option<Rates>,
}

impl HeldRecord {
    pub fn tokens(&self) -> u64 {
        self.prompt_tokens.saturating_add(self.output_tokens)
    }
}

/// The state of some buckets and the open holds of one model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    pub now_ms: u64,
    /// One per meter, in the same order.
    pub gauges: Vec<Gauge>,
    pub open_holds: u64,
    pub open_tokens: u64,
}

/// One place that keeps counts. `within` bounds a call as a whole; when it is over the answer is
/// [`StoreError::Timeout`] and the call may still take effect.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    async fn reserve(&self, hold: &Hold, within: Duration) -> Result<Reserved, StoreError>;

    /// One answer per settlement, in the same order. Repeating a settlement is harmless. What `tell` makes of a
    /// change is kept together with it: both are there, or neither.
    async fn settle(
        &self,
        batch: &[Settlement],
        tell: TellSettled<'_>,
        within: Duration,
    ) -> Vec<Result<Closed, StoreError>>;

    /// Forgets usage events: their sink has them, or will never have them.
    async fn delivered(&self, events: &[(Tag, ReservationId)], within: Duration) -> Result<(), StoreError>;

    /// Looks at some of the tenants for holds that have lapsed and for usage events that are left over.
    async fn sweep(&self, sweep: &Sweep<'_>, within: Duration) -> Result<Swept, StoreError>;

    /// One answer per extension, in the same order. Repeating an extension is harmless.
    async fn extend(&self, batch: &[Extension], within: Duration) -> Vec<Result<Extended, StoreError>>;

    /// How meters stand, and the open holds of a model.
    async fn explain(
        &self,
        account: Tag,
        model: Tag,
        meters: &[Meter],
        within: Duration,
    ) -> Result<Explained, StoreError>;

    async fn top_up(&self, top_up: &TopUp, within: Duration) -> Result<ToppedUp, StoreError>;

    /// Forgets a bucket, as if nothing had been charged; whether there was one. What is open stays open: its
    /// refunds then come out of what is charged later in the same window. Not for balances, whose grants would
    /// be lost.
    async fn reset(&self, account: Tag, bucket: BucketId, within: Duration) -> Result<bool, StoreError>;

    /// At most so many, the oldest.
    async fn open_holds(&self, account: Tag, most: usize, within: Duration) -> Result<OpenHolds, StoreError>;

    /// Changes a bucket by an operator's word. Repeating an amendment within [`AMENDMENT_LIFE`] is harmless.
    async fn amend(&self, amendment: &Amendment, within: Duration) -> Result<Amended, StoreError>;

    /// Everything that was noted, for all instances; what it says is told elsewhere.
    async fn notes(&self, within: Duration) -> Result<Vec<String>, StoreError>;

    /// Keeps a note under its name in the place of an earlier one; an absent text removes it.
    async fn note(&self, name: Tag, text: Option<&str>, within: Duration) -> Result<(), StoreError>;

    /// Removes a note if this is still its text; whether it was. A store may keep it: its time is in the text.
    async fn forget_note(&self, _name: Tag, _text: &str, _within: Duration) -> Result<bool, StoreError> {
        Ok(false)
    }

    /// Whether the store answers at all.
    async fn ping(&self, within: Duration) -> Result<(), StoreError>;
}
