//! OpenAI's chat completions.

mod alternatives;
mod answer;
mod choice;
mod count;
mod limits;
mod loose;
mod names;
mod part;
mod prompt;
mod request;
mod transcript;
mod usage;

pub use alternatives::no_such_alternative;
pub use answer::{Answer, UsageChunk};
pub use limits::{OutputLimits, missing_output_limit};
pub use names::{in_query, in_wrong_place};
pub use prompt::Prompt;
pub use request::{ChatRequest, ambiguous, parse};
