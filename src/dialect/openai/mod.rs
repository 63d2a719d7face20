//! OpenAI's chat completions.

mod answer;
mod choice;
mod count;
mod part;
mod prompt;
mod request;
mod transcript;
mod usage;

pub use answer::{Answer, UsageChunk};
pub use prompt::Prompt;
pub use request::{ChatRequest, OutputLimits, missing_output_limit, parse};
