//! What a root context and its streams share.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use tokengate_api::{IdentifyRequest, ReserveRequest};

use super::abi;
use super::metrics::Metrics;
use super::running::{Repeat, Running};
use crate::callers::{CallerId, Callers};
use crate::config::Config;
use crate::extends::Extends;
use crate::models::Models;
use crate::outbox::Outbox;
use crate::turns::Turns;

/// Between two ticks while prompts wait to be counted.
const COUNTING_TICK_MS: u32 = 1;

/// A call that a stream needs. The root makes it: the answer to a call of a stream's own would be lost with it.
pub enum Order {
    /// The stream is kept until the answer is there: what it held must be known or given back.
    Reserve {
        stream: Rc<RefCell<Running>>,
        caller: Option<CallerId>,
        request: Box<ReserveRequest>,
        timeout_ms: u32,
        began_us: u64,
    },
    Identify {
        stream: Weak<RefCell<Running>>,
        caller: CallerId,
        request: Box<IdentifyRequest>,
    },
    FetchModels,
}

/// A stream that waits for the model list.
pub struct Waiter {
    pub stream: Weak<RefCell<Running>>,
    pub until: u64,
}

/// What the streams of a root context share with it.
pub struct Shared {
    root: u32,
    /// The root context is running, and looks for orders itself.
    is_awake: Cell<bool>,
    /// Its configuration was replaced, and all is sent.
    is_gone: Cell<bool>,
    orders: RefCell<Vec<Order>>,
    pub callers: RefCell<Callers>,
    pub awaiting_models: RefCell<Vec<Waiter>>,
    pub config: Config,
    pub models: RefCell<Rc<Models>>,
    pub outbox: RefCell<Outbox>,
    pub extends: RefCell<Extends<Weak<RefCell<Running>>>>,
    pub refresh_models: Cell<bool>,
    pub metrics: Metrics,
    pub repeats: RefCell<Vec<Repeat>>,
    /// Streams whose body may never be shown.
    pub watched: RefCell<Vec<Weak<RefCell<Running>>>>,
    /// Streams whose last event is written.
    pub cut: RefCell<Vec<Weak<RefCell<Running>>>>,
    /// Streams with more of a body than their own callbacks may count.
    pub uncounted: RefCell<Turns<Option<CallerId>, Weak<RefCell<Running>>>>,
    /// The stream that keeps a whole body, if any does.
    keeper: RefCell<Weak<RefCell<Running>>>,
    /// Authorization of our own calls.
    authorization: Option<String>,
}

impl Shared {
    pub fn new(root: u32, config: Config) -> Self {
        let token = match config.quota.token_env.as_str() {
            "" => None,
            name => std::env::var(name).ok(),
        };
        Self {
            root,
            is_awake: Cell::new(false),
            is_gone: Cell::new(false),
            orders: RefCell::default(),
            callers: RefCell::default(),
            awaiting_models: RefCell::default(),
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

    pub fn order(&self, order: Order) {
        self.orders.borrow_mut().push(order);
    }

    pub fn take_orders(&self) -> Vec<Order> {
        self.orders.take()
    }

    /// While the root context runs its own callback.
    pub fn set_awake(&self, is_awake: bool) {
        self.is_awake.set(is_awake);
    }

    /// The SDK knows the root context no more.
    pub fn root_has_gone(&self) {
        self.is_gone.set(true);
    }

    pub fn root_is_gone(&self) -> bool {
        self.is_gone.get()
    }

    /// In a callback of a stream's that holds nothing borrowed: lets the root do what must not wait for its next
    /// tick. Tells whether it ran.
    pub fn wake_root(&self) -> bool {
        let must_run = !self.orders.borrow().is_empty() || self.outbox.borrow().is_urgent();
        if must_run && !self.is_awake.get() && !self.is_gone.get() {
            abi::wake(self.root);
            return true;
        }
        false
    }

    /// Waits for the model list, as long as for a reserve.
    pub fn await_models(&self, stream: Weak<RefCell<Running>>) {
        let until = abi::now_ms().saturating_add(u64::from(self.config.quota.timeout_ms));
        self.awaiting_models.borrow_mut().push(Waiter { stream, until });
        self.order(Order::FetchModels);
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
    pub fn count_later(&self, caller: Option<CallerId>, stream: Weak<RefCell<Running>>) {
        let mut uncounted = self.uncounted.borrow_mut();
        if uncounted.is_empty() {
            abi::set_tick_period(COUNTING_TICK_MS);
        }
        uncounted.push(caller, stream);
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

    pub fn next_uncounted(&self) -> Option<(Option<CallerId>, Weak<RefCell<Running>>)> {
        self.uncounted.borrow_mut().pop()
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
