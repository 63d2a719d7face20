//! Streams that the root moves on, outside of their own callbacks.

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use super::super::abi;
use super::super::running::Running;
use super::super::shared::Shared;
use super::Root;
use crate::stream::Event;
use crate::stream::charge::Ending;

/// Between two looks at requests that wait for their body.
const WATCH_PAUSE_MS: u64 = 500;
/// About the longest that one tick counts.
const LONGEST_COUNT_MS: u64 = 4;

impl Root {
    /// Counts a little of every stream that waits for it, callers in turn; the others are served between two ticks.
    pub(super) fn count_on(&mut self, shared: &Shared, now: u64) {
        let waiting = shared.uncounted.borrow().len();
        for _ in 0..waiting {
            let Some((caller, stream)) = shared.next_uncounted() else { break };
            if let Some(running) = stream.upgrade()
                && let Ok(mut running) = running.try_borrow_mut()
                && abi::set_effective_context(running.context())
            {
                let has_more = running.count_on();
                abi::set_effective_context(self.context);
                if has_more {
                    shared.uncounted.borrow_mut().push(caller, stream);
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
    pub(super) fn step(&self, stream: &Rc<RefCell<Running>>, event: Event<'_>) {
        let Ok(mut running) = stream.try_borrow_mut() else { return };
        if !running.has_ended && !abi::set_effective_context(running.context()) {
            // Gone without a word.
            running.has_ended = true;
            running.step(Event::End(Ending { reached_provider: false }));
        }
        // Of a stream that has ended, only what it holds at the service is left.
        running.step(event);
        abi::set_effective_context(self.context);
    }

    pub(super) fn step_weak(&self, stream: &Weak<RefCell<Running>>, event: Event<'_>) {
        if let Some(stream) = stream.upgrade() {
            self.step(&stream, event);
        }
    }

    /// Steps a stream that waited with its body, and goes on with what has come of it.
    pub(super) fn step_and_catch_up(&self, stream: &Weak<RefCell<Running>>, event: Event<'_>) {
        let Some(stream) = stream.upgrade() else { return };
        let Ok(mut running) = stream.try_borrow_mut() else { return };
        if !running.has_ended && abi::set_effective_context(running.context()) {
            let awaited_models = running.stream.awaits_models();
            running.step(event);
            if awaited_models {
                running.await_body();
            }
            running.catch_up();
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
            self.step_weak(&stream, Event::BodyWithheld);
        }
    }

    pub(super) fn cut_streams(&self, shared: &Shared) {
        for stream in shared.cut.take() {
            self.step_weak(&stream, Event::Cut);
        }
    }
}
