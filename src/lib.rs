//! tokengate's filter: holds a request, counts and reserves its tokens, reads the usage of the answer and
//! settles. Everything but `host` is pure and runs natively in unit tests.

#![deny(unsafe_code)]

pub mod back_off;
pub mod callers;
pub mod config;
pub mod dialect;
pub mod edits;
pub mod extends;
pub mod gzip;
pub mod headers;
#[cfg(target_arch = "wasm32")]
mod host;
pub mod identity;
pub mod json;
pub mod limit_headers;
pub mod models;
pub mod outbox;
pub mod paths;
pub mod sse;
pub mod stream;
pub mod tokenizer;
pub mod turns;
