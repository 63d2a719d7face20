//! What the root sends to the quota service by itself: settles, extends, and the question for models.

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use tokengate_api::{
    EXTEND_PATH, ExtendResponse, ExtendResult, MODELS_PATH, ModelList, SETTLE_PATH, SettleItem,
    SettleResponse,
};

use super::super::abi::{self, Buffer, Map};
use super::super::random;
use super::super::running::Running;
use super::super::shared::{Shared, Waiter};
use super::Root;
use crate::extends::Answer;
use crate::models::Models;
use crate::outbox::Delivery;
use crate::stream::Event;

/// Deadline of a settle and of fetching the model list.
const CALL_TIMEOUT_MS: u32 = 1_000;
/// Between two tries for the model list, or between two looks at whether it changed.
const MODELS_PAUSE_MS: u64 = 1_000;
/// While requests wait for it.
const SHORT_MODELS_PAUSE_MS: u64 = 20;
/// Between two lines of the log about what was given up.
const LOG_PAUSE_MS: u64 = 1_000;

impl Root {
    pub(super) fn fetch_models(&mut self, shared: &Shared, now: u64) {
        let pause = match shared.awaiting_models.borrow().is_empty() {
            true => MODELS_PAUSE_MS,
            false => SHORT_MODELS_PAUSE_MS,
        };
        let is_due = self.models_tried_at.is_none_or(|tried| now.saturating_sub(tried) >= pause);
        if self.models_call.is_none() && shared.refresh_models.get() && is_due {
            self.models_tried_at = Some(now);
            self.models_call = shared.call("GET", MODELS_PATH, None, CALL_TIMEOUT_MS);
        }
    }

    /// Sends what is due.
    pub(super) fn send_settles(&mut self, shared: &Shared, now: u64) {
        loop {
            let Some(batch) = shared.outbox.borrow_mut().next_batch(now) else { return };
            let first = batch.items.len().saturating_sub(batch.repeated);
            shared.metrics.settles_sent(first as u64, batch.repeated as u64);
            match send(shared, &batch.items) {
                Some(call) => _ = self.settle_calls.insert(call, batch.number),
                None => {
                    let mut outbox = shared.outbox.borrow_mut();
                    outbox.delivered(batch.number, Delivery::Failed, now, random::jitter());
                }
            }
        }
    }

    pub(super) fn settles_answered(&mut self, shared: &Shared, batch: u64, now: u64, body_size: usize) {
        let delivery = match call_status().as_deref() {
            Some("200") => match read_json::<SettleResponse>(body_size) {
                None => Delivery::Failed,
                Some(answer) => {
                    for result in &answer.results {
                        shared.metrics.settle_answered(result.status);
                    }
                    Delivery::Taken(answer.results)
                }
            },
            Some("400" | "413" | "422") => Delivery::Rejected,
            _ => Delivery::Failed,
        };
        shared.outbox.borrow_mut().delivered(batch, delivery, now, random::jitter());
        self.send_settles(shared, now);
    }

    /// What the outbox has given up or sent in another form since the last look.
    pub(super) fn tell_outbox(&mut self, shared: &Shared, now: u64) {
        let outbox = shared.outbox.borrow();
        shared.metrics.outbox_depth(outbox.settles(), outbox.releases());
        let (settles, releases) = (outbox.dropped_settles(), outbox.dropped_releases());
        let [told_settles, told_releases, told_rebooked] = self.told;
        shared.metrics.settles_dropped(settles - told_settles);
        shared.metrics.releases_dropped(releases - told_releases);
        shared.metrics.settles_rebooked(outbox.rebooked() - told_rebooked);
        self.told = [settles, releases, outbox.rebooked()];
        if [settles, releases] != self.logged && now >= self.log_next_at {
            log::warn!(
                "tokengate: {settles} settles and {releases} releases given up so far; what they held stays charged"
            );
            self.logged = [settles, releases];
            self.log_next_at = now.saturating_add(LOG_PAUSE_MS);
        }
    }

    pub(super) fn send_extends(&mut self, shared: &Shared, now: u64) {
        let is_live = |stream: &Weak<RefCell<Running>>| {
            stream.upgrade().is_some_and(|stream| stream.try_borrow().is_ok_and(|one| one.is_admitted()))
        };
        let Some(items) = shared.extends.borrow_mut().next_batch(now, is_live) else { return };
        let body = serde_json::to_vec(&items).ok();
        self.extend_call =
            body.and_then(|body| shared.call("POST", EXTEND_PATH, Some(&body), CALL_TIMEOUT_MS));
        if self.extend_call.is_none() {
            shared.extends.borrow_mut().answered(Answer::Failed, now, random::jitter());
        }
    }

    pub(super) fn extends_answered(&mut self, shared: &Shared, now: u64, body_size: usize) {
        let answer = match call_status().as_deref() {
            Some("200") => read_json::<ExtendResponse>(body_size)
                .map_or(Answer::Failed, |answer| Answer::Results(answer.results)),
            // 404 and 405: a service that is older than this filter.
            Some("400" | "404" | "405" | "413" | "422") => Answer::Rejected,
            _ => Answer::Failed,
        };
        let decided = shared.extends.borrow_mut().answered(answer, now, random::jitter());
        for (stream, ExtendResult { status, hold_output_tokens: held, .. }) in decided {
            shared.metrics.extend_answered(status);
            self.step_weak(&stream, Event::Extended { status, held });
        }
        self.send_extends(shared, now);
    }

    pub(super) fn models_answered(&self, shared: &Shared, body_size: usize) {
        if call_status().as_deref() != Some("200") {
            return;
        }
        let Some(list) = read_json::<ModelList>(body_size) else { return };
        let is_new = list.policy_version != shared.models.borrow().policy_version();
        if is_new {
            log::info!("tokengate: {} models of policy {}", list.models.len(), list.policy_version);
        }
        *shared.models.borrow_mut() = Rc::new(Models::new(list));
        shared.refresh_models.set(false);
        for Waiter { stream, .. } in shared.awaiting_models.take() {
            self.step_and_catch_up(&stream, Event::ModelsKnown);
        }
    }

    /// Requests that have waited for the list as long as they may.
    pub(super) fn expire_waiters(&self, shared: &Shared, now: u64) {
        let (expired, waiting): (Vec<_>, Vec<_>) =
            shared.awaiting_models.take().into_iter().partition(|waiter| now >= waiter.until);
        shared.awaiting_models.borrow_mut().extend(waiting);
        for Waiter { stream, .. } in expired {
            self.step_and_catch_up(&stream, Event::ModelsFailed);
        }
    }
}

fn send(shared: &Shared, batch: &[SettleItem]) -> Option<u32> {
    let body = serde_json::to_vec(batch).ok()?;
    shared.call("POST", SETTLE_PATH, Some(&body), CALL_TIMEOUT_MS)
}

/// The status of the call being answered; none when it was reset.
pub(super) fn call_status() -> Option<String> {
    abi::headers(Map::CallResponse).text(":status").map(str::to_owned)
}

pub(super) fn read_json<T: serde::de::DeserializeOwned>(size: usize) -> Option<T> {
    serde_json::from_slice(&abi::buffer(Buffer::CallResponseBody, size)?).ok()
}
