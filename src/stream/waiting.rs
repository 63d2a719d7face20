//! A request that waits before its body may cost anything: for the model list, without which it could get more
//! than the policy gives, or to know who calls.

use tokengate_api::IdentifyRequest;

use super::held::Held;
use super::{Caller, Effect, Env, Event, Step, Stream, received};
use crate::callers::Standing;
use crate::config::{FailureMode, HoldAt, Mode};
use crate::dialect::refusal::{BodyFormat, Refusal};
use crate::headers::Headers;

/// A plain body of at most this needs no question of its own: its reserve asks the same.
const SMALL_BODY: usize = 64 * 1024;

/// The first of all: nothing of the policy is known yet.
pub struct AwaitingModels {
    headers: Headers,
    end_of_stream: bool,
    /// Bytes of the body that have come meanwhile.
    length: usize,
}

impl AwaitingModels {
    /// Receives a request, or waits until it can be received.
    pub fn receive(env: &Env<'_>, headers: &Headers, end_of_stream: bool) -> Step {
        let step = received(env, headers, end_of_stream);
        // What is refused without the list is refused with it.
        if env.models.are_known() || matches!(step.0, Stream::Refused) {
            return step;
        }
        let waiting = Self { headers: headers.clone(), end_of_stream, length: 0 };
        (Stream::AwaitingModels(Box::new(waiting)), vec![Effect::AwaitModels])
    }

    pub fn body(mut self: Box<Self>, length: usize) -> Step {
        self.length = length;
        (Stream::AwaitingModels(self), Vec::new())
    }

    pub fn known(&self, env: &Env<'_>) -> Step {
        let (stream, mut effects) = received(env, &self.headers, self.end_of_stream);
        // Whoever must not have a body may have sent one already.
        let (stream, of_body) = stream.step(env, Event::RequestBody { length: self.length });
        effects.extend(of_body);
        let goes_on = match stream {
            Stream::PassedThrough | Stream::Observed(_) => true,
            // The headers go on, the body is held.
            Stream::Held(_) | Stream::Identifying(_) => env.config.hold_at == HoldAt::Body,
            _ => false,
        };
        if goes_on {
            effects.push(Effect::Resume);
        }
        (stream, effects)
    }

    pub fn failed(&self, env: &Env<'_>) -> Step {
        if env.config.failure_mode == FailureMode::Open {
            // Marked where it is let go: it is charged by its key's own plan.
            return self.known(env);
        }
        let format = BodyFormat::of_accept(self.headers.get("accept"));
        let (stream, mut effects) = Stream::refuse(env, Refusal::quota_unavailable(), format);
        if env.config.mode == Mode::Observe {
            // What goes on goes on without what is known to be the caller's own.
            let (_, received) = received(env, &self.headers, self.end_of_stream);
            let removals = received.into_iter().filter(|e| matches!(e, Effect::RemoveRequestHeader(_)));
            effects.splice(0..0, removals);
            effects.push(Effect::Resume);
        }
        (stream, effects)
    }
}

/// The body may arrive, and is neither inflated nor counted before the service has said that it knows the caller.
pub struct Identifying(Box<Held>);

impl Identifying {
    /// Holds a metered request, and asks who calls where its body may cost much. `length` is what the headers say.
    pub fn hold(env: &Env<'_>, held: Box<Held>, length: Option<usize>) -> Step {
        let caller = held.caller();
        let is_small = !held.is_packed() && length.is_some_and(|length| length <= SMALL_BODY);
        let standing = if is_small { Standing::Unasked } else { (env.standing)(&caller.id) };
        if standing != Standing::Untold {
            return Identifying(held).told(env, standing);
        }
        let request = Box::new(IdentifyRequest {
            key_hash: caller.identified.key_hash(),
            identity: caller.identified.verified(),
        });
        let ask = Effect::Identify { caller: caller.id, request };
        (Stream::Identifying(Box::new(Self(held))), vec![ask])
    }

    pub fn caller(&self) -> &Caller {
        self.0.caller()
    }

    pub fn told(self, env: &Env<'_>, standing: Standing) -> Step {
        match standing {
            Standing::Unknown => Stream::refuse(env, Refusal::unknown_key(), self.caller().format),
            Standing::Known | Standing::Unasked | Standing::Untold => (Stream::Held(self.0), Vec::new()),
        }
    }

    pub fn failed(self, env: &Env<'_>) -> Step {
        match env.config.failure_mode {
            FailureMode::Open => (Stream::Held(self.0), Vec::new()),
            FailureMode::Closed => Stream::refuse(env, Refusal::quota_unavailable(), self.caller().format),
        }
    }

    pub fn body(self, env: &Env<'_>, length: usize) -> Step {
        match self.0.body(env, length) {
            (Stream::Held(held), effects) => (Stream::Identifying(Box::new(Self(held))), effects),
            refused => refused,
        }
    }

    pub fn withheld(self, env: &Env<'_>) -> Step {
        self.0.withheld(env)
    }
}
