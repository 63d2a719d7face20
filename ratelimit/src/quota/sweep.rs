//! Looks after what nobody came back for: holds that lapsed unsettled, and usage events that an instance left behind.

use std::sync::Arc;
use std::time::Duration;

use tracing::{info, warn};

use super::Quota;
use crate::quiet::Quiet;
use crate::store::{LapsedHold, StoreError, Sweep};

/// For one step of a sweep.
const STEP_TIME: Duration = Duration::from_secs(5);

static AWAY: Quiet = Quiet::new();
static LAPSED: Quiet = Quiet::new();

impl Quota {
    /// Goes through all tenants once, unless another instance does. `every` is how often that happens.
    ///
    /// # Errors
    /// The store failed; what was found until then is told.
    pub async fn sweep(&self, every: Duration) -> Result<(), StoreError> {
        let most_events = match &self.telemetry.events {
            // A sink that is behind gets no more for now.
            Some(events) if events.is_behind(every) => return Ok(()),
            events => events.as_ref().map(|events| events.room()),
        };
        let policy = self.policy();
        let tell = |lapsed: &LapsedHold| self.telemetry.lapsed_event(&policy, lapsed);
        let old = u64::try_from(every.saturating_mul(2).as_millis()).unwrap_or(u64::MAX);
        let mut sweep = Sweep {
            cursor: None,
            alone_for: every.mul_f64(0.8),
            kept_before_ms: self.clock.now_ms().saturating_sub(old),
            most_events,
            tell: &tell,
        };
        let (mut holds, mut tokens, mut left) = (0usize, 0u64, 0usize);
        loop {
            let swept = self.store.sweep(&sweep, STEP_TIME).await?;
            left += swept.events.len();
            for LapsedHold { hold, .. } in &swept.lapsed {
                self.telemetry.metrics.lapsed(hold.tokens);
                holds += 1;
                tokens = tokens.saturating_add(hold.tokens);
            }
            sweep.most_events = sweep.most_events.map(|most| most.saturating_sub(swept.events.len()));
            swept.events.into_iter().for_each(|event| self.telemetry.send(event));
            sweep.cursor = swept.next;
            if swept.next.is_none() {
                break;
            }
        }
        if holds > 0
            && let Some(unsaid) = LAPSED.say()
        {
            warn!(holds, tokens, unsaid, "nobody settled these holds in time: they stay charged");
        }
        let left = left.saturating_sub(if most_events.is_some() { holds } else { 0 });
        if left > 0 {
            info!(events = left, "delivering usage events that were left over");
        }
        Ok(())
    }
}

/// Sweeps for ever.
pub async fn follow(quota: Arc<Quota>, every: Duration) {
    loop {
        if let Err(error) = quota.sweep(every).await
            && let Some(unsaid) = AWAY.say()
        {
            warn!(%error, unsaid, "lapsed holds and left-over usage events could not be looked for");
        }
        tokio::time::sleep(every).await;
    }
}
