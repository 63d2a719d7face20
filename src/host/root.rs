//! The root context of one plugin in one VM: it is configured, it ticks, and answers to its calls come to it.

mod calls;
mod streams;

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicBool, Ordering};

use hashbrown::HashMap;
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::ContextType;

use super::abi::{self, Buffer};
use super::http::{Http, reserve_answer};
use super::running::Running;
use super::shared::Shared;
use crate::config::Config;
use crate::tokenizer::Encoding;

/// How long a replaced configuration may still send its settles.
const LONGEST_GOODBYE_MS: u64 = 5_000;

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
