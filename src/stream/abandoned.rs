//! A reserve whose stream is over, or was answered by somebody else, before its own answer came.

use tokengate_api::{Decision, ReserveResponse};

use super::hold::{Hold, is_urgent};
use super::reserving::learned;
use super::{Caller, Step, Stream};

/// A reserve that is still to be answered, and whose request does not go on.
pub struct Abandoned {
    hold: Hold,
    caller: Caller,
}

impl Abandoned {
    pub fn new(hold: Hold, caller: Caller) -> Self {
        Self { hold, caller }
    }

    pub fn answered(self, answer: &ReserveResponse) -> Step {
        let Self { mut hold, caller } = self;
        let mut effects: Vec<_> = learned(&caller, answer).into_iter().collect();
        if answer.decision == Decision::Allow {
            if !answer.account.is_empty() {
                hold.account = Some(answer.account.clone());
                hold.reserve = None;
            }
            hold.frees = is_urgent(answer, 0).then_some(caller.id);
            effects.extend(hold.release());
        }
        (Stream::Refused, effects)
    }

    /// The service may have held it all the same.
    pub fn failed(self) -> Step {
        (Stream::Refused, self.hold.release())
    }
}
