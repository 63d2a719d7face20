//! OpenAI's chat completions.

mod answer;
mod request;
mod transcript;

pub use answer::Answer;
pub use request::{ChatRequest, OutputLimits, parse};
