//! One HTTP stream: callbacks become events, effects become host calls.

use std::cell::{RefCell, RefMut};
use std::rc::{Rc, Weak};

use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;
use tokengate_api::{RESERVE_PATH, ReserveRequest};

use super::abi::{self, Buffer, Map};
use super::random;
use super::root::Shared;
use crate::config::HoldAt;
use crate::gzip;
use crate::stream::charge::Ending;
use crate::stream::{Effect, Env, Event, Failure, Packing, ResponseHead, Rewrite, SLICE, Stream};

/// A reserve's answer is never this large.
const MAX_ANSWER: usize = 256 * 1024;
/// The most of a body that one callback counts, in bytes: the worker serves nobody meanwhile.
const MAX_COUNTED: usize = 64 * 1024;
/// And about the longest that it does.
const LONGEST_COUNT_MS: u64 = 2;
/// What Envoy says of an answer that came from a provider.
const FROM_PROVIDER: &[u8] = b"via_upstream";

/// What the SDK calls. The stream is shared with the root context, which repeats reserves for it.
pub struct Http {
    running: Rc<RefCell<Running>>,
}

/// A stream with what the host calls need to know.
pub struct Running {
    context: u32,
    this: Weak<RefCell<Running>>,
    shared: Rc<Shared>,
    stream: Stream,
    /// Bytes of the request's body that are held.
    held_bytes: usize,
    /// What Envoy counts as received when the headers were held, while no body was shown.
    received_at_headers: Option<i64>,
    /// Bytes of the answer in the current callback.
    chunk_bytes: usize,
    /// When the current callback began, in microseconds.
    callback_began: u64,
    /// What the callbacks of the request have taken so far, in microseconds.
    counting_us: u64,
    /// When the reserve was sent first, in microseconds.
    reserve_sent: u64,
    /// The reserve under way.
    call: Option<u32>,
    /// The root context counts on.
    is_queued: bool,
    /// The body is whole, and the stream was not told yet.
    waits_for_end: bool,
}

impl Http {
    pub fn new(context: u32, shared: Rc<Shared>) -> Self {
        let running = Rc::new_cyclic(|this: &Weak<RefCell<Running>>| {
            RefCell::new(Running {
                context,
                this: this.clone(),
                shared,
                stream: Stream::default(),
                held_bytes: 0,
                received_at_headers: None,
                chunk_bytes: 0,
                callback_began: 0,
                counting_us: 0,
                reserve_sent: 0,
                call: None,
                is_queued: false,
                waits_for_end: false,
            })
        });
        Self { running }
    }

    /// The stream; `None` inside a callback of its own, which the host does not do.
    fn running(&self) -> Option<RefMut<'_, Running>> {
        self.running.try_borrow_mut().ok()
    }
}

impl Running {
    pub fn context(&self) -> u32 {
        self.context
    }

    /// A held request of which nothing but the headers was ever shown.
    pub fn waits_for_body(&self) -> bool {
        self.stream.wants_body() && self.received_at_headers.is_some()
    }

    /// Whether bytes of the body have come without being shown. Needs this stream's effective context.
    pub fn body_is_withheld(&self) -> bool {
        received() > self.received_at_headers
    }

    /// Its reservation is open.
    pub fn is_admitted(&self) -> bool {
        matches!(self.stream, Stream::Admitted(_))
    }

    pub fn waits_for_reserve(&self) -> bool {
        matches!(self.stream, Stream::Reserving(_))
    }

    /// Steps the stream and does what it says, in the effective context.
    pub fn step(&mut self, event: Event<'_>) {
        self.callback_began = abi::now_us();
        if matches!(event, Event::ReserveAnswer(_)) {
            self.shared.metrics.reserve_took(self.callback_began.saturating_sub(self.reserve_sent));
        }
        let mut next = Some(event);
        while let Some(event) = next.take() {
            let models = self.shared.models.borrow().clone();
            let env = Env {
                config: &self.shared.config,
                models: &models,
                now_ms: &abi::now_ms,
                new_id: &random::reservation_id,
                property: &abi::property,
            };
            let (stream, effects) = std::mem::take(&mut self.stream).step(&env, event);
            self.stream = stream;
            if self.reserve_sent == 0 {
                let spent = abi::now_us().saturating_sub(self.callback_began);
                self.counting_us = self.counting_us.saturating_add(spent);
            }
            for effect in effects {
                next = self.carry_out(effect);
                if next.is_some() {
                    break;
                }
            }
        }
    }

    /// Does one effect; gives the event that tells the stream where it could not be done.
    fn carry_out(&mut self, effect: Effect) -> Option<Event<'static>> {
        match effect {
            Effect::RemoveRequestHeader(name) => abi::remove_header(Map::Request, &name),
            Effect::SetRequestHeader(name, value) => {
                abi::set_header(Map::Request, name, value.as_bytes());
            }
            Effect::Reserve { request, timeout_ms } if request.attempt > 1 => {
                let stream = self.this.clone();
                self.shared.repeat(Repeat { stream, request, timeout_ms, queued_at: abi::now_ms() });
            }
            Effect::Reserve { request, timeout_ms } => {
                self.reserve_sent = abi::now_us();
                self.shared.metrics.counting_took(self.counting_us);
                self.call = self.reserve(&request, timeout_ms);
                if self.call.is_none() {
                    return Some(Event::ReserveFailed(Failure::Unusable));
                }
            }
            Effect::RewriteBody(rewrite) => {
                if self.rewrite(&rewrite).is_none() {
                    return Some(Event::RewriteFailed);
                }
            }
            Effect::Resume => {
                abi::resume_request();
            }
            Effect::Reply(reply) => {
                let headers: Vec<(&str, &str)> =
                    reply.headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
                abi::send_local_response(reply.status, &reply.details, &headers, &reply.body);
            }
            Effect::RemoveResponseHeader(name) => abi::remove_header(Map::Response, &name),
            Effect::SetResponseHeader(name, value) => {
                abi::set_header(Map::Response, name, value.as_bytes());
            }
            Effect::ReplaceResponseBody(bytes) => {
                abi::replace_prefix(Buffer::ResponseBody, self.chunk_bytes, &bytes);
            }
            Effect::Measure(measure) => self.shared.metrics.measure(&measure),
            Effect::Log(field, text) => abi::set_filter_state(field.name(), &text),
            Effect::Settle { item, reserved_at } => {
                self.shared.outbox.borrow_mut().push(*item, reserved_at, abi::now_ms());
            }
            Effect::Extend(item) => self.shared.extends.borrow_mut().push(item, self.this.clone()),
            Effect::KeepLease { id, account, lease_ms } => {
                let mut extends = self.shared.extends.borrow_mut();
                extends.keep(id, account, lease_ms, self.this.clone(), abi::now_ms());
            }
            Effect::CutSoon => self.shared.cut_soon(self.this.clone()),
            Effect::CutResponse => {
                abi::reset_response();
            }
            Effect::RefreshModels => self.shared.refresh_models.set(true),
        }
        None
    }

    fn reserve(&self, request: &ReserveRequest, timeout_ms: u32) -> Option<u32> {
        let body = serde_json::to_vec(request).ok()?;
        // Envoy's timers count from the start of the event loop's round: what this callback has taken
        // already, counting a long prompt or loading an encoding, is not the service's time.
        let spent = abi::now_us().saturating_sub(self.callback_began) / 1_000;
        let timeout_ms = timeout_ms.saturating_add(u32::try_from(spent).unwrap_or(0));
        self.shared.call("POST", RESERVE_PATH, Some(&body), timeout_ms)
    }

    /// Changes the held body and its length together: one without the other would smuggle a request.
    fn rewrite(&self, rewrite: &Rewrite) -> Option<()> {
        let Rewrite { edits, packing, fix_length } = rewrite;
        let replaced = match packing {
            Packing::Plain => edits.end(),
            Packing::Unpack | Packing::Repack => self.held_bytes,
        };
        let body = abi::buffer(Buffer::RequestBody, replaced)?;
        let new = match packing {
            Packing::Plain => edits.apply(&body)?,
            _ => edits.apply(&gzip::inflate(&body, self.shared.config.max_body_bytes.0).ok()?)?,
        };
        let new = if *packing == Packing::Repack { gzip::deflate(&new)? } else { new };
        abi::replace_prefix(Buffer::RequestBody, replaced, &new).then_some(())?;
        if *fix_length {
            let length = self.held_bytes.saturating_sub(replaced).saturating_add(new.len()).to_string();
            abi::set_header(Map::Request, "content-length", length.as_bytes()).then_some(())?;
        }
        Some(())
    }

    /// Counts as much of the body as one callback may; `true` while there is more of it. Needs this stream's
    /// effective context.
    pub fn count_on(&mut self) -> bool {
        if self.waits_for_end {
            self.end_body();
        }
        let (mut counted, began) = (0, abi::now_ms());
        while counted < MAX_COUNTED
            && abi::now_ms().saturating_sub(began) < LONGEST_COUNT_MS
            && let Some(bytes) = self.uncounted()
        {
            self.step(Event::RequestPiece { bytes: &bytes });
            counted += SLICE;
        }
        self.is_queued = self.waits_for_end || self.has_uncounted();
        self.is_queued
    }

    fn has_uncounted(&self) -> bool {
        self.stream.counts_kept() || self.stream.counts_from().is_some_and(|from| from < self.held_bytes)
    }

    /// What the stream needs for counting on.
    fn uncounted(&self) -> Option<Vec<u8>> {
        if self.stream.counts_kept() {
            return Some(Vec::new());
        }
        let from = self.stream.counts_from().filter(|from| *from < self.held_bytes)?;
        let size = (self.held_bytes - from).min(SLICE);
        Some(abi::buffer_from(Buffer::RequestBody, from, size).unwrap_or_default())
    }

    /// Whether this stream keeps a whole body.
    pub fn keeps_body(&self) -> bool {
        self.stream.counts_kept()
    }

    /// The reserve under way, for a root context that sent it: the answer will come to it.
    pub fn take_call(&mut self) -> Option<u32> {
        self.call.take()
    }

    fn request_action(&self) -> Action {
        if self.stream.holds_request() { Action::Pause } else { Action::Continue }
    }

    fn request_end(&mut self) {
        self.end_body();
        self.count_along();
    }

    /// The body is whole. A second one that must be kept waits for its turn: together they could fill the
    /// memory that all streams share.
    fn end_body(&mut self) {
        self.waits_for_end = self.stream.will_keep() && !self.shared.may_keep(&self.this);
        if self.stream.wants_body() && !self.waits_for_end {
            let body = abi::buffer(Buffer::RequestBody, self.held_bytes).unwrap_or_default();
            self.step(Event::RequestEnd { body: &body });
        }
    }

    /// Counts in a callback of the stream's own, and leaves the rest to the root context.
    fn count_along(&mut self) {
        if !self.is_queued && self.count_on() {
            self.shared.count_later(self.this.clone());
        }
    }
}

/// Bytes of the request that Envoy has received, those of the headers as they are now included.
fn received() -> Option<i64> {
    abi::integer_property(&["request", "total_size"])
}

/// A reserve to be sent once more. Not at once: in the callback of a connection's end Envoy still gives out
/// that connection.
pub struct Repeat {
    pub stream: Weak<RefCell<Running>>,
    pub request: Box<ReserveRequest>,
    pub timeout_ms: u32,
    pub queued_at: u64,
}

/// The reserve's answer that the current callback brings.
pub fn reserve_answer(body_size: usize) -> Event<'static> {
    let headers = abi::headers(Map::CallResponse);
    let is_from_service = headers.get("x-envoy-upstream-service-time").is_some();
    match headers.text(":status") {
        // Reset after the headers or before them; the proxy's own 503 is a failed connection.
        None => Event::ReserveFailed(Failure::Connection),
        Some("503") if !is_from_service => Event::ReserveFailed(Failure::Connection),
        Some("504") if !is_from_service => Event::ReserveFailed(Failure::Deadline),
        Some("200") if is_from_service && body_size <= MAX_ANSWER => {
            let body = abi::buffer(Buffer::CallResponseBody, body_size).unwrap_or_default();
            match serde_json::from_slice(&body) {
                Ok(answer) => Event::ReserveAnswer(answer),
                Err(_) => Event::ReserveFailed(Failure::Unusable),
            }
        }
        Some(_) => Event::ReserveFailed(Failure::Unusable),
    }
}

/// Whether anything can have reached a provider, by what Envoy says of its upstream.
fn ending() -> Ending {
    const NO_HEALTHY_UPSTREAM: i64 = 0x2;
    const CONNECTION_FAILURE: i64 = 0x20;
    const OVERFLOW: i64 = 0x80;
    const NO_ROUTE: i64 = 0x100;
    const NEVER_SENT: i64 = NO_HEALTHY_UPSTREAM | CONNECTION_FAILURE | OVERFLOW | NO_ROUTE;

    let has = |name| abi::property(&["upstream", name]).is_some_and(|address| !address.is_empty());
    let flags = abi::integer_property(&["response", "flags"]).unwrap_or(0);
    // All of this is the last attempt's; of earlier ones only their number is known.
    let attempts = abi::integer_property(&["upstream", "request_attempt_count"]).unwrap_or(1);
    // A host is chosen before there is a connection to it, and the request can end while one is being made.
    let is_connected = has("address") && has("local_address");
    let was_sent = attempts > 1 || (is_connected && flags & NEVER_SENT == 0);
    // The request starts again, as another stream.
    let was_redirected =
        abi::property(&["response", "code_details"]).as_deref() == Some(b"internal_redirect".as_slice());
    Ending { reached_provider: was_sent && !was_redirected }
}

fn response_head() -> ResponseHead {
    let headers = abi::headers(Map::Response);
    let details = abi::property(&["response", "code_details"]);
    ResponseHead {
        status: headers.text(":status").and_then(|status| status.parse().ok()).unwrap_or(0),
        from_provider: details.as_deref() == Some(FROM_PROVIDER),
        coding: headers.coding(),
        rate_limit_headers: headers.names_with_prefix("x-ratelimit-"),
    }
}

impl Context for Http {
    fn on_http_call_response(&mut self, token: u32, _: usize, body_size: usize, _: usize) {
        let Some(mut running) = self.running() else { return };
        if running.call.take_if(|call| *call == token).is_some() {
            running.step(reserve_answer(body_size));
        }
    }
}

impl HttpContext for Http {
    fn on_http_request_headers(&mut self, _: usize, end_of_stream: bool) -> Action {
        let Some(mut running) = self.running() else { return Action::Pause };
        let headers = abi::headers(Map::Request);
        #[cfg(feature = "trap")]
        if headers.get("x-tokengate-trap").is_some() {
            std::process::abort();
        }
        running.step(Event::RequestHeaders { headers: &headers, end_of_stream });
        if running.stream.wants_body() {
            running.received_at_headers = received();
            running.shared.watch(Rc::downgrade(&self.running));
            if running.shared.config.hold_at == HoldAt::Body {
                return Action::Continue;
            }
        }
        running.request_action()
    }

    fn on_http_request_body(&mut self, length: usize, end_of_stream: bool) -> Action {
        let Some(mut running) = self.running() else { return Action::Pause };
        running.held_bytes = length;
        running.received_at_headers = None;
        running.step(Event::RequestBody { length });
        match end_of_stream {
            true => running.request_end(),
            false => running.count_along(),
        }
        running.request_action()
    }

    /// Trailers end the body: an HTTP/2 body with trailers never says so itself.
    fn on_http_request_trailers(&mut self, _: usize) -> Action {
        let Some(mut running) = self.running() else { return Action::Pause };
        running.request_end();
        running.request_action()
    }

    fn on_http_response_headers(&mut self, _: usize, _: bool) -> Action {
        if let Some(mut running) = self.running() {
            running.step(Event::ResponseHead(response_head()));
        }
        Action::Continue
    }

    fn on_http_response_body(&mut self, size: usize, is_last: bool) -> Action {
        if let Some(mut running) = self.running()
            && running.stream.wants_answer()
        {
            running.chunk_bytes = size;
            let chunk = abi::buffer(Buffer::ResponseBody, size).unwrap_or_default();
            running.step(Event::ResponseBody { chunk: &chunk, is_last });
        }
        Action::Continue
    }

    fn on_log(&mut self) {
        if let Some(mut running) = self.running() {
            running.step(Event::End(ending()));
        }
    }
}
