//! Token buckets: a level that grows at a rate up to the limit, and is drawn down by charges.
//!
//! The level is kept in units of 1/`den`, so that `num` is added per millisecond without a fraction. A refund is
//! worth at most the headroom that the bucket has had since the hold: giving back more would let a caller have
//! both the refund and what had regrown in its place. That headroom is measured as if every refund had been made
//! at the time of its hold. To know it the bucket remembers, for 32 intervals, how it stood at the beginning of
//! each and what was refunded since. Within an interval refunds raise the level only for holds made after the
//! refunded ones, and never by more than those had taken.

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use tokengate_api::ReservationId;

use super::bucket::{Counter, ceil_div, signed, unsigned};
use super::{CLOCK_MARGIN_MS, Gauge, MAX_AMOUNT, Mark, State, Wait};

/// Intervals that are remembered.
const INTERVALS: usize = 32;
/// Intervals that an empty bucket takes to fill.
const INTERVALS_PER_FILL: u64 = 16;

/// State of one bucket. Amounts are in units of 1/`den`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level {
    /// The parameters it was counted with; under others it is converted.
    pub limit: u64,
    pub num: u64,
    pub den: u64,
    /// Changes whenever the memory is lost; a refund for another generation is worth nothing.
    pub generation: u64,
    /// Below 0 in debt.
    pub level: i64,
    pub at_ms: u64,
    /// Number of the newest interval: time divided by its length.
    pub interval: u64,
    /// What holds have taken in it.
    pub charged: u64,
    /// Oldest first; the last one is `interval`.
    pub intervals: VecDeque<Interval>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Level at its beginning, or when the memory began.
    pub level: i64,
    /// Refunds since then of holds made before it.
    pub early: u64,
    /// Refunds of holds made in it.
    pub own: u64,
}

#[derive(Debug)]
pub(super) struct TokenBucket {
    level: Level,
    went_back: bool,
}

impl TokenBucket {
    pub fn open(num: u64, den: u64, limit: u64, stored: Option<&Level>, now_ms: u64) -> Self {
        let (num, den) = (num.max(1), den.max(1));
        let Some(stored) = stored else {
            let mut level = Level {
                limit,
                num,
                den,
                generation: now_ms,
                level: 0,
                at_ms: now_ms,
                interval: 0,
                charged: 0,
                intervals: VecDeque::new(),
            };
            level.level = level.full();
            level.remember_from_here();
            return Self { level, went_back: false };
        };
        let mut level = stored.clone();
        let went_back = now_ms < level.at_ms;
        level.advance(now_ms);
        if (level.limit, level.num, level.den) != (limit, num, den) {
            level.reshape(limit, num, den);
        }
        Self { level, went_back }
    }
}

impl Interval {
    fn at(level: i64) -> Self {
        Self { level, early: 0, own: 0 }
    }
}

impl Level {
    /// Level of a full bucket.
    fn full(&self) -> i64 {
        signed(self.limit.saturating_mul(self.den).min(MAX_AMOUNT))
    }

    fn interval_ms(&self) -> u64 {
        let fill_ms = ceil_div(unsigned(self.full()), self.num);
        ceil_div(fill_ms, INTERVALS_PER_FILL).max(1)
    }

    /// `from` after so many milliseconds.
    fn grown(&self, from: i64, for_ms: u64) -> i64 {
        let missing = unsigned(self.full() - from);
        if for_ms >= ceil_div(missing, self.num) {
            self.full()
        } else {
            from.saturating_add(signed(for_ms.saturating_mul(self.num)))
        }
    }

    fn remember_from_here(&mut self) {
        self.interval = self.at_ms / self.interval_ms();
        self.charged = 0;
        self.intervals = VecDeque::from([Interval::at(self.level)]);
    }

    /// Another generation: what was held before is not refunded.
    fn forget(&mut self) {
        self.generation = self.generation.saturating_add(1).max(self.at_ms);
        self.remember_from_here();
    }

    fn advance(&mut self, now_ms: u64) {
        if now_ms < self.at_ms {
            // The clock went back. Left in the future the bucket would not grow until then.
            self.at_ms = now_ms;
            self.forget();
            return;
        }
        let interval_ms = self.interval_ms();
        let index = now_ms / interval_ms;
        let begins = |interval: u64| interval.saturating_mul(interval_ms).saturating_sub(self.at_ms);
        let entered = index.saturating_sub(self.interval);
        if entered >= INTERVALS as u64 {
            let level = self.grown(self.level, begins(index));
            self.intervals = VecDeque::from([Interval::at(level)]);
        } else {
            for interval in self.interval.saturating_add(1)..=index {
                let level = self.grown(self.level, begins(interval));
                if self.intervals.len() == INTERVALS {
                    self.intervals.pop_front();
                }
                self.intervals.push_back(Interval::at(level));
            }
        }
        if entered > 0 {
            self.charged = 0;
        }
        self.level = self.grown(self.level, now_ms - self.at_ms);
        self.interval = index;
        self.at_ms = now_ms;
    }

    /// The policy has changed: whole units stay, a fraction of one is lost, and the memory. A full bucket stays
    /// full, as one does that is no longer stored.
    fn reshape(&mut self, limit: u64, num: u64, den: u64) {
        let was_full = self.level == self.full();
        let units = self.level.div_euclid(signed(self.den));
        (self.limit, self.num, self.den) = (limit, num, den);
        let level = i128::from(units).saturating_mul(i128::from(den));
        let lowest = -signed(MAX_AMOUNT);
        self.level = match was_full {
            true => self.full(),
            false => i64::try_from(level).unwrap_or(lowest).clamp(lowest, self.full()),
        };
        self.forget();
    }

    fn take(&mut self, amount: u64) {
        self.level = (self.level - signed(self.scaled(amount))).max(-signed(MAX_AMOUNT));
    }

    /// In units of 1/`den`.
    fn scaled(&self, amount: u64) -> u64 {
        amount.saturating_mul(self.den).min(MAX_AMOUNT)
    }

    /// Number of the oldest interval that is remembered.
    fn oldest(&self) -> u64 {
        self.interval.saturating_sub((self.intervals.len() as u64).saturating_sub(1))
    }

    /// The most that a refund can be worth to a hold.
    fn headroom(&self, mark: &Mark) -> Option<(usize, i64)> {
        let Mark::Level { generation, interval, at_ms, level, before, early, own } = *mark else {
            return None;
        };
        let oldest = self.oldest();
        if generation != self.generation || interval > self.interval {
            return None;
        }
        let place = usize::try_from(interval.checked_sub(oldest)?).ok()?;
        let interval_ms = self.interval_ms();
        let begins = |interval: u64| interval.saturating_mul(interval_ms);
        // How far a level has grown, at most, between a moment and the end of an interval, or now.
        let growth = |from_ms: u64, interval: u64| {
            let until_ms = self.at_ms.min(begins(interval.saturating_add(1)));
            signed(until_ms.saturating_sub(from_ms).saturating_mul(self.num))
        };
        let memory = self.intervals.get(place)?;
        let refunded =
            memory.early.saturating_sub(early).saturating_add(memory.own.saturating_sub(own).min(before));
        let mut headroom = self.full() - level - growth(at_ms, interval) - signed(refunded);
        for (later, memory) in (interval.saturating_add(1)..).zip(self.intervals.iter().skip(place + 1)) {
            let left = self.full() - memory.level - growth(begins(later), later) - signed(memory.early);
            headroom = headroom.min(left);
        }
        Some((place, headroom))
    }
}

impl Counter for TokenBucket {
    fn room(&self) -> i64 {
        self.level.level.div_euclid(signed(self.level.den))
    }

    fn charge(&mut self, _: &ReservationId, amount: u64) -> Mark {
        let fits = signed(amount) <= self.room();
        let before = self.level.charged;
        let lowest = if fits { -signed(MAX_AMOUNT) } else { self.level.level.min(-self.level.full()) };
        self.level.take(amount);
        // Attempts are counted in full, but a caller that hammers must not lock itself out for days.
        self.level.level = self.level.level.max(lowest);
        self.level.charged = before.saturating_add(self.level.scaled(amount)).min(MAX_AMOUNT);
        let memory = self.level.intervals.back().copied().unwrap_or(Interval::at(0));
        Mark::Level {
            generation: self.level.generation,
            interval: self.level.interval,
            at_ms: self.level.at_ms,
            level: self.level.level,
            before,
            early: memory.early,
            own: memory.own,
        }
    }

    fn refund(&mut self, _: &ReservationId, mark: &Mark, amount: u64) {
        let Some((place, headroom)) = self.level.headroom(mark) else { return };
        let refund = headroom.min(signed(self.level.scaled(amount))).max(0);
        for (position, memory) in self.level.intervals.iter_mut().skip(place).enumerate() {
            let refunded = if position == 0 { &mut memory.own } else { &mut memory.early };
            *refunded = refunded.saturating_add(unsigned(refund));
        }
        self.level.level = self.level.level.saturating_add(refund).min(self.level.full());
        let too_much = |memory: &Interval| memory.own.max(memory.early) > MAX_AMOUNT;
        if self.level.intervals.iter().any(too_much) {
            self.level.forget();
        }
    }

    /// A debt pays itself off at the rate.
    fn excess(&mut self, amount: u64) {
        self.level.take(amount);
    }

    fn give_back(&mut self, amount: u64) {
        let refund = signed(self.level.scaled(amount));
        self.level.level = self.level.level.saturating_add(refund).min(self.level.full());
    }

    fn wait(&self, amount: u64) -> Wait {
        if amount > self.level.limit {
            return Wait::Never;
        }
        let missing = signed(amount.saturating_mul(self.level.den)) - self.level.level;
        Wait::Ms(ceil_div(unsigned(missing), self.level.num))
    }

    fn gauge(&self) -> Gauge {
        let missing = unsigned(self.level.full() - self.level.level);
        Gauge {
            used: ceil_div(missing, self.level.den),
            remaining: self.room(),
            held: 0,
            reset_ms: ceil_div(missing, self.level.num),
        }
    }

    fn keep_ms(&self) -> Option<u64> {
        Some(self.gauge().reset_ms.saturating_add(CLOCK_MARGIN_MS))
    }

    fn state(&self) -> State {
        State::TokenBucket(self.level.clone())
    }

    fn era(&self) -> u64 {
        self.level.generation
    }

    /// Since the bucket was full, a hold has had all its headroom.
    fn places(&self) -> RangeInclusive<u64> {
        if self.level.level == self.level.full() {
            return RangeInclusive::new(1, 0);
        }
        self.level.oldest()..=self.level.interval
    }

    fn went_back(&self) -> bool {
        self.went_back
    }
}
