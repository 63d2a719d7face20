//! Streams that the root moves on, outside of their own callbacks.

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use tokengate_api::RESERVE_PATH;

use super::super::abi;
use super::super::running::Running;
use super::super::shared::Shared;
use super::Root;
use crate::stream::{Event, Failure};

/// Between two looks at requests that wait for their body.
const WATCH_PAUSE_MS: u64 = 500;
/// About the longest that one tick counts.
const LONGEST_COUNT_MS: u64 = 4;

impl Root {
    pub(super) fn send_repeats(&mut self, shared: &Shared, now: u64) {
        for mut repeat in shared.repeats.take() {
            let waits = |stream: &Rc<RefCell<Running>>| {
                stream.try_borrow().is_ok_and(|running| running.waits_for_reserve())
            };
            if !repeat.stream.upgrade().as_ref().is_some_and(waits) {
                continue;
            }
            let waited = now.saturating_sub(repeat.queued_at);
            let left = u64::from(repeat.timeout_ms).saturating_sub(waited);
            repeat.request.deadline_ms = u32::try_from(left).unwrap_or(u32::MAX);
            let call = serde_json::to_vec(&repeat.request)
                .ok()
                .filter(|_| left > 0)
                .and_then(|body| shared.call("POST", RESERVE_PATH, Some(&body), repeat.request.deadline_ms));
            match call {
                Some(call) => _ = self.repeated.insert(call, repeat.stream),
                None => self.step(&repeat.stream, Event::ReserveFailed(Failure::Unusable)),
            }
        }
    }

    /// Counts a little of every stream that waits for it; the others are served between two ticks.
    pub(super) fn count_on(&mut self, shared: &Shared, now: u64) {
        let waiting = shared.uncounted.borrow().len();
        for _ in 0..waiting {
            let Some(stream) = shared.next_uncounted() else { break };
            if let Some(running) = stream.upgrade()
                && let Ok(mut running) = running.try_borrow_mut()
                && abi::set_effective_context(running.context())
            {
                let waits = running.waits_for_reserve();
                let has_more = running.count_on();
                abi::set_effective_context(self.context);
                if has_more {
                    shared.uncounted.borrow_mut().push_back(stream);
                } else if !waits && let Some(call) = running.take_call() {
                    // Sent from here, so answered here; what the stream sent before comes to the stream.
                    self.repeated.insert(call, stream);
                }
            }
            if abi::now_ms().saturating_sub(now) >= LONGEST_COUNT_MS {
                break;
            }
        }
        if waiting > 0 && shared.uncounted.borrow().is_empty() {
            abi::set_tick_period(shared.config.outbox.tick_ms);
        }
    }

    /// Steps a stream from outside of its own callbacks.
    pub(super) fn step(&self, stream: &Weak<RefCell<Running>>, event: Event<'_>) {
        let Some(stream) = stream.upgrade() else { return };
        if let Ok(mut running) = stream.try_borrow_mut()
            && abi::set_effective_context(running.context())
        {
            running.step(event);
            abi::set_effective_context(self.context);
        }
    }

    /// Answers held requests whose body Envoy keeps to itself: without
    /// `allow_on_headers_stop_iteration` they would hang.
    pub(super) fn look_after(&mut self, shared: &Shared, now: u64) {
        if now < self.watch_next_at {
            return;
        }
        self.watch_next_at = now + WATCH_PAUSE_MS;
        for stream in shared.watched.take() {
            let Some(running) = stream.upgrade() else { continue };
            let Ok(running) = running.try_borrow() else { continue };
            if !running.waits_for_body() {
                continue;
            }
            let is_withheld = abi::set_effective_context(running.context()) && running.body_is_withheld();
            abi::set_effective_context(self.context);
            drop(running);
            if !is_withheld {
                shared.watch(stream);
                continue;
            }
            if !std::mem::replace(&mut self.misconfiguration_logged, true) {
                log::error!(
                    "tokengate: requests are held and their bodies not shown: set \
                     allow_on_headers_stop_iteration: true in the filter's plugin config (Envoy 1.35 or newer)"
                );
            }
            self.step(&stream, Event::BodyWithheld);
        }
    }

    pub(super) fn cut_streams(&self, shared: &Shared) {
        for stream in shared.cut.take() {
            self.step(&stream, Event::Cut);
        }
    }
}
