//! The root context of one plugin in one VM: it is configured, it ticks, and answers to its calls come to it.

mod calls;
mod orders;
mod streams;

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicBool, Ordering};

use hashbrown::HashMap;
use orders::{Behind, Question};
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::ContextType;

use super::abi::{self, Buffer};
use super::http::Http;
use super::running::Running;
use super::shared::Shared;
use crate::callers::CallerId;
use crate::config::Config;
use crate::tokenizer::Encoding;

/// The model list is fetched at the first tick.
const FIRST_TICK_MS: u32 = 5;
/// How long a replaced configuration may still send its settles.
const LONGEST_GOODBYE_MS: u64 = 5_000;

#[derive(Default)]
pub struct Root {
    context: u32,
    shared: Option<Rc<Shared>>,
    farewell: Option<Farewell>,
    /// Batches under way.
    settle_calls: HashMap<u32, u64>,
    extend_call: Option<u32>,
    models_call: Option<u32>,
    models_tried_at: Option<u64>,
    has_ticked: bool,
    /// Reserves under way. Their streams are kept, though they may be over.
    reserves: HashMap<u32, Rc<RefCell<Running>>>,
    /// Reserves that wait for a settle of their callers' to be answered.
    behind: Vec<Behind>,
    /// Questions who calls under way, and those to be asked once more.
    questions: HashMap<u32, Question>,
    questions_again: Vec<Question>,
    /// The streams that wait for each.
    askers: HashMap<CallerId, Vec<Weak<RefCell<Running>>>>,
    /// When this configuration was replaced.
    leaving_since: Option<u64>,
    /// Settles and releases given up, and settles sent in another form, that metrics know of.
    told: [u64; 3],
    /// Settles and releases given up that the log knows of.
    logged: [u64; 2],
    log_next_at: u64,
    watch_next_at: u64,
    misconfiguration_logged: bool,
}

impl Root {
    pub fn new(context: u32) -> Self {
        Self { context, ..Self::default() }
    }

    fn say_goodbye(&self, shared: &Shared, now: u64) {
        if self.leaving_since.is_some_and(|since| {
            (shared.outbox.borrow().is_empty() && self.reserves.is_empty())
                || now.saturating_sub(since) >= LONGEST_GOODBYE_MS
        }) {
            // No tick comes after this to take its share out of the gauge.
            shared.metrics.outbox_depth(0, 0);
            abi::done();
        }
    }

    /// Runs a callback, and then what streams have ordered meanwhile.
    fn during(&mut self, callback: impl FnOnce(&mut Self, &Shared)) {
        let Some(shared) = self.shared.clone() else { return };
        shared.set_awake(true);
        callback(self, &shared);
        self.serve(&shared);
        shared.set_awake(false);
    }
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
}

/// Tells streams that outlive their root context that it is gone.
struct Farewell(Rc<Shared>);

impl Drop for Farewell {
    fn drop(&mut self) {
        self.0.root_has_gone();
    }
}

impl Context for Root {
    fn on_http_call_response(&mut self, token: u32, _: usize, body_size: usize, _: usize) {
        self.during(|root, shared| {
            let now = abi::now_ms();
            if let Some(stream) = root.reserves.remove(&token) {
                root.reserve_answered(shared, &stream, now, body_size);
            } else if let Some(batch) = root.settle_calls.remove(&token) {
                root.settles_answered(shared, batch, now, body_size);
                root.send_behind(shared, now);
            } else if let Some(question) = root.questions.remove(&token) {
                root.identify_answered(shared, question, now, body_size);
            } else if root.extend_call.take_if(|call| *call == token).is_some() {
                root.extends_answered(shared, now, body_size);
            } else if root.models_call.take_if(|call| *call == token).is_some() {
                root.models_answered(shared, body_size);
            }
            root.say_goodbye(shared, now);
        });
    }

    /// False keeps ticks and calls alive until [`abi::done`]: settles of a replaced configuration are sent.
    fn on_done(&mut self) -> bool {
        let Some(shared) = &self.shared else { return true };
        if shared.outbox.borrow().is_empty() && self.reserves.is_empty() {
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
                let ticks = abi::set_tick_period(FIRST_TICK_MS);
                let shared = Rc::new(Shared::new(self.context, config));
                self.farewell = Some(Farewell(shared.clone()));
                self.shared = Some(shared);
                ticks
            }
            Err(error) => {
                log::error!("tokengate: {error}");
                false
            }
        }
    }

    fn on_tick(&mut self) {
        self.during(|root, shared| {
            let now = abi::now_ms();
            if !std::mem::replace(&mut root.has_ticked, true) {
                abi::set_tick_period(shared.config.outbox.tick_ms);
            }
            root.fetch_models(shared, now);
            root.expire_waiters(shared, now);
            root.send_repeats(shared, now);
            root.send_behind(shared, now);
            root.count_on(shared, now);
            root.look_after(shared, now);
            root.cut_streams(shared);
            root.send_extends(shared, now);
            root.send_settles(shared, now);
            tell_state(shared);
            root.tell_outbox(shared, now);
            root.say_goodbye(shared, now);
        });
    }

    /// A stream's callback has orders: [`abi::wake`]. No queue is used.
    fn on_queue_ready(&mut self, _: u32) {
        self.during(|_, _| ());
    }

    fn create_http_context(&self, context: u32) -> Option<Box<dyn HttpContext>> {
        let shared =
            self.shared.clone().unwrap_or_else(|| Rc::new(Shared::new(self.context, Config::default())));
        Some(Box::new(Http::new(context, shared)))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}
