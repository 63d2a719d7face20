//! One HTTP stream: callbacks become events.

use std::cell::{RefCell, RefMut};
use std::rc::Rc;

use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;

use super::abi::{self, Buffer, Map};
use super::running::Running;
use super::shared::Shared;
use crate::config::HoldAt;
use crate::stream::charge::Ending;
use crate::stream::{Event, Failure, ResponseHead};

/// A reserve's answer is never this large.
const MAX_ANSWER: usize = 256 * 1024;
/// What Envoy says of an answer that came from a provider.
const FROM_PROVIDER: &[u8] = b"via_upstream";

/// What the SDK calls. The stream is shared with the root context, which repeats reserves for it.
pub struct Http {
    running: Rc<RefCell<Running>>,
}

impl Http {
    pub fn new(context: u32, shared: Rc<Shared>) -> Self {
        Self { running: Running::new(context, shared) }
    }

    /// The stream; `None` inside a callback of its own, which the host does not do.
    fn running(&self) -> Option<RefMut<'_, Running>> {
        self.running.try_borrow_mut().ok()
    }
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
        coding: headers.answer_coding(),
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
            running.received_at_headers = abi::received();
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
