//! Whether the machine was ours: what other programs took while we measured.

use std::fs;
use std::time::Instant;

use redis::aio::MultiplexedConnection;

use crate::Outcome;
use crate::redis_server::cpu_us;

pub struct Others {
    since: Instant,
    not_ours_us: f64,
}

impl Others {
    /// From now on. No service may be running: one that has not ended is not yet known to be ours.
    pub async fn watch(redis: &mut MultiplexedConnection) -> Outcome<Self> {
        Ok(Self { since: Instant::now(), not_ours_us: not_ours_us(redis).await? })
    }

    /// Cores that were busy for others, the machine's host among them; again without a running service.
    pub async fn cores(&self, redis: &mut MultiplexedConnection) -> Outcome<f64> {
        let us = not_ours_us(redis).await? - self.not_ours_us;
        Ok((us / 1e6 / self.since.elapsed().as_secs_f64()).max(0.0))
    }
}

/// USER_HZ is 100 on Linux.
fn us(ticks: &[&str]) -> Outcome<f64> {
    let ticks: Vec<f64> = ticks.iter().map(|ticks| ticks.parse()).collect::<Result<_, _>>()?;
    Ok(ticks.iter().sum::<f64>() * 10_000.0)
}

async fn not_ours_us(redis: &mut MultiplexedConnection) -> Outcome<f64> {
    let all = fs::read_to_string("/proc/stat")?;
    let all: Vec<&str> = all.lines().next().unwrap_or_default().split_whitespace().collect();
    // user, nice, system; idle and iowait are not busy; irq, softirq, steal.
    let busy =
        us(all.get(1..4).ok_or("/proc/stat is short")?)? + us(all.get(6..9).ok_or("/proc/stat is short")?)?;
    let own = fs::read_to_string("/proc/self/stat")?;
    let own: Vec<&str> = own.rsplit_once(") ").map_or("", |(_, rest)| rest).split(' ').collect();
    // User and system time of this process and of its children that have ended.
    let own = us(own.get(11..15).ok_or("/proc/self/stat is short")?)?;
    Ok(busy - own - cpu_us(redis).await?)
}
