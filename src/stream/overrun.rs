//! `overrun: stop`: watches what a stream has delivered, asks for more before its hold is used up, and says
//! when it has to end.

use tokengate_api::ExtendStatus;

/// The least that is asked for at a time, in tokens. A reservation can be extended some sixty times, so that
/// larger holds grow by larger steps.
const SMALLEST_STEP: u64 = 256;

pub struct Overrun {
    /// Output tokens of all choices.
    held: u64,
    /// What the provider can produce at most, in all.
    most: Option<u64>,
    /// The provider was told to stop by itself where the hold ends.
    is_bounded: bool,
    state: State,
    counted: u64,
    /// Bytes since then. A token has at least one.
    bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Watching,
    /// For this total.
    Asked(u64),
    /// The hold is all there will be.
    Refused,
    /// The last event is written.
    Stopped,
    /// The service knows nothing of the hold: what comes is debt.
    Unwatched,
}

impl Overrun {
    pub fn new(held: u64, most: Option<u64>, is_bounded: bool) -> Self {
        let is_bounded = is_bounded || most.is_some_and(|most| most <= held);
        Self { held, most, is_bounded, state: State::Watching, counted: 0, bytes: 0 }
    }

    /// More was delivered: so many bytes, and as counted so many tokens in all. Gives the total that is to be
    /// held now.
    pub fn delivered(&mut self, bytes: usize, tokens: impl FnOnce() -> u64) -> Option<u64> {
        self.bytes = self.bytes.saturating_add(bytes as u64);
        if self.state != State::Watching || !self.reaches(self.threshold(), tokens) {
            return None;
        }
        let step = (self.held / 2).max(SMALLEST_STEP);
        let total = self.counted.max(self.held).saturating_add(step);
        // A provider that goes on beyond its maximum is asked for all the same.
        let most = self.most.filter(|most| *most > self.held.max(self.counted)).unwrap_or(u64::MAX);
        let total = total.min(most);
        self.state = State::Asked(total);
        Some(total)
    }

    /// What is held was asked to be more.
    pub fn answered(&mut self, status: ExtendStatus, held: Option<u64>) {
        let State::Asked(total) = self.state else { return };
        self.state = match status {
            ExtendStatus::Allow => {
                self.held = held.unwrap_or(total).max(self.held);
                self.is_bounded |= self.most.is_some_and(|most| most <= self.held);
                State::Watching
            }
            ExtendStatus::Deny => State::Refused,
            ExtendStatus::Unknown => State::Unwatched,
        };
    }

    /// Every event that comes may be one too many.
    pub fn is_refused(&self) -> bool {
        self.state == State::Refused
    }

    /// Nothing more may be delivered; so much was since this was asked before.
    pub fn must_stop(&mut self, bytes: usize, tokens: impl FnOnce() -> u64) -> bool {
        self.bytes = self.bytes.saturating_add(bytes as u64);
        self.state == State::Refused && self.reaches(self.held, tokens)
    }

    /// Output tokens that are held by now.
    pub fn held(&self) -> u64 {
        self.held
    }

    pub fn stop(&mut self) {
        self.state = State::Stopped;
    }

    pub fn is_stopped(&self) -> bool {
        self.state == State::Stopped
    }

    /// From here on more is asked for.
    fn threshold(&self) -> u64 {
        if self.is_bounded { self.held.saturating_add(1) } else { self.held - self.held / 10 }
    }

    /// Counts only when it could be so: as a stream comes closer, the more often.
    fn reaches(&mut self, threshold: u64, tokens: impl FnOnce() -> u64) -> bool {
        if self.counted.saturating_add(self.bytes) < threshold {
            return false;
        }
        (self.counted, self.bytes) = (tokens(), 0);
        self.counted >= threshold
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_is_asked_for_before_the_hold_ends() {
        let mut overrun = Overrun::new(1_000, Some(1_600), false);
        assert_eq!(overrun.delivered(899, || unreachable!("it cannot be so many")), None);
        assert_eq!(overrun.delivered(1, || 300), None);
        assert_eq!(overrun.delivered(599, || unreachable!("nor now")), None);
        assert_eq!(overrun.delivered(4_000, || 900), Some(1_500));
        assert_eq!(overrun.delivered(4_000, || unreachable!("asked already")), None);
        overrun.answered(ExtendStatus::Allow, Some(1_500));
        assert_eq!(overrun.delivered(1, || 1_349), None);
        assert_eq!(overrun.delivered(9, || 1_350), Some(1_600), "the model's maximum");
        overrun.answered(ExtendStatus::Allow, None);
        assert_eq!(overrun.delivered(9_000, || 1_600), None, "there cannot be more");
        assert_eq!(overrun.delivered(9_000, || 1_601), Some(2_401), "and yet");
    }

    #[test]
    fn a_bounded_stream_asks_only_when_it_goes_beyond() {
        let mut overrun = Overrun::new(100, None, true);
        assert_eq!(overrun.delivered(1_000, || 100), None);
        assert_eq!(overrun.delivered(1_000, || 101), Some(357));
        assert_eq!(Overrun::new(100, Some(100), false).delivered(1_000, || 100), None);
    }

    #[test]
    fn a_refusal_stops_where_the_hold_ends() {
        let mut overrun = Overrun::new(100, None, false);
        assert!(!overrun.must_stop(0, || unreachable!()));
        assert_eq!(overrun.delivered(1_000, || 90), Some(356));
        assert!(!overrun.must_stop(0, || unreachable!("nothing is refused")));
        assert_eq!(overrun.delivered(2, || unreachable!("asked already")), None);
        overrun.answered(ExtendStatus::Deny, None);
        assert!(overrun.is_refused() && !overrun.must_stop(7, || unreachable!("one is left")));
        assert!(!overrun.must_stop(50, || 99));
        assert!(overrun.must_stop(1, || 100));
        overrun.stop();
        assert!(overrun.is_stopped() && !overrun.must_stop(0, || unreachable!()));
        overrun.answered(ExtendStatus::Allow, Some(9_000));
        assert!(overrun.is_stopped());
    }

    #[test]
    fn what_the_service_does_not_know_goes_on() {
        let mut overrun = Overrun::new(100, None, false);
        overrun.answered(ExtendStatus::Deny, None);
        assert!(!overrun.must_stop(1, || u64::MAX), "nothing was asked");
        overrun.delivered(1_000, || 200);
        overrun.answered(ExtendStatus::Unknown, None);
        assert!(!overrun.must_stop(1, || u64::MAX));
        assert_eq!(overrun.delivered(1_000, || u64::MAX), None);
    }
}
