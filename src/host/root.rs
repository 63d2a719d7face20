//! The root context: configuration, the model list, and the outbox of one plugin in one VM.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicBool, Ordering};

use hashbrown::HashMap;
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::ContextType;
use tokengate_api::{
    EXTEND_PATH, ExtendResponse, ExtendResult, MODELS_PATH, ModelList, RESERVE_PATH, SETTLE_PATH, SettleItem,
    SettleResponse,
};

use super::abi::{self, Buffer, Map};
use super::http::{Http, Repeat, Running, reserve_answer};
use super::metrics::Metrics;
use super::random;
use crate::config::Config;
use crate::extends::{Answer, Extends};
use crate::models::Models;
use crate::outbox::{Batch, Delivery, Outbox};
use crate::stream::{Event, Failure};
use crate::tokenizer::Encoding;

/// Deadline of a settle and of fetching the model list.
const CALL_TIMEOUT_MS: u32 = 1_000;
/// Between two tries for the model list, or between two looks at whether it changed.
const MODELS_PAUSE_MS: u64 = 1_000;
/// Between two looks at requests that wait for their body.
const WATCH_PAUSE_MS: u64 = 500;
/// Between two ticks while prompts wait to be counted.
const COUNTING_TICK_MS: u32 = 1;
/// About the longest that one tick counts.
const LONGEST_COUNT_MS: u64 = 4;
/// How long a replaced configuration may still send its settles.
const LONGEST_GOODBYE_MS: u64 = 5_000;

/// What the streams of a root context share with it.
pub struct Shared {
    pub config: Config,
    pub models: RefCell<Rc<Models>>,
    pub outbox: RefCell<Outbox>,
    pub extends: RefCell<Extends<Weak<RefCell<Running>>>>,
    pub refresh_models: Cell<bool>,
    pub metrics: Metrics,
    repeats: RefCell<Vec<Repeat>>,
    /// Streams whose body may never be shown.
    watched: RefCell<Vec<Weak<RefCell<Running>>>>,
    /// Streams whose last event is written.
    cut: RefCell<Vec<Weak<RefCell<Running>>>>,
    /// Streams with more of a body than their own callbacks may count.
    uncounted: RefCell<VecDeque<Weak<RefCell<Running>>>>,
    /// The stream that keeps a whole body, if any does.
    keeper: RefCell<Weak<RefCell<Running>>>,
    /// Authorization of our own calls.
    authorization: Option<String>,
}

impl Shared {
    fn new(config: Config) -> Self {
        let token = match config.quota.token_env.as_str() {
            "" => None,
            name => std::env::var(name).ok(),
        };
        Self {
            authorization: token.map(|token| format!("Bearer {token}")),
            outbox: RefCell::new(Outbox::new(config.outbox.max_items)),
            extends: RefCell::default(),
            models: RefCell::default(),
            refresh_models: Cell::new(true),
            metrics: Metrics::default(),
            repeats: RefCell::default(),
            watched: RefCell::default(),
            cut: RefCell::default(),
            uncounted: RefCell::default(),
            keeper: RefCell::default(),
            config,
        }
    }

    /// Sends a reserve again at the next tick.
    pub fn repeat(&self, repeat: Repeat) {
        self.repeats.borrow_mut().push(repeat);
    }

    /// Looks after a stream whose body is to come.
    pub fn watch(&self, stream: Weak<RefCell<Running>>) {
        self.watched.borrow_mut().push(stream);
    }

    /// Ends a stream at the next tick, should nothing more come of it before.
    pub fn cut_soon(&self, stream: Weak<RefCell<Running>>) {
        self.cut.borrow_mut().push(stream);
    }

    /// Counts on at the next ticks, a slice at each.
    pub fn count_later(&self, stream: Weak<RefCell<Running>>) {
        let mut uncounted = self.uncounted.borrow_mut();
        if uncounted.is_empty() {
            abi::set_tick_period(COUNTING_TICK_MS);
        }
        uncounted.push_back(stream);
    }

    /// Whether a stream, which is running now, may keep a whole body: one at a time may.
    pub fn may_keep(&self, stream: &Weak<RefCell<Running>>) -> bool {
        let mut keeper = self.keeper.borrow_mut();
        let is_taken = keeper
            .upgrade()
            .is_some_and(|keeper| keeper.try_borrow().is_ok_and(|running| running.keeps_body()));
        if !is_taken {
            *keeper = stream.clone();
        }
        !is_taken
    }

    fn next_uncounted(&self) -> Option<Weak<RefCell<Running>>> {
        self.uncounted.borrow_mut().pop_front()
    }

    /// Calls the quota service.
    pub fn call(&self, method: &str, path: &str, body: Option<&[u8]>, timeout_ms: u32) -> Option<u32> {
        let quota = &self.config.quota;
        let mut headers =
            vec![(":method", method), (":path", path), (":authority", quota.authority.as_str())];
        if body.is_some() {
            headers.push(("content-type", "application/json"));
        }
        if let Some(authorization) = &self.authorization {
            headers.push(("authorization", authorization));
        }
        abi::call(&quota.cluster, &headers, body, timeout_ms)
    }
}

#[derive(Default)]
pub struct Root {
    context: u32,
    shared: Option<Rc<Shared>>,
    settle_call: Option<u32>,
    extend_call: Option<u32>,
    models_call: Option<u32>,
    models_next_at: u64,
    /// Reserves sent again, whose answers come here instead of to their streams.
    repeated: HashMap<u32, Weak<RefCell<Running>>>,
    /// When this configuration was replaced.
    leaving_since: Option<u64>,
    dropped_logged: u64,
    watch_next_at: u64,
    misconfiguration_logged: bool,
}

impl Root {
    pub fn new(context: u32) -> Self {
        Self { context, ..Self::default() }
    }

    fn fetch_models(&mut self, shared: &Shared, now: u64) {
        if self.models_call.is_none() && shared.refresh_models.get() && now >= self.models_next_at {
            self.models_next_at = now + MODELS_PAUSE_MS;
            self.models_call = shared.call("GET", MODELS_PATH, None, CALL_TIMEOUT_MS);
        }
    }

    fn send_settles(&mut self, shared: &Shared, now: u64) {
        let Some(Batch { items, repeated }) = shared.outbox.borrow_mut().next_batch(now) else { return };
        shared.metrics.settles_sent((items.len() - repeated) as u64, repeated as u64);
        self.settle_call = send(shared, &items);
        if self.settle_call.is_none() {
            shared.outbox.borrow_mut().delivered(Delivery::Failed, now, random::jitter());
        }
    }

    fn settles_answered(&mut self, shared: &Shared, now: u64, body_size: usize) {
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

    fn send_extends(&mut self, shared: &Shared, now: u64) {
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

    fn extends_answered(&mut self, shared: &Shared, now: u64, body_size: usize) {
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

    fn cut_streams(&self, shared: &Shared) {
        for stream in shared.cut.take() {
            self.step(&stream, Event::Cut);
        }
    }

    fn models_answered(&self, shared: &Shared, body_size: usize) {
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

    fn send_repeats(&mut self, shared: &Shared, now: u64) {
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
    fn count_on(&mut self, shared: &Shared, now: u64) {
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
    fn step(&self, stream: &Weak<RefCell<Running>>, event: Event<'_>) {
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
    fn look_after(&mut self, shared: &Shared, now: u64) {
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

    fn say_goodbye(&self, shared: &Shared, now: u64) {
        if self.leaving_since.is_some_and(|since| {
            shared.outbox.borrow().is_empty() || now.saturating_sub(since) >= LONGEST_GOODBYE_MS
        }) {
            // No tick comes after this to take its share out of the gauge.
            shared.metrics.outbox_depth(0);
            abi::done();
        }
    }
}

fn send(shared: &Shared, batch: &[SettleItem]) -> Option<u32> {
    let body = serde_json::to_vec(batch).ok()?;
    shared.call("POST", SETTLE_PATH, Some(&body), CALL_TIMEOUT_MS)
}

/// What is not an event of a stream's.
fn tell_state(shared: &Shared) {
    /// Vocabularies belong to the VM, which several root contexts may share.
    static TOLD: [AtomicBool; Encoding::ALL.len()] = [const { AtomicBool::new(false) }; Encoding::ALL.len()];
    for (encoding, told) in Encoding::ALL.iter().zip(&TOLD) {
        if encoding.is_loaded() && !told.swap(true, Ordering::Relaxed) {
            shared.metrics.tokenizer_loaded(encoding.name());
        }
    }
    shared.metrics.outbox_depth(shared.outbox.borrow().len());
}

/// The status of the call being answered; none when it was reset.
fn call_status() -> Option<String> {
    abi::headers(Map::CallResponse).text(":status").map(str::to_owned)
}

fn read_json<T: serde::de::DeserializeOwned>(size: usize) -> Option<T> {
    serde_json::from_slice(&abi::buffer(Buffer::CallResponseBody, size)?).ok()
}

impl Context for Root {
    fn on_http_call_response(&mut self, token: u32, _: usize, body_size: usize, _: usize) {
        let Some(shared) = self.shared.clone() else { return };
        let now = abi::now_ms();
        if self.settle_call.take_if(|call| *call == token).is_some() {
            self.settles_answered(&shared, now, body_size);
            self.say_goodbye(&shared, now);
        } else if self.extend_call.take_if(|call| *call == token).is_some() {
            self.extends_answered(&shared, now, body_size);
        } else if self.models_call.take_if(|call| *call == token).is_some() {
            self.models_answered(&shared, body_size);
        } else if let Some(stream) = self.repeated.remove(&token) {
            self.step(&stream, reserve_answer(body_size));
        }
    }

    /// False keeps ticks and calls alive until [`abi::done`]: settles of a replaced configuration are sent.
    fn on_done(&mut self) -> bool {
        let Some(shared) = &self.shared else { return true };
        if shared.outbox.borrow().is_empty() {
            return true;
        }
        self.leaving_since = Some(abi::now_ms());
        false
    }
}

impl RootContext for Root {
    fn on_vm_start(&mut self, _: usize) -> bool {
        log::info!("tokengate {} ({})", env!("CARGO_PKG_VERSION"), env!("TOKENGATE_GIT_HASH"));
        true
    }

    fn on_configure(&mut self, size: usize) -> bool {
        let json = abi::buffer(Buffer::PluginConfiguration, size).unwrap_or_default();
        match Config::parse(&json) {
            Ok(config) => {
                let ticks = abi::set_tick_period(config.outbox.tick_ms);
                self.shared = Some(Rc::new(Shared::new(config)));
                ticks
            }
            Err(error) => {
                log::error!("tokengate: {error}");
                false
            }
        }
    }

    fn on_tick(&mut self) {
        let Some(shared) = self.shared.clone() else { return };
        let now = abi::now_ms();
        self.fetch_models(&shared, now);
        self.send_repeats(&shared, now);
        self.count_on(&shared, now);
        self.look_after(&shared, now);
        self.cut_streams(&shared);
        self.send_extends(&shared, now);
        self.send_settles(&shared, now);
        tell_state(&shared);
        self.say_goodbye(&shared, now);
    }

    fn create_http_context(&self, context: u32) -> Option<Box<dyn HttpContext>> {
        let shared = self.shared.clone().unwrap_or_else(|| Rc::new(Shared::new(Config::default())));
        Some(Box::new(Http::new(context, shared)))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}
