//! What a ledger beside the counts has to hear of: settlements, and holds that nobody settled.
//!
//! A usage event is kept in the store from the same step on that changes the counts, until its sink has it (a
//! transactional outbox). So it is delivered though the instance that settled is gone, or never learned that it had.

use std::time::Duration;

use tokengate_api::ReservationId;

use super::{Closed, OpenHold};
use crate::tag::Tag;

/// Makes the usage event of a settlement, by its place in the batch and how it ends; nothing when none is wanted.
/// May be called more than once for a settlement: the last one counts.
pub type TellSettled<'a> = &'a (dyn Fn(usize, &Closed) -> Option<String> + Sync);

/// Makes the usage event of a hold that has lapsed.
pub type TellLapsed<'a> = &'a (dyn Fn(&LapsedHold) -> Option<String> + Sync);

/// A hold whose record has lapsed before it was settled: what was held stays charged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LapsedHold {
    pub account: Tag,
    pub hold: OpenHold,
}

/// A usage event that waits for its delivery. Account and id are its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptEvent {
    pub account: Tag,
    pub id: ReservationId,
    /// One line of JSON.
    pub line: String,
}

/// One step of a sweep.
pub struct Sweep<'a> {
    /// [`Swept::next`] of the step before; absent at the first.
    pub cursor: Option<u64>,
    /// No other instance begins a sweep for so long.
    pub alone_for: Duration,
    /// Events that were kept earlier than this, by the service's clock, are taken for left over.
    pub kept_before_ms: u64,
    /// At most about so many events; absent where nobody wants any.
    pub most_events: Option<usize>,
    pub tell: TellLapsed<'a>,
}

/// What a step of a sweep has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Where to go on; absent after the last step, and where another instance sweeps.
    pub next: Option<u64>,
    /// Each is found once, whoever sweeps.
    pub lapsed: Vec<LapsedHold>,
    /// Those of `lapsed`, then what was left over. They stay kept.
    pub events: Vec<KeptEvent>,
}
