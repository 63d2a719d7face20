use std::sync::Arc;
use std::time::Duration;

use redis::RedisError;
use tracing::{debug, error, info, warn};

use super::Connection;
use super::server_info::{Finding, ServerInfo, Unfit, findings};
use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::store::{MAX_CLOCK_DIFFERENCE, StoreError};

/// Between two looks at a server.
const PAUSE: Duration = Duration::from_secs(5);
/// A server that does not answer a look for so long is left: its address may lead to another one by now.
const PATIENCE: Duration = Duration::from_secs(2);

/// Looks at the server from time to time, above all after it was away: it may have come back as another one,
/// or empty.
pub struct Watch {
    connection: Connection,
    clock: Arc<dyn Clock>,
    /// Written once; gone when the server has lost what it was told.
    marker: String,
    before: Option<ServerInfo>,
    /// Milliseconds by which the server's clock was ahead of ours at the last look.
    ahead_ms: i64,
}

impl Watch {
    pub fn new(connection: Connection, clock: Arc<dyn Clock>, key_prefix: &str) -> Self {
        Self { connection, clock, marker: format!("{key_prefix}:marker"), before: None, ahead_ms: 0 }
    }

    /// Looks once. Leaves the marker where there is none.
    ///
    /// # Errors
    /// The server does not answer.
    pub async fn look(&mut self, longest_window_ms: u64) -> Result<Vec<Finding>, StoreError> {
        let now = ask(&mut self.connection).await?;
        if now.unfit.is_some() {
            // It may know neither the time nor keys; what it lacks says nothing of the right one.
            self.connection.renew();
            let found = findings(self.before.as_ref(), &now, true, longest_window_ms);
            self.before = Some(now);
            return Ok(found);
        }
        let clocks = self.compare_clocks().await?;
        let marked: bool = redis::cmd("EXISTS").arg(&self.marker).query_async(&mut self.connection).await?;
        let mut found = findings(self.before.as_ref(), &now, marked, longest_window_ms);
        found.extend(clocks);
        if !marked {
            redis::cmd("SET")
                .arg(&self.marker)
                .arg(&now.run_id)
                .query_async::<()>(&mut self.connection)
                .await?;
            if self.before.is_none() {
                info!("nothing of this key prefix was in Redis: a first start, or it was wiped");
            }
        }
        self.before = Some(now);
        Ok(found)
    }

    /// Something when they have come apart since the last look.
    async fn compare_clocks(&mut self) -> Result<Option<Finding>, RedisError> {
        let (seconds, micros): (i64, i64) = redis::cmd("TIME").query_async(&mut self.connection).await?;
        let theirs = seconds.saturating_mul(1000).saturating_add(micros / 1000);
        let ours = i64::try_from(self.clock.now_ms()).unwrap_or(i64::MAX);
        let apart = |ahead_ms: i64| u128::from(ahead_ms.unsigned_abs()) > MAX_CLOCK_DIFFERENCE.as_millis();
        let ahead_ms = theirs.saturating_sub(ours);
        let before = std::mem::replace(&mut self.ahead_ms, ahead_ms);
        Ok((apart(ahead_ms) && !apart(before)).then_some(Finding::ClocksDiffer { ahead_ms }))
    }

    /// Looks for ever, and tells what it finds. `longest_window_ms` is asked for with every look.
    pub async fn run(mut self, metrics: Arc<Metrics>, longest_window_ms: impl Fn() -> u64 + Send) {
        loop {
            match tokio::time::timeout(PATIENCE, self.look(longest_window_ms())).await {
                Ok(Ok(found)) => {
                    metrics.store_clock_ahead(self.ahead_ms);
                    found.iter().for_each(|finding| tell(finding, &metrics));
                }
                // Calls that fail are told by whoever makes them.
                Ok(Err(error)) => debug!(%error, "Redis could not be looked at"),
                Err(_) => self.connection.renew(),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Asks a server what it cannot be used for.
pub async fn ask_kind(connection: &mut Connection) -> Result<Option<Unfit>, RedisError> {
    let info: String = redis::cmd("INFO").query_async(connection).await?;
    Ok(ServerInfo::read(&info, None).unfit)
}

/// Asks a server about itself.
pub async fn ask(connection: &mut Connection) -> Result<ServerInfo, RedisError> {
    let info: String = redis::cmd("INFO").query_async(connection).await?;
    // Managed servers may not say it.
    let config: Result<Vec<String>, _> =
        redis::cmd("CONFIG").arg("GET").arg("save").query_async(connection).await;
    let snapshots = config.ok().and_then(|pair| pair.into_iter().nth(1));
    Ok(ServerInfo::read(&info, snapshots.as_deref()))
}

fn tell(finding: &Finding, metrics: &Metrics) {
    match finding {
        Finding::Evicts { policy } => error!(
            policy,
            "Redis throws counters away when it is full, which gives free windows: set maxmemory-policy noeviction"
        ),
        Finding::Forgets { longest_window_ms } => warn!(
            longest_window_ms,
            "Redis has neither persistence nor a replica: a restart forgets every count, also of the longest window"
        ),
        Finding::Unfit(unfit) => error!("Redis cannot be counted on: {unfit}"),
        Finding::ClocksDiffer { ahead_ms } => error!(
            ahead_ms,
            "the clocks of Redis and of this machine differ by more than {} s: nothing is decided until they agree",
            MAX_CLOCK_DIFFERENCE.as_secs()
        ),
        Finding::Restarted => warn!("Redis was started again, or another one answers"),
        Finding::Wiped => {
            metrics.store_wiped();
            error!(
                "store_wiped: Redis has lost what it was told; every window, balance and open hold begins anew"
            );
        }
    }
}
