use std::ops::RangeInclusive;

use tokengate_api::ReservationId;

use super::balance::{Account, Balance};
use super::calendar_window::CalendarWindow;
use super::concurrency::{Concurrency, Leases};
use super::fixed_window::{FixedWindow, Window};
use super::holds::{Holds, Life, place};
use super::sliding_window::{Ring, SlidingWindow};
use super::token_bucket::{Level, TokenBucket};
use super::{Algorithm, MAX_AMOUNT};

/// What is kept of one bucket between two looks at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketState {
    pub counted: State,
    /// What open holds take of it.
    pub holds: Holds,
}

impl From<State> for BucketState {
    /// Nothing is held.
    fn from(counted: State) -> Self {
        Self { counted, holds: Holds::default() }
    }
}

/// What is counted, by algorithm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    FixedWindow(Window),
    CalendarWindow(Window),
    SlidingWindow(Ring),
    TokenBucket(Level),
    Concurrency(Leases),
    Balance(Account),
}

/// Where in a bucket a charge went, so that a refund finds it. Opaque to everyone but its algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// First millisecond of the window.
    Window { start_ms: u64 },
    /// Index of the sub-window.
    SubWindow { index: u64 },
    /// How the bucket stood right after the charge.
    Level {
        generation: u64,
        interval: u64,
        at_ms: u64,
        level: i64,
        /// What holds had taken in the interval before.
        before: u64,
        /// What had been refunded since the interval began, of earlier holds and of its own.
        early: u64,
        own: u64,
    },
    /// Nothing beside the reservation's id is needed.
    None,
}

impl Mark {
    fn era(&self) -> u64 {
        match *self {
            Self::Window { start_ms } => start_ms,
            Self::Level { generation, .. } => generation,
            Self::SubWindow { .. } | Self::None => 0,
        }
    }
}

impl State {
    fn era(&self) -> u64 {
        match self {
            Self::FixedWindow(window) | Self::CalendarWindow(window) => window.start_ms,
            Self::TokenBucket(level) => level.generation,
            Self::SlidingWindow(_) | Self::Concurrency(_) | Self::Balance(_) => 0,
        }
    }
}

/// When an amount fits if nothing else changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// It fits.
    No,
    /// In exactly so many milliseconds.
    Ms(u64),
    /// Nobody can know; worth a try after so many milliseconds.
    Estimate(u64),
    /// Not before somebody tops the bucket up.
    Unknown,
    /// The amount is above the whole limit.
    Never,
}

/// How a bucket stands, for people. `used` and `remaining` together are the limit; of a balance what was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gauge {
    /// Above the limit when there is a debt.
    pub used: u64,
    /// What still fits; below 0 by the debt.
    pub remaining: i64,
    /// The part of `used` that open holds take: settles may give some of it back.
    pub held: u64,
    /// Until the bucket is whole again; 0 when it is, or when time does not help.
    pub reset_ms: u64,
}

impl Gauge {
    /// 0 in debt.
    pub fn left(&self) -> u64 {
        unsigned(self.remaining)
    }

    /// What a balance has been granted in all.
    pub fn granted(&self) -> u64 {
        unsigned(self.remaining.saturating_add(signed(self.used)))
    }
}

/// A bucket cannot be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// The state belongs to another algorithm or another shape.
    Foreign,
    /// The calendar boundaries given do not contain this moment.
    Boundary,
}

/// What every algorithm can do. Each implementor is a state, brought to one moment, with its parameters.
pub(super) trait Counter {
    /// What still fits; below 0 in debt.
    fn room(&self) -> i64;
    /// Adds the amount whether it fits or not, up to [`MAX_AMOUNT`] in all.
    fn charge(&mut self, id: &ReservationId, amount: u64) -> Mark;
    /// Gives back what a charge has taken, to its own window or to nowhere.
    fn refund(&mut self, id: &ReservationId, mark: &Mark, amount: u64);
    /// Adds what was used beyond the hold, to the window of now.
    fn excess(&mut self, amount: u64);
    /// Takes an amount off what is counted now, whoever was charged with it; at most all of it.
    fn give_back(&mut self, amount: u64);
    /// How long an amount has to wait that does not fit now.
    fn wait(&self, amount: u64) -> Wait;
    fn gauge(&self) -> Gauge;
    /// How long the state matters; nothing when it does for ever.
    fn keep_ms(&self) -> Option<u64>;
    fn state(&self) -> State;
    /// Which run of the state this is: what was held in another one is not given back.
    fn era(&self) -> u64 {
        0
    }
    /// The places that holds can be given back to.
    fn places(&self) -> RangeInclusive<u64> {
        0..=u64::MAX
    }
    /// The state was ahead of this moment and was brought back to it.
    fn went_back(&self) -> bool {
        false
    }
}

/// A bucket at one moment.
#[derive(Debug)]
pub struct Bucket {
    kind: Kind,
    holds: Holds,
}

#[derive(Debug)]
enum Kind {
    FixedWindow(FixedWindow),
    CalendarWindow(CalendarWindow),
    SlidingWindow(SlidingWindow),
    TokenBucket(TokenBucket),
    Concurrency(Concurrency),
    Balance(Balance),
}

impl Bucket {
    /// Brings what is stored to the moment `now_ms`.
    pub fn open(
        algorithm: Algorithm,
        limit: u64,
        stored: Option<&BucketState>,
        now_ms: u64,
    ) -> Result<Self, Unusable> {
        Self::open_at(algorithm, limit, stored, now_ms, false)
    }

    /// The same for a correction, which has only the hold's own calendar boundaries: outside them the state
    /// stays where it is.
    pub fn open_to_correct(
        algorithm: Algorithm,
        limit: u64,
        stored: Option<&BucketState>,
        now_ms: u64,
    ) -> Result<Self, Unusable> {
        Self::open_at(algorithm, limit, stored, now_ms, true)
    }

    fn open_at(
        algorithm: Algorithm,
        limit: u64,
        stored: Option<&BucketState>,
        now_ms: u64,
        outside: bool,
    ) -> Result<Self, Unusable> {
        let kind = match (algorithm, stored.map(|stored| &stored.counted)) {
            (Algorithm::FixedWindow { length_ms }, None) => {
                Kind::FixedWindow(FixedWindow::open(length_ms, limit, None, now_ms))
            }
            (Algorithm::FixedWindow { length_ms }, Some(State::FixedWindow(window))) => {
                Kind::FixedWindow(FixedWindow::open(length_ms, limit, Some(*window), now_ms))
            }
            (Algorithm::CalendarWindow { boundaries_ms }, None) => {
                let window = CalendarWindow::open(boundaries_ms, limit, None, now_ms);
                Kind::CalendarWindow(window)
            }
            (Algorithm::CalendarWindow { boundaries_ms }, Some(State::CalendarWindow(window))) => {
                Kind::CalendarWindow(CalendarWindow::open(boundaries_ms, limit, Some(*window), now_ms))
            }
            (Algorithm::SlidingWindow { sub_window_ms, sub_windows }, None) => {
                let ring = Ring::empty(now_ms, sub_window_ms, sub_windows);
                Kind::SlidingWindow(SlidingWindow::open(sub_window_ms, limit, ring, now_ms))
            }
            (Algorithm::SlidingWindow { sub_window_ms, sub_windows }, Some(State::SlidingWindow(ring)))
                if ring.fits_shape(sub_windows) =>
            {
                Kind::SlidingWindow(SlidingWindow::open(sub_window_ms, limit, ring.clone(), now_ms))
            }
            (Algorithm::TokenBucket { num, den }, None) => {
                Kind::TokenBucket(TokenBucket::open(num, den, limit, None, now_ms))
            }
            (Algorithm::TokenBucket { num, den }, Some(State::TokenBucket(level))) => {
                Kind::TokenBucket(TokenBucket::open(num, den, limit, Some(level), now_ms))
            }
            (Algorithm::Concurrency { lease_ms }, None) => {
                Kind::Concurrency(Concurrency::open(lease_ms, limit, Leases::default(), now_ms))
            }
            (Algorithm::Concurrency { lease_ms }, Some(State::Concurrency(leases))) => {
                Kind::Concurrency(Concurrency::open(lease_ms, limit, leases.clone(), now_ms))
            }
            (Algorithm::Balance, None) => Kind::Balance(Balance(Account::default())),
            (Algorithm::Balance, Some(State::Balance(account))) => Kind::Balance(Balance(*account)),
            _ => return Err(Unusable::Foreign),
        };
        match &kind {
            Kind::CalendarWindow(window) if !outside && window.outside() => Err(Unusable::Boundary),
            _ => Ok(Self { kind, holds: Holds::default() }.holding(stored, now_ms)),
        }
    }

    /// With the holds that can still be given back.
    fn holding(mut self, stored: Option<&BucketState>, now_ms: u64) -> Self {
        if let Some(BucketState { counted, holds }) = stored
            && !holds.0.is_empty()
            && counted.era() == self.counter().era()
        {
            self.holds = holds.clone();
            self.holds.keep(now_ms, &self.counter().places());
        }
        self
    }

    fn counter(&self) -> &dyn Counter {
        match &self.kind {
            Kind::FixedWindow(counter) => counter,
            Kind::CalendarWindow(counter) => counter,
            Kind::SlidingWindow(counter) => counter,
            Kind::TokenBucket(counter) => counter,
            Kind::Concurrency(counter) => counter,
            Kind::Balance(counter) => counter,
        }
    }

    fn counter_mut(&mut self) -> &mut dyn Counter {
        match &mut self.kind {
            Kind::FixedWindow(counter) => counter,
            Kind::CalendarWindow(counter) => counter,
            Kind::SlidingWindow(counter) => counter,
            Kind::TokenBucket(counter) => counter,
            Kind::Concurrency(counter) => counter,
            Kind::Balance(counter) => counter,
        }
    }

    /// What still fits; below 0 in debt.
    pub fn room(&self) -> i64 {
        self.counter().room()
    }

    pub fn fits(&self, amount: u64) -> bool {
        signed(amount) <= self.room()
    }

    /// Adds the amount whether it fits or not; a sum stops at [`MAX_AMOUNT`].
    pub fn charge(&mut self, id: &ReservationId, amount: u64) -> Mark {
        self.counter_mut().charge(id, amount)
    }

    /// Charges what a settle may give back, and remembers that it is held.
    pub fn hold(&mut self, id: &ReservationId, amount: u64, life: Life) -> Mark {
        let mark = self.charge(id, amount);
        if !matches!(self.kind, Kind::Concurrency(_)) {
            self.holds.add(place(&mark, life.reserved_at_ms), amount, life.lapses_at_ms);
        }
        mark
    }

    /// So much of a hold is no longer held, whatever is given back of it.
    pub fn release(&mut self, mark: &Mark, held: u64, place: u64) {
        if held > 0 && mark.era() == self.counter().era() {
            self.holds.take_off(place, held);
        }
    }

    /// Gives back what a charge has taken, to its own window or to nowhere.
    pub fn refund(&mut self, id: &ReservationId, mark: &Mark, amount: u64) {
        let era = self.counter().era();
        self.counter_mut().refund(id, mark, amount);
        if self.counter().era() != era {
            self.holds = Holds::default();
        }
    }

    /// Adds what was used beyond the hold, to the window of now.
    pub fn excess(&mut self, amount: u64) {
        self.counter_mut().excess(amount);
    }

    /// An operator's correction: takes an amount off what is counted now, at most all of it. Slots have no amounts.
    pub fn give_back(&mut self, amount: u64) {
        self.counter_mut().give_back(amount);
    }

    /// When the amount fits if nothing else changes.
    pub fn wait(&self, amount: u64) -> Wait {
        if self.fits(amount) { Wait::No } else { self.counter().wait(amount) }
    }

    pub fn gauge(&self) -> Gauge {
        let gauge = self.counter().gauge();
        match self.kind {
            Kind::Concurrency(_) => Gauge { held: gauge.used, ..gauge },
            _ => Gauge { held: self.holds.sum().min(gauge.used), ..gauge },
        }
    }

    /// Keeps the slot of a reservation for another lease, or takes a new one if the old one has ended. Whether
    /// there was room for it; always for anything but [`Algorithm::Concurrency`].
    pub fn renew(&mut self, id: &ReservationId, force: bool) -> bool {
        match &mut self.kind {
            Kind::Concurrency(counter) => counter.renew(id, force),
            _ => true,
        }
    }

    /// How long the state has to be kept; nothing: for ever.
    pub fn keep_ms(&self) -> Option<u64> {
        self.counter().keep_ms()
    }

    pub fn state(&self) -> BucketState {
        BucketState { counted: self.counter().state(), holds: self.holds.clone() }
    }

    /// The clock has gone back, and the state with it: it has to be kept even where nothing is charged, or it
    /// would be ahead of the clock for as long as that has gone back.
    pub fn went_back(&self) -> bool {
        self.counter().went_back()
    }
}

/// Amounts beyond what is counted exactly fit nowhere, and need not be told apart.
pub(super) fn signed(amount: u64) -> i64 {
    i64::try_from(amount.min(MAX_AMOUNT.saturating_mul(2))).unwrap_or(i64::MAX)
}

/// 0 for what is below 0.
pub(super) fn unsigned(amount: i64) -> u64 {
    u64::try_from(amount).unwrap_or(0)
}

/// `part / whole`, rounded up. A `whole` of 0 counts as 1.
pub(super) fn ceil_div(part: u64, whole: u64) -> u64 {
    part.div_ceil(whole.max(1))
}

/// `used` of a limit, for people.
pub(super) fn gauge_of(used: u64, limit: u64, reset_ms: u64) -> Gauge {
    let reset_ms = if used == 0 { 0 } else { reset_ms };
    Gauge { used, remaining: signed(limit) - signed(used), held: 0, reset_ms }
}
