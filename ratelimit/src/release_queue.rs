//! Whoever gives up, closes: releases of reserves whose fate in the store is not known.
//!
//! A reserve that ran into its deadline may still be carried out when the store wakes up. Its release waits
//! here until the store takes it, or until it is too old to be taken.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::quiet::Quiet;
use crate::store::{Lifetimes, Settlement, Store};

/// The oldest goes when there are more: its hold, if there is one, stays charged.
const MOST: usize = 65_536;
const BATCH: usize = 128;
const TIME_PER_BATCH: Duration = Duration::from_secs(2);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

static DROPPED: Quiet = Quiet::new();

/// Shared by whoever gives up and the one task that sends.
#[derive(Clone, Default)]
pub struct ReleaseQueue(Arc<Shared>);

#[derive(Default)]
struct Shared {
    waiting: Mutex<VecDeque<(Instant, Settlement)>>,
    pushed: Notify,
    /// A batch is on its way to the store.
    sending: AtomicBool,
}

impl ReleaseQueue {
    pub fn push(&self, settlement: Settlement) {
        let dropped = {
            let mut waiting = self.waiting();
            waiting.push_back((Instant::now(), settlement));
            if waiting.len() > MOST { waiting.pop_front() } else { None }
        };
        if let (Some((_, settlement)), Some(unsaid)) = (dropped, DROPPED.say()) {
            warn!(id = %settlement.id, unsaid, "too many releases wait for the store: the oldest is dropped");
        }
        self.0.pushed.notify_one();
    }

    /// Nothing waits, and nothing is on its way.
    pub fn is_empty(&self) -> bool {
        let waiting = self.waiting();
        waiting.is_empty() && !self.0.sending.load(Ordering::SeqCst)
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, VecDeque<(Instant, Settlement)>> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends what waits, for ever. Runs beside the servers.
    pub async fn run(self, store: Arc<dyn Store>) {
        let mut pause = FIRST_PAUSE;
        loop {
            if self.is_empty() {
                self.0.pushed.notified().await;
            } else if self.send_some(store.as_ref()).await {
                pause = FIRST_PAUSE;
            } else {
                tokio::time::sleep(pause).await;
                pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
            }
        }
    }

    /// Whether the store took some of them, or nothing is left.
    async fn send_some(&self, store: &dyn Store) -> bool {
        let taken: Vec<_> = {
            let mut waiting = self.waiting();
            let count = waiting.len().min(BATCH);
            self.0.sending.store(true, Ordering::SeqCst);
            waiting.drain(..count).collect()
        };
        let aged = |(since, settlement): &(Instant, Settlement)| {
            let queued_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
            Settlement { queued_ms, ..settlement.clone() }
        };
        let batch: Vec<_> = taken.iter().map(aged).collect();
        // Nobody was let through: there is nothing to tell.
        let answers = store.settle(&batch, &|_, _| None, TIME_PER_BATCH).await;
        let mut closed = 0usize;
        let mut again = Vec::new();
        // Afterwards there is no record left that could be closed.
        let in_time = |since: &Instant| since.elapsed() < Lifetimes::default().record;
        for (entry, answer) in taken.into_iter().zip(answers) {
            match answer {
                Ok(_) => closed += 1,
                Err(_) if in_time(&entry.0) => again.push(entry),
                Err(error) => {
                    if let Some(unsaid) = DROPPED.say() {
                        let id = &entry.1.id;
                        warn!(%id, %error, unsaid, "a release was refused for too long: it is dropped");
                    }
                }
            }
        }
        if closed > 0 {
            info!(closed, "released reserves that had no answer");
        }
        let progress = closed > 0 || again.is_empty();
        // At the end: one that cannot be read must not keep the others waiting.
        self.waiting().extend(again);
        self.0.sending.store(false, Ordering::SeqCst);
        progress
    }
}
