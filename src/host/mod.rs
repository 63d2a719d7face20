//! The only room that knows of proxy-wasm. It turns callbacks into events and effects into host calls,
//! and decides nothing.

#![allow(unsafe_code)]

mod abi;
mod http;
mod metrics;
mod random;
mod root;
mod running;
mod shared;

use proxy_wasm::traits::RootContext;
use proxy_wasm::types::LogLevel;

proxy_wasm::main! {{
    proxy_wasm::set_log_level(LogLevel::Info);
    proxy_wasm::set_root_context(|context| -> Box<dyn RootContext> { Box::new(root::Root::new(context)) });
}}
