//! What a root context and its streams share.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

use super::abi;
use super::metrics::Metrics;
use super::running::{Repeat, Running};
use crate::config::Config;
use crate::extends::Extends;
use crate::models::Models;
use crate::outbox::Outbox;

/// Between two ticks while prompts wait to be counted.
const COUNTING_TICK_MS: u32 = 1;

/// What the streams of a root context share with it.
pub struct Shared {
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
    pub uncounted: RefCell<VecDeque<Weak<RefCell<Running>>>>,
    /// The stream that keeps a whole body, if any does.
    keeper: RefCell<Weak<RefCell<Running>>>,
    /// Authorization of our own calls.
    authorization: Option<String>,
}

impl Shared {
    pub fn new(config: Config) -> Self {
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

    pub fn next_uncounted(&self) -> Option<Weak<RefCell<Running>>> {
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
