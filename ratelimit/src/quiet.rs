//! Keeps a fault that comes with every request from filling the log.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

const PAUSE: Duration = Duration::from_secs(1);

/// One kind of message: said once a second at most.
pub struct Quiet(Mutex<State>);

struct State {
    last: Option<Instant>,
    unsaid: u64,
}

impl Quiet {
    pub const fn new() -> Self {
        Self(Mutex::new(State { last: None, unsaid: 0 }))
    }

    /// When it may be said now: how often it was not said since the last time.
    pub fn say(&self) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if state.last.is_some_and(|last| now.duration_since(last) < PAUSE) {
            state.unsaid = state.unsaid.saturating_add(1);
            return None;
        }
        state.last = Some(now);
        Some(std::mem::take(&mut state.unsaid))
    }
}

impl Default for Quiet {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn once_a_second() {
        let quiet = Quiet::new();
        assert_eq!(quiet.say(), Some(0));
        assert_eq!(quiet.say(), None);
        tokio::time::advance(Duration::from_millis(999)).await;
        assert_eq!(quiet.say(), None);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(quiet.say(), Some(2));
    }
}
