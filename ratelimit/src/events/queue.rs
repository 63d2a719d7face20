use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokengate_api::ReservationId;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::warn;

use crate::metrics::{EventOutcome, Metrics};
use crate::quiet::Quiet;
use crate::store::KeptEvent;
use crate::tag::Tag;

static OVERFLOWED: Quiet = Quiet::new();

/// Events that no sink has taken yet, oldest first. Bounded: the oldest goes when there are more, from the store too,
/// so that a sink that stays away cannot fill that.
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
    events: VecDeque<(Instant, KeptEvent)>,
    /// How many of the first events are with the sink.
    taken: usize,
    /// What the store need not keep any longer.
    over: Vec<(Tag, ReservationId)>,
    /// The store is being told.
    telling: bool,
}

impl Queue {
    pub fn new(most: usize, metrics: Arc<Metrics>) -> Self {
        Self(Arc::new(Shared { most, metrics, waiting: Mutex::default(), pushed: Notify::new() }))
    }

    pub fn push(&self, event: KeptEvent) {
        let mut waiting = self.waiting();
        waiting.events.push_back((Instant::now(), event));
        if waiting.events.len() > self.0.most {
            // One that is with the sink may still arrive there.
            waiting.taken = waiting.taken.saturating_sub(1);
            if let Some((_, oldest)) = waiting.events.pop_front() {
                waiting.over.push((oldest.account, oldest.id));
            }
            self.0.metrics.events(EventOutcome::Overflowed, 1);
            if let Some(unsaid) = OVERFLOWED.say() {
                warn!(unsaid, "too many usage events wait for their sink: the oldest is dropped");
            }
        }
        self.count(&waiting);
        drop(waiting);
        self.0.pushed.notify_one();
    }

    /// Nothing waits, and the store knows it.
    pub fn is_empty(&self) -> bool {
        let waiting = self.waiting();
        waiting.events.is_empty() && waiting.over.is_empty() && !waiting.telling
    }

    /// How many more events it takes.
    pub fn room(&self) -> usize {
        self.0.most.saturating_sub(self.waiting().events.len())
    }

    /// For how long the oldest event has been waiting.
    pub fn oldest(&self) -> Option<Duration> {
        self.waiting().events.front().map(|(since, _)| since.elapsed())
    }

    /// Copies of the oldest lines. They stay until [`Queue::done`].
    pub fn take(&self, most: usize) -> Vec<String> {
        let mut waiting = self.waiting();
        let lines: Vec<_> = waiting.events.iter().take(most).map(|(_, event)| event.line.clone()).collect();
        waiting.taken = lines.len();
        lines
    }

    /// What was taken last needs no other try.
    pub fn done(&self, outcome: EventOutcome) {
        let mut waiting = self.waiting();
        let Waiting { events, taken, over, .. } = &mut *waiting;
        let taken = std::mem::take(taken);
        over.extend(events.drain(..taken).map(|(_, event)| (event.account, event.id)));
        self.0.metrics.events(outcome, u64::try_from(taken).unwrap_or(u64::MAX));
        self.count(&waiting);
    }

    /// What the store is to be told, once. [`Queue::told`] has to follow.
    pub fn over(&self) -> Vec<(Tag, ReservationId)> {
        let mut waiting = self.waiting();
        waiting.telling = true;
        std::mem::take(&mut waiting.over)
    }

    /// The store was told, or did not listen.
    pub fn told(&self) {
        self.waiting().telling = false;
    }

    /// Gives up all that is left, and says how many that were.
    pub fn abandon(&self, outcome: EventOutcome) -> usize {
        let mut waiting = self.waiting();
        let left = waiting.events.len();
        *waiting = Waiting::default();
        self.0.metrics.events(outcome, u64::try_from(left).unwrap_or(u64::MAX));
        self.count(&waiting);
        left
    }

    /// Until there is something to take.
    pub async fn filled(&self) {
        while self.waiting().events.is_empty() {
            self.0.pushed.notified().await;
        }
    }

    fn count(&self, waiting: &Waiting) {
        self.0.metrics.events_pending().set(i64::try_from(waiting.events.len()).unwrap_or(i64::MAX));
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
