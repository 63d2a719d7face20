//! OpenAI's chat completions.

mod answer;
mod count;
mod part;
mod prompt;
mod request;
mod transcript;

pub use answer::Answer;
pub use prompt::Prompt;
pub use request::{ChatRequest, OutputLimits, missing_output_limit, parse};
