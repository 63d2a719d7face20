use std::sync::Arc;
use std::time::Duration;

use tracing::{info, warn};

use super::Queue;
use super::sink::{Sink, SinkError};
use crate::metrics::EventOutcome;
use crate::quiet::Quiet;
use crate::store::Store;

const BATCH: usize = 500;
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

const STORE_TIME: Duration = Duration::from_secs(2);

static FAILED: Quiet = Quiet::new();
static KEPT: Quiet = Quiet::new();

/// Offers what waits to the sink, for ever: again and again until it is taken or refused for good. Then the store
/// need not keep it any longer.
pub async fn send(queue: Queue, mut sink: Box<dyn Sink>, store: Arc<dyn Store>) {
    let mut pause = FIRST_PAUSE;
    let mut failing = false;
    loop {
        queue.filled().await;
        let lines = queue.take(BATCH);
        match sink.write(&lines).await {
            Ok(()) => {
                queue.done(EventOutcome::Written);
                pause = FIRST_PAUSE;
                if std::mem::take(&mut failing) {
                    info!("the sink of usage events works again");
                }
            }
            Err(SinkError::Refused(reason)) => {
                queue.done(EventOutcome::Rejected);
                if let Some(unsaid) = FAILED.say() {
                    warn!(reason, events = lines.len(), unsaid, "usage events were refused, and are lost");
                }
            }
            Err(SinkError::Away(reason)) => {
                failing = true;
                if let Some(unsaid) = FAILED.say() {
                    warn!(reason, unsaid, "usage events could not be written; they are kept and tried again");
                }
                tokio::time::sleep(pause).await;
                pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
            }
        }
        forget(&queue, store.as_ref()).await;
    }
}

/// What the store keeps although it need not is delivered once more.
async fn forget(queue: &Queue, store: &dyn Store) {
    let over = queue.over();
    if !over.is_empty()
        && let Err(error) = store.delivered(&over, STORE_TIME).await
        && let Some(unsaid) = KEPT.say()
    {
        warn!(%error, events = over.len(), unsaid, "delivered usage events stay in the store: they will come twice");
    }
    queue.told();
}
