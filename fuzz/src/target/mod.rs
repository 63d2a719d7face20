//! What is fuzzed. A target panics when one of its invariants is broken.

mod answer;
mod chunks;
mod config;
mod events;
mod prompt;
mod request;
mod script;
mod sse;
mod stream;
mod tokens;

/// Reads an input and checks what must hold. What it gives back stands for how the input was taken: an input
/// with a new one is worth changing further.
pub type Run = fn(&[u8]) -> u64;

pub const TARGETS: [(&str, Run); 7] = [
    ("request", request::run),
    ("prompt", prompt::run),
    ("sse", sse::run),
    ("answer", answer::run),
    ("config", config::run),
    ("stream", stream::run),
    ("tokens", tokens::run),
];

/// What stands for a value, by its debug form.
fn signature(value: impl std::fmt::Debug) -> u64 {
    crate::rng::hash(format!("{value:?}").as_bytes())
}

/// A number's size, roughly: signatures must not tell every number from every other.
fn magnitude(number: u64) -> u32 {
    u64::BITS - number.leading_zeros()
}
