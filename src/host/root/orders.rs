//! Calls that streams have ordered: reserves, and the question who calls. The answers come to the root, and from
//! there to the stream, or to what is left of it.

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use tokengate_api::{
    Decision, IDENTIFY_PATH, IdentifyRequest, IdentifyResponse, RESERVE_PATH, ReserveRequest,
};

use super::super::abi::{self, Buffer, Map};
use super::super::running::{Repeat, Running};
use super::super::shared::{Order, Shared};
use super::Root;
use super::calls::{call_status, read_json};
use crate::callers::{CallerId, Standing};
use crate::stream::{Event, Failure};

/// A reserve's answer is never this large.
const MAX_ANSWER: usize = 256 * 1024;

/// The longest that a reserve waits for a settle of its caller's. A service that is slower than this is slow for
/// both.
const LONGEST_BEHIND_MS: u64 = 25;

/// A reserve that waits until what its caller has given back is known to the service: a client that asks one
/// request after another must not be refused for the one before.
pub struct Behind {
    stream: Rc<RefCell<Running>>,
    caller: CallerId,
    request: Box<ReserveRequest>,
    timeout_ms: u32,
    below: u64,
    since: u64,
}

/// A question under way, or to be asked once more.
pub struct Question {
    caller: CallerId,
    request: Box<IdentifyRequest>,
    asked_at: u64,
    is_repeat: bool,
}

impl Root {
    /// Makes the calls that streams have ordered, and sends what must not wait for a tick.
    pub(super) fn serve(&mut self, shared: &Shared) {
        loop {
            let orders = shared.take_orders();
            if orders.is_empty() {
                break;
            }
            for order in orders {
                match order {
                    Order::Reserve { stream, caller, request, timeout_ms, began_us } => {
                        let below = shared.outbox.borrow().next_number();
                        match caller.filter(|caller| shared.outbox.borrow().is_freeing(caller, below)) {
                            Some(caller) => {
                                let since = abi::now_ms();
                                self.behind.push(Behind {
                                    stream,
                                    caller,
                                    request,
                                    timeout_ms,
                                    below,
                                    since,
                                });
                            }
                            None => self.reserve(shared, stream, &request, timeout_ms, began_us),
                        }
                    }
                    Order::Identify { stream, caller, request } => {
                        self.identify(shared, stream, caller, request);
                    }
                    Order::FetchModels => self.fetch_models(shared, abi::now_ms()),
                }
            }
        }
        if shared.outbox.borrow().is_urgent() {
            self.send_settles(shared, abi::now_ms());
        }
    }

    fn reserve(
        &mut self,
        shared: &Shared,
        stream: Rc<RefCell<Running>>,
        request: &ReserveRequest,
        timeout_ms: u32,
        began_us: u64,
    ) {
        // Envoy's timers count from the start of the event loop's round: what this callback has taken
        // already, counting a long prompt or loading an encoding, is not the service's time.
        let spent = abi::now_us().saturating_sub(began_us) / 1_000;
        let timeout_ms = timeout_ms.saturating_add(u32::try_from(spent).unwrap_or(0));
        let call = serde_json::to_vec(request)
            .ok()
            .and_then(|body| shared.call("POST", RESERVE_PATH, Some(&body), timeout_ms));
        match call {
            Some(call) => _ = self.reserves.insert(call, stream),
            None => self.step(&stream, Event::ReserveFailed(Failure::Unusable)),
        }
    }

    /// Sends the reserves whose callers' settles were answered.
    pub(super) fn send_behind(&mut self, shared: &Shared, now: u64) {
        let waits = |one: &mut Behind| {
            now.saturating_sub(one.since) < LONGEST_BEHIND_MS
                && shared.outbox.borrow().is_freeing(&one.caller, one.below)
        };
        let ready: Vec<_> = self.behind.extract_if(.., |one| !waits(one)).collect();
        for Behind { stream, request, timeout_ms, .. } in ready {
            if stream.try_borrow().is_ok_and(|running| running.waits_for_reserve()) {
                self.reserve(shared, stream, &request, timeout_ms, abi::now_us());
            } else {
                self.step(&stream, Event::ReserveFailed(Failure::Unusable));
            }
        }
    }

    pub(super) fn send_repeats(&mut self, shared: &Shared, now: u64) {
        for Repeat { stream, mut request, timeout_ms, queued_at } in shared.repeats.take() {
            let waited = now.saturating_sub(queued_at);
            let left = u64::from(timeout_ms).saturating_sub(waited);
            let waits = stream.try_borrow().is_ok_and(|running| running.waits_for_reserve());
            if !waits || left == 0 {
                self.step(&stream, Event::ReserveFailed(Failure::Unusable));
                continue;
            }
            request.deadline_ms = u32::try_from(left).unwrap_or(u32::MAX);
            self.reserve(shared, stream, &request, request.deadline_ms, abi::now_us());
        }
        for question in std::mem::take(&mut self.questions_again) {
            self.ask(shared, question, now);
        }
    }

    pub(super) fn reserve_answered(
        &mut self,
        shared: &Shared,
        stream: &Rc<RefCell<Running>>,
        now: u64,
        body_size: usize,
    ) {
        let answer = reserve_answer(body_size);
        let is_denied = matches!(&answer, Event::ReserveAnswer(answer) if answer.decision == Decision::Deny);
        self.step(stream, answer);
        if is_denied {
            // What waits here may be what the next one needs.
            self.send_settles(shared, now);
        }
    }

    /// Streams of one caller ask together.
    fn identify(
        &mut self,
        shared: &Shared,
        stream: Weak<RefCell<Running>>,
        caller: CallerId,
        request: Box<IdentifyRequest>,
    ) {
        let streams = self.askers.entry(caller).or_default();
        streams.push(stream);
        if streams.len() == 1 {
            let now = abi::now_ms();
            self.ask(shared, Question { caller, request, asked_at: now, is_repeat: false }, now);
        }
    }

    fn ask(&mut self, shared: &Shared, question: Question, now: u64) {
        let left = question.left(shared, now);
        let call = serde_json::to_vec(&question.request)
            .ok()
            .filter(|_| left > 0)
            .and_then(|body| shared.call("POST", IDENTIFY_PATH, Some(&body), left));
        match call {
            Some(call) => _ = self.questions.insert(call, question),
            None => self.tell_askers(shared, &question.caller, "failed", || Event::IdentifyFailed),
        }
    }

    pub(super) fn identify_answered(
        &mut self,
        shared: &Shared,
        question: Question,
        now: u64,
        body_size: usize,
    ) {
        let caller = question.caller;
        let known = match call_status().as_deref() {
            Some("200") => read_json::<IdentifyResponse>(body_size),
            Some("404" | "405") => {
                shared.callers.borrow_mut().do_not_ask(now);
                return self.tell_askers(shared, &caller, "unasked", || Event::Identified(Standing::Unasked));
            }
            _ => None,
        };
        if let Some(IdentifyResponse { known, policy_version }) = known {
            shared.callers.borrow_mut().learn(caller, known, &policy_version, now);
            if policy_version != shared.models.borrow().policy_version() {
                shared.refresh_models.set(true);
            }
            return match known {
                true => self.tell_askers(shared, &caller, "known", || Event::Identified(Standing::Known)),
                false => {
                    self.tell_askers(shared, &caller, "unknown", || Event::Identified(Standing::Unknown))
                }
            };
        }
        let failure = Failure::of_call(is_from_service(), call_status().as_deref());
        if failure != Some(Failure::Unusable) && !question.is_repeat && question.left(shared, now) > 0 {
            // Not at once: Envoy still gives out the connection that has just ended.
            self.questions_again.push(Question { is_repeat: true, ..question });
            return;
        }
        self.tell_askers(shared, &caller, "failed", || Event::IdentifyFailed);
    }

    fn tell_askers(
        &mut self,
        shared: &Shared,
        caller: &CallerId,
        status: &str,
        event: impl Fn() -> Event<'static>,
    ) {
        shared.metrics.identify_answered(status);
        for stream in self.askers.remove(caller).unwrap_or_default() {
            self.step_and_catch_up(&stream, event());
        }
    }
}

impl Question {
    /// Milliseconds: it may take as long as a reserve.
    fn left(&self, shared: &Shared, now: u64) -> u32 {
        let waited = u32::try_from(now.saturating_sub(self.asked_at)).unwrap_or(u32::MAX);
        shared.config.quota.timeout_ms.saturating_sub(waited)
    }
}

/// What the proxy itself answers has not passed through the service.
fn is_from_service() -> bool {
    abi::headers(Map::CallResponse).get("x-envoy-upstream-service-time").is_some()
}

/// The reserve's answer that the current callback brings.
fn reserve_answer(body_size: usize) -> Event<'static> {
    if let Some(failure) = Failure::of_call(is_from_service(), call_status().as_deref()) {
        return Event::ReserveFailed(failure);
    }
    if body_size > MAX_ANSWER {
        return Event::ReserveFailed(Failure::Unusable);
    }
    let body = abi::buffer(Buffer::CallResponseBody, body_size).unwrap_or_default();
    match serde_json::from_slice(&body) {
        Ok(answer) => Event::ReserveAnswer(answer),
        Err(_) => Event::ReserveFailed(Failure::Unusable),
    }
}
