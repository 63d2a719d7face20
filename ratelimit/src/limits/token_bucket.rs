//! Token buckets: a level that grows at a rate up to the limit, and is drawn down by charges.
//!
//! The level is kept in units of 1/`den`, so that `num` is added per millisecond without a fraction. A refund is
//! worth at most the headroom that the bucket has had since the hold: giving back more would let a caller have
//! both the refund and what had regrown in its place. To know that headroom the bucket remembers, for 32
//! intervals, how it stood at the beginning of each and what was refunded since.

use std::collections::VecDeque;

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
    /// Oldest first; the last one is `interval`.
    pub intervals: VecDeque<Interval>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Level at its beginning, or when the memory began.
    pub level: i64,
    /// Refunds of holds made before its end, done since its beginning.
    pub got: u64,
}

#[derive(Debug)]
pub(super) struct TokenBucket(Level);

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
                intervals: VecDeque::new(),
            };
            level.level = level.full();
            level.remember_from_here();
            return Self(level);
        };
        let mut level = stored.clone();
        level.advance(now_ms);
        if (level.limit, level.num, level.den) != (limit, num, den) {
            level.reshape(limit, num, den);
        }
        Self(level)
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
        self.intervals = VecDeque::from([Interval { level: self.level, got: 0 }]);
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
            self.intervals = VecDeque::from([Interval { level, got: 0 }]);
        } else {
            for interval in self.interval.saturating_add(1)..=index {
                let level = self.grown(self.level, begins(interval));
                if self.intervals.len() == INTERVALS {
                    self.intervals.pop_front();
                }
                self.intervals.push_back(Interval { level, got: 0 });
            }
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
        let taken = amount.saturating_mul(self.den).min(MAX_AMOUNT);
        self.level = (self.level - signed(taken)).max(-signed(MAX_AMOUNT));
    }

    /// The most that a refund can be worth to a hold.
    fn headroom(&self, mark: &Mark) -> Option<(usize, i64)> {
        let Mark::Level { generation, interval, at_ms, level, got } = *mark else { return None };
        let oldest = self.interval.saturating_sub((self.intervals.len() as u64).saturating_sub(1));
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
        let own = self.intervals.get(place)?;
        let mut headroom =
            self.full() - level - growth(at_ms, interval) - signed(own.got.saturating_sub(got));
        for (later, memory) in (interval.saturating_add(1)..).zip(self.intervals.iter().skip(place + 1)) {
            let left = self.full() - memory.level - growth(begins(later), later) - signed(memory.got);
            headroom = headroom.min(left);
        }
        Some((place, headroom))
    }
}

impl Counter for TokenBucket {
    fn room(&self) -> i64 {
        self.0.level.div_euclid(signed(self.0.den))
    }

    fn charge(&mut self, _: &ReservationId, amount: u64) -> Mark {
        let fits = signed(amount) <= self.room();
        let lowest = if fits { self.0.level } else { self.0.level.min(-self.0.full()) };
        self.0.take(amount);
        if !fits {
            // Attempts are counted in full, but a caller that hammers must not lock itself out for days.
            self.0.level = self.0.level.max(lowest);
        }
        Mark::Level {
            generation: self.0.generation,
            interval: self.0.interval,
            at_ms: self.0.at_ms,
            level: self.0.level,
            got: self.0.intervals.back().map_or(0, |interval| interval.got),
        }
    }

    fn refund(&mut self, _: &ReservationId, mark: &Mark, amount: u64) {
        let Some((place, headroom)) = self.0.headroom(mark) else { return };
        let refund = headroom.min(signed(amount.saturating_mul(self.0.den).min(MAX_AMOUNT))).max(0);
        for interval in self.0.intervals.iter_mut().skip(place) {
            interval.got = interval.got.saturating_add(unsigned(refund));
        }
        self.0.level = self.0.level.saturating_add(refund).min(self.0.full());
    }

    /// A debt pays itself off at the rate.
    fn excess(&mut self, amount: u64) {
        self.0.take(amount);
    }

    fn wait(&self, amount: u64) -> Wait {
        if amount > self.0.limit {
            return Wait::Never;
        }
        let missing = signed(amount.saturating_mul(self.0.den)) - self.0.level;
        Wait::Ms(ceil_div(unsigned(missing), self.0.num))
    }

    fn gauge(&self) -> Gauge {
        let missing = unsigned(self.0.full() - self.0.level);
        Gauge {
            used: ceil_div(missing, self.0.den),
            remaining: unsigned(self.room()),
            reset_ms: ceil_div(missing, self.0.num),
        }
    }

    fn keep_ms(&self) -> Option<u64> {
        Some(self.gauge().reset_ms.saturating_add(CLOCK_MARGIN_MS))
    }

    fn state(&self) -> State {
        State::TokenBucket(self.0.clone())
    }
}
