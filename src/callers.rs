//! Which callers the quota service knows, as far as its answers have told: bounded, and only for a while.

use std::collections::VecDeque;

use hashbrown::HashMap;
use sha2::{Digest, Sha256};

use crate::identity::Identified;

/// How long an answer is believed. A revoked key is refused by its reserve all the same.
const KNOWN_MS: u64 = 60_000;
const UNKNOWN_MS: u64 = 5_000;
const MAX_CALLERS: usize = 10_000;
/// How long a service that does not know the question is not asked again.
const UNASKED_MS: u64 = 60_000;

/// A caller, without its key or name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallerId([u8; 32]);

impl CallerId {
    pub fn of(identified: &Identified) -> Self {
        let mut hash = Sha256::new();
        let mut part = |text: &str| {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        };
        match identified {
            Identified::Key(key) => part(key),
            Identified::Verified(identity) => {
                part(&identity.tenant);
                // A missing part is not an empty one.
                for (name, value) in [("user", &identity.user), ("plan", &identity.plan)] {
                    if let Some(value) = value {
                        part(name);
                        part(value);
                    }
                }
            }
        }
        Self(hash.finalize().into())
    }
}

/// What is known of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    Known,
    Unknown,
    /// Nothing was said, or too long ago.
    Untold,
    /// The service does not answer this question: its reserve will say.
    Unasked,
}

/// Times are milliseconds of one clock that the caller reads.
#[derive(Default)]
pub struct Callers {
    known: Side,
    unknown: Side,
    policy_version: String,
    unasked_until: u64,
}

/// Callers of one kind, in the order in which they were first heard of.
#[derive(Default)]
struct Side {
    until: HashMap<CallerId, u64>,
    /// The same callers, the oldest first.
    order: VecDeque<CallerId>,
}

impl Side {
    fn holds(&self, caller: &CallerId, now: u64) -> bool {
        self.until.get(caller).is_some_and(|until| now < *until)
    }

    fn put(&mut self, caller: CallerId, until: u64) {
        if self.until.insert(caller, until).is_none() {
            self.order.push_back(caller);
        }
    }

    fn remove(&mut self, caller: &CallerId) {
        // Rare: a key that was added or revoked.
        if self.until.remove(caller).is_some() {
            self.order.retain(|other| other != caller);
        }
    }

    fn remove_oldest(&mut self) {
        if let Some(oldest) = self.order.pop_front() {
            self.until.remove(&oldest);
        }
    }
}

impl Callers {
    pub fn standing(&self, caller: &CallerId, now: u64) -> Standing {
        if self.known.holds(caller, now) {
            Standing::Known
        } else if self.unknown.holds(caller, now) {
            Standing::Unknown
        } else if now < self.unasked_until {
            Standing::Unasked
        } else {
            Standing::Untold
        }
    }

    /// The service has said it, under this policy.
    pub fn learn(&mut self, caller: CallerId, is_known: bool, policy_version: &str, now: u64) {
        if policy_version != self.policy_version {
            *self = Self {
                policy_version: policy_version.to_owned(),
                unasked_until: self.unasked_until,
                ..Self::default()
            };
        }
        let (side, other, lasts) = match is_known {
            true => (&mut self.known, &mut self.unknown, KNOWN_MS),
            false => (&mut self.unknown, &mut self.known, UNKNOWN_MS),
        };
        other.remove(&caller);
        side.put(caller, now.saturating_add(lasts));
        if self.len() > MAX_CALLERS {
            // Made-up keys cost nothing; they displace no caller that is known.
            let side = if self.unknown.order.is_empty() { &mut self.known } else { &mut self.unknown };
            side.remove_oldest();
        }
    }

    /// The service is older than the question.
    pub fn do_not_ask(&mut self, now: u64) {
        self.unasked_until = now.saturating_add(UNASKED_MS);
    }

    fn len(&self) -> usize {
        self.known.until.len() + self.unknown.until.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokengate_api::VerifiedIdentity;

    fn caller(n: usize) -> CallerId {
        CallerId::of(&Identified::Key(n.to_string()))
    }

    #[test]
    fn an_answer_is_believed_for_a_while() {
        let mut callers = Callers::default();
        assert_eq!(callers.standing(&caller(1), 0), Standing::Untold);
        callers.learn(caller(1), true, "v1", 1_000);
        callers.learn(caller(2), false, "v1", 1_000);
        for (n, now, expected) in [
            (1, 60_999, Standing::Known),
            (1, 61_000, Standing::Untold),
            (2, 5_999, Standing::Unknown),
            (2, 6_000, Standing::Untold),
            (3, 1_000, Standing::Untold),
        ] {
            assert_eq!(callers.standing(&caller(n), now), expected, "{n} {now}");
        }
        callers.learn(caller(2), true, "v1", 7_000);
        callers.learn(caller(1), false, "v1", 7_000);
        assert_eq!(callers.standing(&caller(2), 7_000), Standing::Known, "the last answer counts");
        assert_eq!(callers.standing(&caller(1), 7_000), Standing::Unknown);
    }

    #[test]
    fn another_policy_begins_anew() {
        let mut callers = Callers::default();
        callers.learn(caller(1), true, "v1", 0);
        callers.learn(caller(2), false, "v2", 0);
        assert_eq!(callers.standing(&caller(1), 0), Standing::Untold);
        assert_eq!(callers.standing(&caller(2), 0), Standing::Unknown);
    }

    #[test]
    fn the_oldest_go_and_made_up_keys_go_first() {
        let mut callers = Callers::default();
        callers.learn(caller(0), true, "v1", 0);
        for n in 1..=MAX_CALLERS + 5 {
            callers.learn(caller(n), false, "v1", 0);
        }
        assert_eq!(callers.len(), MAX_CALLERS);
        assert_eq!(callers.standing(&caller(0), 0), Standing::Known);
        assert_eq!(callers.standing(&caller(6), 0), Standing::Untold);
        assert_eq!(callers.standing(&caller(7), 0), Standing::Unknown);
        // Heard of again and again, a caller takes one place.
        for _ in 0..3 * MAX_CALLERS {
            callers.learn(caller(0), true, "v1", 0);
        }
        assert_eq!((callers.known.order.len(), callers.len()), (1, MAX_CALLERS));
        let mut known = Callers::default();
        for n in 0..=MAX_CALLERS {
            known.learn(caller(n), true, "v1", 0);
        }
        assert_eq!(known.standing(&caller(0), 0), Standing::Untold);
        assert_eq!(known.standing(&caller(1), 0), Standing::Known);
    }

    #[test]
    fn a_service_that_does_not_know_the_question_is_not_asked_for_a_while() {
        let mut callers = Callers::default();
        callers.do_not_ask(1_000);
        callers.learn(caller(1), true, "v1", 1_000);
        assert_eq!(callers.standing(&caller(1), 1_000), Standing::Known);
        assert_eq!(callers.standing(&caller(2), 60_999), Standing::Unasked);
        assert_eq!(callers.standing(&caller(2), 61_000), Standing::Untold);
    }

    #[test]
    fn parts_of_a_name_are_kept_apart() {
        let of = |tenant: &str, user: Option<&str>, plan: Option<&str>| {
            let text = |text: &str| text.to_owned();
            CallerId::of(&Identified::Verified(VerifiedIdentity {
                tenant: tenant.to_owned(),
                user: user.map(text),
                plan: plan.map(text),
            }))
        };
        let all = [
            of("a", Some("b"), None),
            of("ab", None, None),
            of("a", None, Some("b")),
            of("a", Some(""), None),
            of("a", None, None),
            of("a", Some("b"), Some("")),
        ];
        for (n, one) in all.iter().enumerate() {
            assert!(all.iter().skip(n + 1).all(|other| other != one), "{n}");
        }
    }
}
