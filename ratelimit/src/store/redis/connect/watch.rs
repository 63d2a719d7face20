use std::sync::Arc;
use std::time::Duration;

use redis::RedisError;
use redis::aio::ConnectionManager;
use tracing::{debug, error, info, warn};

use super::server_info::{Finding, ServerInfo, findings};
use crate::metrics::Metrics;
use crate::store::StoreError;

/// Between two looks at a server.
const PAUSE: Duration = Duration::from_secs(5);

/// Looks at the server from time to time, above all after it was away: it may have come back as another one,
/// or empty.
pub struct Watch {
    connection: ConnectionManager,
    /// Written once; gone when the server has lost what it was told.
    marker: String,
    before: Option<ServerInfo>,
}

impl Watch {
    pub fn new(connection: ConnectionManager, key_prefix: &str) -> Self {
        Self { connection, marker: format!("{key_prefix}:marker"), before: None }
    }

    /// Looks once. Leaves the marker where there is none.
    ///
    /// # Errors
    /// The server does not answer.
    pub async fn look(&mut self, longest_window_ms: u64) -> Result<Vec<Finding>, StoreError> {
        let now = read(&mut self.connection).await?;
        let marked: bool = redis::cmd("EXISTS").arg(&self.marker).query_async(&mut self.connection).await?;
        let found = findings(self.before.as_ref(), &now, marked, longest_window_ms);
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

    /// Looks for ever, and tells what it finds. `longest_window_ms` is asked for with every look.
    pub async fn run(mut self, metrics: Arc<Metrics>, longest_window_ms: impl Fn() -> u64 + Send) {
        loop {
            match self.look(longest_window_ms()).await {
                Ok(found) => found.iter().for_each(|finding| tell(finding, &metrics)),
                // Calls that fail are told by whoever makes them.
                Err(error) => debug!(%error, "Redis could not be looked at"),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Asks a server about itself.
pub async fn read(connection: &mut ConnectionManager) -> Result<ServerInfo, RedisError> {
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
        Finding::Restarted => warn!("Redis was started again, or another one answers"),
        Finding::Wiped => {
            metrics.store_wiped();
            error!(
                "store_wiped: Redis has lost what it was told; every window, balance and open hold begins anew"
            );
        }
    }
}
