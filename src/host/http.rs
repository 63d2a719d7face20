//! One HTTP stream: callbacks become events.

use std::cell::RefCell;
use std::rc::Rc;

use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;

use super::abi::{self, Buffer, Map};
use super::running::Running;
use super::shared::{Order, Shared};
use crate::config::HoldAt;
use crate::stream::charge::Ending;
use crate::stream::{Event, Failure, ResponseHead};

/// What Envoy says of an answer that came from a provider.
const FROM_PROVIDER: &[u8] = b"via_upstream";

/// What the SDK calls. The stream is shared with the root context, which makes its calls.
pub struct Http {
    context: u32,
    shared: Rc<Shared>,
    running: Rc<RefCell<Running>>,
}

impl Http {
    pub fn new(context: u32, shared: Rc<Shared>) -> Self {
        Self { context, running: Running::new(context, shared.clone()), shared }
    }

    /// Runs a callback, and then, when nothing of the stream is borrowed any more, what it asks of the root.
    fn during(&self, callback: impl FnOnce(&mut Running)) {
        if let Ok(mut running) = self.running.try_borrow_mut() {
            callback(&mut running);
        }
        if self.shared.wake_root() {
            abi::set_effective_context(self.context);
        }
        if self.shared.root_is_gone() {
            self.give_up();
        }
    }

    /// Nobody makes calls any more: what waits for one has no answer.
    fn give_up(&self) {
        let step = |stream: &Rc<RefCell<Running>>, event| {
            if let Ok(mut running) = stream.try_borrow_mut() {
                running.step(event);
            }
        };
        for order in self.shared.take_orders() {
            match order {
                Order::Reserve { stream, .. } => step(&stream, Event::ReserveFailed(Failure::Unusable)),
                Order::Identify { .. } => step(&self.running, Event::IdentifyFailed),
                Order::FetchModels => step(&self.running, Event::ModelsFailed),
            }
        }
    }

    /// What becomes of the request, as the stream is now.
    fn request_action(&self) -> Action {
        self.running.try_borrow().map_or(Action::Pause, |running| running.request_action())
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
        coding: headers.answer_coding(),
        rate_limit_headers: headers.names_with_prefix("x-ratelimit-"),
    }
}

impl Context for Http {}

impl HttpContext for Http {
    fn on_http_request_headers(&mut self, _: usize, end_of_stream: bool) -> Action {
        let headers = abi::headers(Map::Request);
        #[cfg(feature = "trap")]
        if headers.get("x-tokengate-trap").is_some() {
            std::process::abort();
        }
        self.during(|running| {
            running.step(Event::RequestHeaders { headers: &headers, end_of_stream });
            running.await_body();
        });
        let goes_on =
            |running: &Running| running.stream.holds_body() && running.shared.config.hold_at == HoldAt::Body;
        if self.running.try_borrow().is_ok_and(|running| goes_on(&running)) {
            return Action::Continue;
        }
        self.request_action()
    }

    fn on_http_request_body(&mut self, length: usize, end_of_stream: bool) -> Action {
        self.during(|running| {
            running.held_bytes = length;
            running.received_at_headers = None;
            running.step(Event::RequestBody { length });
            match end_of_stream {
                true => running.request_end(),
                false => running.count_along(),
            }
        });
        self.request_action()
    }

    /// Trailers end the body: an HTTP/2 body with trailers never says so itself.
    fn on_http_request_trailers(&mut self, _: usize) -> Action {
        self.during(Running::request_end);
        self.request_action()
    }

    fn on_http_response_headers(&mut self, _: usize, end_of_stream: bool) -> Action {
        self.during(|running| {
            running.step(Event::ResponseHead(response_head()));
            if end_of_stream {
                running.response_end(ending);
            }
        });
        Action::Continue
    }

    fn on_http_response_body(&mut self, size: usize, is_last: bool) -> Action {
        self.during(|running| {
            if running.stream.wants_answer() {
                running.chunk_bytes = size;
                let chunk = abi::buffer(Buffer::ResponseBody, size).unwrap_or_default();
                running.step(Event::ResponseBody { chunk: &chunk, is_last });
            }
            if is_last {
                running.response_end(ending);
            }
        });
        Action::Continue
    }

    fn on_http_response_trailers(&mut self, _: usize) -> Action {
        self.during(|running| running.response_end(ending));
        Action::Continue
    }

    fn on_log(&mut self) {
        self.during(|running| {
            running.has_ended = true;
            running.step(Event::End(ending()));
        });
    }
}
