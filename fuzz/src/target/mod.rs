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

/// Reads an input and checks what must hold. What it gives back stands for how the input was taken: an input
/// with a new one is worth changing further.
pub type Run = fn(&[u8]) -> u64;

pub const TARGETS: [(&str, Run); 6] = [
    ("request", request::run),
    ("prompt", prompt::run),
    ("sse", sse::run),
    ("answer", answer::run),
    ("config", config::run),
    ("stream", stream::run),
];

/// What stands for a value, by its debug form.
fn signature(value: impl std::fmt::Debug) -> u64 {
    crate::rng::hash(format!("{value:?}").as_bytes())
}

/// A number's size, roughly: signatures must not tell every number from every other.
fn magnitude(number: u64) -> u32 {
    u64::BITS - number.leading_zeros()
}

/// Whether two counts of the same text agree. A long text without a break is counted in parts, and where it is
/// cut depends on how it came.
fn agree(a: u64, b: u64, length: usize) -> bool {
    const COUNTED_WHOLE: usize = 16 * 1024;
    a == b || (length > COUNTED_WHOLE && a.abs_diff(b) <= 8 + a / 100)
}
