use std::time::Duration;

use tracing::{info, warn};

use super::Queue;
use super::sink::{Sink, SinkError};
use crate::metrics::EventOutcome;
use crate::quiet::Quiet;

const BATCH: usize = 500;
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

static FAILED: Quiet = Quiet::new();

/// Offers what waits to the sink, for ever: again and again until it is taken or refused for good.
pub async fn send(queue: Queue, mut sink: Box<dyn Sink>) {
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
    }
}
