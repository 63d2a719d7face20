//! What a stream tells operators: numbers for metrics and texts for the access log. Every label is of a
//! fixed list or names a model of the policy; nothing a client or provider wrote is repeated.

use std::borrow::Cow;

use tokengate_api::Usage;

use super::Failure;

/// Stands for the model where there is none, or none that is known yet.
pub const NO_MODEL: &str = "none";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Measure {
    /// `admitted`, `open`, `observed`, or the code of a refusal.
    Decision { decision: Cow<'static, str>, model: String },
    /// A body was refused for this member, or `body` for what it is as a whole.
    BodyRefused { member: &'static str },
    /// A reserve without a usable answer.
    ReserveFailed(Failure),
    /// Decided without the store: by us for lack of an answer, or by the service.
    Degraded { by: &'static str },
    /// A prompt was counted by another tokenizer than its model's.
    FallbackCount,
    /// Tokens held for an admitted request, as they were counted.
    Held { model: String, prompt: u64, output: u64 },
    /// Nothing bounds the output: neither client nor policy gave a limit that was written into the request.
    UnboundedOutput { model: String },
    /// A stream was ended where its hold was used up and more was refused.
    Stopped { model: String },
    /// The provider answered with success and without usage.
    UsageMissing { model: String },
    /// The provider's tokens are far from what was counted, or above the output limit.
    UsageMismatch { model: String },
    /// The answer names another model than the one that is charged.
    OtherModel { model: String },
    /// What a request was settled with: `used`, `estimated`, `held` or `released`.
    Settled { model: String, outcome: &'static str, usage: Usage },
}

/// Names of the access log's fields; with `tokengate_` before them they are names of Envoy's filter state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogField {
    Decision,
    /// The policy's name of the model, never the client's.
    Model,
    ReservationId,
    /// The quota service's tag of the tenant.
    Account,
    /// As charged: the provider's number where it is known, else ours.
    PromptTokens,
    OutputTokens,
    CachedTokens,
    /// How the request was settled.
    Outcome,
}

impl LogField {
    pub fn name(self) -> &'static str {
        match self {
            Self::Decision => "tokengate_decision",
            Self::Model => "tokengate_model",
            Self::ReservationId => "tokengate_id",
            Self::Account => "tokengate_account",
            Self::PromptTokens => "tokengate_prompt_tokens",
            Self::OutputTokens => "tokengate_output_tokens",
            Self::CachedTokens => "tokengate_cached_tokens",
            Self::Outcome => "tokengate_outcome",
        }
    }
}

/// Whether a text of the service's is what it should be, and cannot break a line of a log.
pub fn is_tag(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Images and tools are estimates, and a provider adds its own framing.
pub const PROMPT_SLACK: u64 = 256;
/// Calls of tools have some framing; texts have none.
pub const OUTPUT_SLACK: u64 = 32;

/// Whether two numbers of tokens cannot be two ways of counting the same text.
pub fn far_apart(counted: u64, reported: u64, slack: u64) -> bool {
    far_above(counted, reported, slack) || far_above(reported, counted, slack)
}

pub fn far_above(high: u64, low: u64, slack: u64) -> bool {
    high > low.saturating_mul(2).saturating_add(slack)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_short_and_plain() {
        assert!(is_tag("03a1206e8171b81b") && is_tag("account-1"));
        for bad in ["", "a b", "a\nb", "a\"b", "é", &"x".repeat(65)] {
            assert!(!is_tag(bad), "{bad:?}");
        }
    }

    #[test]
    fn twice_as_many_is_far_beyond_a_small_difference() {
        for (counted, reported, far) in
            [(0, 0, false), (0, 256, false), (0, 257, true), (1_000, 2_256, false), (1_000, 2_257, true)]
        {
            assert_eq!(far_apart(counted, reported, PROMPT_SLACK), far, "{counted} {reported}");
            assert_eq!(far_apart(reported, counted, PROMPT_SLACK), far, "{reported} {counted}");
        }
        assert!(!far_apart(u64::MAX, u64::MAX, 0) && far_apart(0, u64::MAX, 0));
    }
}
