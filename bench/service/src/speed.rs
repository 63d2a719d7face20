//! Pairs per second, latencies and CPU, the ways taking turns.

use std::time::Duration;

use crate::Outcome;
use crate::bench::{Bench, Block, Way};
use crate::load::Timed;
use crate::numbers::{median, percentile};
use crate::recorded::Recorded;
use crate::redis_server::flush;

/// How long and how often is measured.
#[derive(Clone, Copy)]
pub struct Effort {
    pub rounds: usize,
    /// Of each way in each round.
    pub slice: Duration,
}

/// One way in one round.
#[derive(Default)]
pub struct Slice {
    pairs: f64,
    wall: Duration,
    reserve_us: Vec<f64>,
    pair_us: Vec<f64>,
    redis_cpu_us: f64,
    service_cpu_us: f64,
    load_cpu_us: f64,
}

impl Slice {
    pub fn add(&mut self, reserve: &Timed, settle: &Timed, redis_cpu_us: f64) {
        self.pairs += reserve.each_us.len() as f64;
        self.wall += reserve.wall + settle.wall;
        self.reserve_us.extend(&reserve.each_us);
        self.pair_us
            .extend(reserve.each_us.iter().zip(&settle.each_us).map(|(reserve, settle)| reserve + settle));
        self.redis_cpu_us += redis_cpu_us;
        self.load_cpu_us += reserve.cpu_us + settle.cpu_us;
    }

    pub fn wall(&self) -> Duration {
        self.wall
    }

    pub fn used_service_cpu(&mut self, us: f64) {
        self.service_cpu_us += us;
    }
}

/// All rounds of one way.
#[derive(Default)]
pub struct Rounds(Vec<Slice>);

impl Rounds {
    pub fn push(&mut self, slice: Slice) {
        self.0.push(slice);
    }

    /// The first one warms up.
    pub fn forget_first(&mut self) {
        self.0.remove(0);
    }

    fn each(&self, of: impl Fn(&Slice) -> f64) -> Vec<f64> {
        self.0.iter().map(of).collect()
    }

    pub fn pairs_per_second(&self) -> Vec<f64> {
        self.each(|slice| slice.pairs / slice.wall.as_secs_f64())
    }

    pub fn reserve_us(&self, share: f64) -> f64 {
        median(&self.each(|slice| percentile(&slice.reserve_us, share)))
    }

    pub fn pair_us(&self, share: f64) -> f64 {
        median(&self.each(|slice| percentile(&slice.pair_us, share)))
    }

    /// Over all rounds: the service's clock is too coarse for one.
    fn per_pair(&self, of: impl Fn(&Slice) -> f64) -> f64 {
        self.each(of).iter().sum::<f64>() / self.each(|slice| slice.pairs).iter().sum::<f64>()
    }

    pub fn redis_cpu_us(&self) -> f64 {
        self.per_pair(|slice| slice.redis_cpu_us)
    }

    pub fn service_cpu_us(&self) -> f64 {
        self.per_pair(|slice| slice.service_cpu_us)
    }

    pub fn load_cpu_us(&self) -> f64 {
        self.per_pair(|slice| slice.load_cpu_us)
    }

    /// Cores that load, service and Redis kept busy together, the service only where it was called.
    pub fn cores(&self, with_service: bool) -> f64 {
        let service = if with_service { self.service_cpu_us() } else { 0.0 };
        let us = self.redis_cpu_us() + self.load_cpu_us() + service;
        us / 1e6 * median(&self.pairs_per_second())
    }
}

/// One policy under so many callers.
pub struct Cell {
    pub callers: usize,
    raw: Rounds,
    store: Rounds,
    service: Rounds,
}

impl Cell {
    pub fn of(&self, way: Way) -> &Rounds {
        match way {
            Way::Raw => &self.raw,
            Way::Store => &self.store,
            Way::Service => &self.service,
        }
    }

    /// The way's pairs per second by the bare scripts', round by round.
    pub fn ratios(&self, way: Way) -> Vec<f64> {
        let raw = self.raw.pairs_per_second();
        self.of(way).pairs_per_second().iter().zip(raw).map(|(way, raw)| way / raw).collect()
    }
}

/// Whose reservations are made, and whether the server is emptied before each slice.
pub struct Population<'a> {
    pub tenants: &'a [usize],
    pub recordings: &'a [Recorded],
    pub emptied: bool,
}

pub fn pairs_in_a_block(callers: usize) -> usize {
    256.max(32 * callers)
}

/// Measures all ways in turns: what disturbs the machine for a while disturbs each of them.
pub async fn cell(
    bench: &mut Bench,
    ways: &[Way],
    callers: usize,
    population: &Population<'_>,
    effort: Effort,
) -> Outcome<Cell> {
    let mut cell =
        Cell { callers, raw: Rounds::default(), store: Rounds::default(), service: Rounds::default() };
    for round in 0..effort.rounds {
        for turn in 0..ways.len() {
            // Nobody is always the first.
            let way = ways[(round + turn) % ways.len()];
            let slice = slice(bench, way, callers, population, effort.slice).await?;
            match way {
                Way::Raw => cell.raw.push(slice),
                Way::Store => cell.store.push(slice),
                Way::Service => cell.service.push(slice),
            }
        }
    }
    Ok(cell)
}

async fn slice(
    bench: &mut Bench,
    way: Way,
    callers: usize,
    population: &Population<'_>,
    time: Duration,
) -> Outcome<Slice> {
    let Population { tenants, recordings, emptied } = *population;
    if emptied {
        flush(&mut bench.redis).await?;
        bench.fund(tenants).await?;
    }
    bench.block(way, callers, tenants, recordings, 128).await?;
    let mut slice = Slice::default();
    let before = bench.service.cpu_us()?;
    while slice.wall < time {
        let block = bench.block(way, callers, tenants, recordings, pairs_in_a_block(callers)).await?;
        let Block { reserve, settle, redis_cpu_us } = &block;
        slice.add(reserve, settle, *redis_cpu_us);
    }
    slice.used_service_cpu(bench.service.cpu_us()? - before);
    Ok(slice)
}
