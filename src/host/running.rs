//! One stream with its host calls: effects are carried out.

mod counting;

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use proxy_wasm::types::Action;
use tokengate_api::ReserveRequest;

use super::abi::{self, Buffer, Map};
use super::random;
use super::shared::{Order, Shared};
use crate::gzip;
use crate::outbox::Settle;
use crate::stream::charge::Ending;
use crate::stream::{Effect, Env, Event, Packing, Rewrite, Stream};

/// A stream with what the host calls need to know.
pub struct Running {
    pub(super) context: u32,
    pub(super) this: Weak<RefCell<Running>>,
    pub(super) shared: Rc<Shared>,
    pub(super) stream: Stream,
    /// Bytes of the request's body that are held.
    pub(super) held_bytes: usize,
    /// What Envoy counts as received when the headers were held, while no body was shown.
    pub(super) received_at_headers: Option<i64>,
    /// Bytes of the answer in the current callback.
    pub(super) chunk_bytes: usize,
    /// When the current callback began, in microseconds.
    pub(super) callback_began: u64,
    /// What the callbacks of the request have taken so far, in microseconds.
    pub(super) counting_us: u64,
    /// When the reserve was sent first, in microseconds.
    pub(super) reserve_sent: u64,
    /// The root context counts on.
    pub(super) is_queued: bool,
    /// The body is whole, and the stream was not told yet.
    pub(super) waits_for_end: bool,
    /// The proxy has told the end of the stream: nothing more can be done to it.
    pub(super) has_ended: bool,
}

/// A reserve to be sent once more. Not at once: in the callback of a connection's end Envoy still gives out
/// that connection.
pub struct Repeat {
    pub stream: Rc<RefCell<Running>>,
    pub request: Box<ReserveRequest>,
    pub timeout_ms: u32,
    pub queued_at: u64,
}

impl Running {
    pub fn new(context: u32, shared: Rc<Shared>) -> Rc<RefCell<Self>> {
        Rc::new_cyclic(|this: &Weak<RefCell<Self>>| {
            RefCell::new(Self {
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
                is_queued: false,
                waits_for_end: false,
                has_ended: false,
            })
        })
    }

    pub fn context(&self) -> u32 {
        self.context
    }

    /// A held request of which nothing but the headers was ever shown.
    pub fn waits_for_body(&self) -> bool {
        self.stream.holds_body() && self.received_at_headers.is_some()
    }

    /// After the headers: the body is to come.
    pub fn await_body(&mut self) {
        if self.stream.holds_body() {
            self.received_at_headers = abi::received();
            self.shared.watch(self.this.clone());
        }
    }

    /// The last byte of the answer was seen.
    pub fn response_end(&mut self, ending: fn() -> Ending) {
        if self.is_admitted() {
            self.step(Event::ResponseEnd(ending()));
        }
    }

    /// Whether bytes of the body have come without being shown. Needs this stream's effective context.
    pub fn body_is_withheld(&self) -> bool {
        abi::received() > self.received_at_headers
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
                standing: &|caller| self.shared.callers.borrow().standing(caller, abi::now_ms()),
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
            Effect::AwaitModels => self.shared.await_models(self.this.clone()),
            Effect::Identify { caller, request } => {
                self.shared.order(Order::Identify { stream: self.this.clone(), caller, request });
            }
            Effect::LearnCaller { caller, is_known, policy_version } => {
                self.shared.callers.borrow_mut().learn(caller, is_known, &policy_version, abi::now_ms());
            }
            Effect::Reserve { request, timeout_ms } => {
                let stream = self.this.upgrade()?;
                if request.attempt > 1 {
                    self.shared.repeat(Repeat { stream, request, timeout_ms, queued_at: abi::now_ms() });
                } else {
                    self.reserve_sent = abi::now_us();
                    self.shared.metrics.counting_took(self.counting_us);
                    let began_us = self.callback_began;
                    let caller = self.stream.caller();
                    self.shared.order(Order::Reserve { stream, caller, request, timeout_ms, began_us });
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
            Effect::Settle { item, reserved_at, reserve, frees } => {
                self.shared.extends.borrow_mut().forget(&item.id);
                let settle = Settle { item: *item, reserve, reserved_at, frees };
                self.shared.outbox.borrow_mut().push(settle, abi::now_ms());
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

    pub fn request_action(&self) -> Action {
        if self.stream.holds_request() { Action::Pause } else { Action::Continue }
    }
}
