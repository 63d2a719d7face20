//! The wire formats of the APIs we meter: read a request, find the usage of an answer, write an error.

pub mod openai;
pub mod refusal;

/// A request that cannot be read for certain. Forwarding it would be a way around the limits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct BadRequest {
    /// The member at fault.
    pub param: Option<&'static str>,
    pub message: String,
}
