use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;
use tracing::warn;

use crate::metrics::{EventOutcome, Metrics};
use crate::quiet::Quiet;

static OVERFLOWED: Quiet = Quiet::new();

/// Events that no sink has taken yet, oldest first. Bounded: the oldest goes when there are more.
#[derive(Clone)]
pub struct Queue(Arc<Shared>);

struct Shared {
    most: usize,
    metrics: Arc<Metrics>,
    waiting: Mutex<Waiting>,
    pushed: Notify,
}

#[derive(Default)]
struct Waiting {
    lines: VecDeque<String>,
    /// How many of the first lines are with the sink.
    taken: usize,
}

impl Queue {
    pub fn new(most: usize, metrics: Arc<Metrics>) -> Self {
        Self(Arc::new(Shared { most, metrics, waiting: Mutex::default(), pushed: Notify::new() }))
    }

    pub fn push(&self, line: String) {
        let mut waiting = self.waiting();
        waiting.lines.push_back(line);
        if waiting.lines.len() > self.0.most {
            waiting.lines.pop_front();
            // One that is with the sink may still arrive there.
            waiting.taken = waiting.taken.saturating_sub(1);
            self.0.metrics.events(EventOutcome::Overflowed, 1);
            if let Some(unsaid) = OVERFLOWED.say() {
                warn!(unsaid, "too many usage events wait for their sink: the oldest is dropped");
            }
        }
        self.count(&waiting);
        drop(waiting);
        self.0.pushed.notify_one();
    }

    pub fn is_empty(&self) -> bool {
        self.waiting().lines.is_empty()
    }

    /// Copies of the oldest lines. They stay until [`Queue::done`].
    pub fn take(&self, most: usize) -> Vec<String> {
        let mut waiting = self.waiting();
        let lines: Vec<_> = waiting.lines.iter().take(most).cloned().collect();
        waiting.taken = lines.len();
        lines
    }

    /// What was taken last needs no other try.
    pub fn done(&self, outcome: EventOutcome) {
        let mut waiting = self.waiting();
        let taken = std::mem::take(&mut waiting.taken);
        waiting.lines.drain(..taken);
        self.0.metrics.events(outcome, u64::try_from(taken).unwrap_or(u64::MAX));
        self.count(&waiting);
    }

    /// Gives up all that is left, and says how many that were.
    pub fn abandon(&self) -> usize {
        let mut waiting = self.waiting();
        let left = waiting.lines.len();
        *waiting = Waiting::default();
        self.0.metrics.events(EventOutcome::Abandoned, u64::try_from(left).unwrap_or(u64::MAX));
        self.count(&waiting);
        left
    }

    /// Until there is something to take.
    pub async fn filled(&self) {
        while self.is_empty() {
            self.0.pushed.notified().await;
        }
    }

    fn count(&self, waiting: &Waiting) {
        self.0.metrics.events_pending().set(i64::try_from(waiting.lines.len()).unwrap_or(i64::MAX));
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
