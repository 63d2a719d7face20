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
use super::super::shared::Shared;
use super::Root;
use crate::extends::Answer;
use crate::models::Models;
use crate::outbox::{Batch, Delivery};
use crate::stream::Event;

/// Deadline of a settle and of fetching the model list.
const CALL_TIMEOUT_MS: u32 = 1_000;
/// Between two tries for the model list, or between two looks at whether it changed.
const MODELS_PAUSE_MS: u64 = 1_000;

impl Root {
    pub(super) fn fetch_models(&mut self, shared: &Shared, now: u64) {
        if self.models_call.is_none() && shared.refresh_models.get() && now >= self.models_next_at {
            self.models_next_at = now + MODELS_PAUSE_MS;
            self.models_call = shared.call("GET", MODELS_PATH, None, CALL_TIMEOUT_MS);
        }
    }

    pub(super) fn send_settles(&mut self, shared: &Shared, now: u64) {
        let Some(Batch { items, repeated }) = shared.outbox.borrow_mut().next_batch(now) else { return };
        shared.metrics.settles_sent((items.len() - repeated) as u64, repeated as u64);
        self.settle_call = send(shared, &items);
        if self.settle_call.is_none() {
            shared.outbox.borrow_mut().delivered(Delivery::Failed, now, random::jitter());
        }
    }

    pub(super) fn settles_answered(&mut self, shared: &Shared, now: u64, body_size: usize) {
        let delivery = match call_status().as_deref() {
            Some("200") => match read_json::<SettleResponse>(body_size) {
                None => Delivery::Failed,
                Some(answer) => {
                    for result in answer.results {
                        shared.metrics.settle_answered(result.status);
                    }
                    Delivery::Taken
                }
            },
            Some("400" | "413" | "422") => Delivery::Rejected,
            _ => Delivery::Failed,
        };
        let dropped = {
            let mut outbox = shared.outbox.borrow_mut();
            outbox.delivered(delivery, now, random::jitter());
            outbox.dropped()
        };
        if dropped > self.dropped_logged {
            shared.metrics.settles_dropped(dropped - self.dropped_logged);
            log::warn!("tokengate: {dropped} settles given up so far; their holds stay charged");
            self.dropped_logged = dropped;
        }
        self.send_settles(shared, now);
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
            self.step(&stream, Event::Extended { status, held });
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
    }
}

fn send(shared: &Shared, batch: &[SettleItem]) -> Option<u32> {
    let body = serde_json::to_vec(batch).ok()?;
    shared.call("POST", SETTLE_PATH, Some(&body), CALL_TIMEOUT_MS)
}

/// The status of the call being answered; none when it was reset.
fn call_status() -> Option<String> {
    abi::headers(Map::CallResponse).text(":status").map(str::to_owned)
}

fn read_json<T: serde::de::DeserializeOwned>(size: usize) -> Option<T> {
    serde_json::from_slice(&abi::buffer(Buffer::CallResponseBody, size)?).ok()
}
