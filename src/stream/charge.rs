//! What a request is charged, by how it ended: one row of the published table each.

use tokengate_api::{Outcome, Usage};

use super::relay::{Reading, Relay};
use crate::config::MissingUsage;

/// How a request that was let go on ended, as far as the proxy tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    /// Something may have reached a provider.
    pub reached_provider: bool,
}

/// What is known of the request when it ends.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub prompt_tokens: u64,
    /// What is held beyond the prompt.
    pub held_output: u64,
    /// What the request, as it goes on, lets the provider write, for all choices.
    pub output_bound: Option<u64>,
    pub stream: bool,
    pub reasoning: bool,
    /// The service knows of a hold. Without one, `held` would say nothing.
    pub has_hold: bool,
    /// Tokens are not metered on this endpoint.
    pub is_listed: bool,
}

/// What the provider answered, if it did.
pub struct Response<'a> {
    pub status: u16,
    pub relay: &'a Relay,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    pub outcome: Outcome,
    pub sent: bool,
    pub usage: Option<Usage>,
}

pub fn charge(
    policy: MissingUsage,
    ending: Ending,
    request: Request,
    response: Option<Response<'_>>,
) -> Charge {
    let Some(response) = response else {
        return match ending.reached_provider {
            _ if request.is_listed => released(ending.reached_provider),
            true => request.missing(policy, 0),
            false => released(false),
        };
    };
    // A redirect is no output either.
    if response.status >= 300 || request.is_listed {
        return released(true);
    }
    let (relay, answer) = (response.relay, response.relay.answer());
    let delivered = request.bounded(answer.delivered_tokens());
    if let Some(usage) = answer.usage() {
        return request.reported(usage, answer.reports_sum_only(), relay.is_whole(), delivered);
    }
    match relay.reading() {
        Reading::Unreadable => request.held(delivered),
        _ if answer.only_failed() => released(true),
        _ if answer.has_uncounted() => request.held(delivered),
        Reading::Json { complete: true } => request.estimate(delivered),
        Reading::Events | Reading::Json { complete: false } => request.missing(policy, delivered),
        Reading::Empty => request.missing(policy, 0),
    }
}

impl Request {
    /// No more than the request itself allows is charged by our count: some servers repeat what they sent before.
    pub fn bounded(&self, delivered: u64) -> u64 {
        delivered.min(self.output_bound.unwrap_or(u64::MAX))
    }

    /// What the provider reported, with what a report cannot know or leaves out: the text of a stream that did not
    /// end by itself, or a half of it that is missing.
    fn reported(&self, usage: Usage, is_sum_only: bool, is_whole: bool, delivered: u64) -> Charge {
        let prompt = usage.input.saturating_add(usage.cache_read).saturating_add(usage.cache_write);
        let output = usage.output.saturating_add(usage.reasoning);
        let has_no_prompt = prompt == 0 && !is_sum_only;
        let has_no_output = output == 0 && !is_sum_only;
        let more_input = if has_no_prompt { self.prompt_tokens } else { 0 };
        let more_output = if has_no_output || !is_whole { delivered.saturating_sub(output) } else { 0 };
        let outcome = if more_input == 0 && more_output == 0 { Outcome::Used } else { Outcome::Estimated };
        let usage = Usage {
            input: usage.input.saturating_add(more_input),
            output: usage.output.saturating_add(more_output),
            ..usage
        };
        Charge { outcome, sent: true, usage: Some(usage) }
    }

    fn estimate(&self, output: u64) -> Charge {
        let usage = Usage { input: self.prompt_tokens, output, ..Usage::default() };
        Charge { outcome: Outcome::Estimated, sent: true, usage: Some(usage) }
    }

    /// What was held, or what was delivered where that is more.
    fn held(&self, delivered: u64) -> Charge {
        match self.has_hold && delivered <= self.held_output {
            true => Charge { outcome: Outcome::Held, sent: true, usage: None },
            false => self.estimate(delivered.max(self.held_output)),
        }
    }

    fn missing(&self, policy: MissingUsage, delivered: u64) -> Charge {
        match policy {
            MissingUsage::Estimate => self.estimate(delivered),
            MissingUsage::Auto if self.stream && !self.reasoning => self.estimate(delivered),
            MissingUsage::Auto | MissingUsage::Hold => self.held(delivered),
        }
    }
}

fn released(sent: bool) -> Charge {
    Charge { outcome: Outcome::Released, sent, usage: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headers::Coding;
    use crate::tokenizer::Encoding;

    const REQUEST: Request = Request {
        prompt_tokens: 10,
        held_output: 100,
        output_bound: Some(100),
        stream: true,
        reasoning: false,
        has_hold: true,
        is_listed: false,
    };
    const TEXT: &[u8] = b"data: {\"choices\":[{\"delta\":{\"content\":\"hello world\"}}]}\n\n";
    const ERROR: &[u8] = b"data: {\"error\":{\"message\":\"x\"}}\n\n";

    fn relay(chunks: &[&[u8]], is_coded: bool) -> Relay {
        let coding = if is_coded { Coding::Other } else { Coding::Identity };
        let mut relay = Relay::new(Encoding::O200kBase, false, coding);
        for chunk in chunks {
            relay.chunk(chunk, false);
        }
        relay.finish();
        relay
    }

    fn row(policy: MissingUsage, request: Request, status: u16, relay: &Relay) -> (Outcome, bool, u64) {
        let ending = Ending { reached_provider: true };
        let charge = charge(policy, ending, request, Some(Response { status, relay }));
        (charge.outcome, charge.sent, charge.usage.map_or(0, |usage| usage.total()))
    }

    #[test]
    fn rows_of_the_table() {
        let auto = MissingUsage::Auto;
        let usage = b"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2}}\n\n";
        let whole = Request { stream: false, ..REQUEST };
        let reasoning = Request { reasoning: true, ..REQUEST };
        for (request, status, relay, expected) in [
            (REQUEST, 200, relay(&[TEXT, usage], false), (Outcome::Used, true, 11)),
            (REQUEST, 500, relay(&[b"{\"error\":{}}"], false), (Outcome::Released, true, 0)),
            (REQUEST, 429, relay(&[], false), (Outcome::Released, true, 0)),
            (REQUEST, 200, relay(&[TEXT], false), (Outcome::Estimated, true, 12)),
            (REQUEST, 200, relay(&[TEXT, ERROR], false), (Outcome::Estimated, true, 12)),
            (REQUEST, 200, relay(&[ERROR], false), (Outcome::Released, true, 0)),
            (reasoning, 200, relay(&[TEXT], false), (Outcome::Held, true, 0)),
            (REQUEST, 200, relay(&[], false), (Outcome::Estimated, true, 10)),
            (whole, 200, relay(&[], false), (Outcome::Held, true, 0)),
            (whole, 200, relay(&[b"{\"choices\":"], false), (Outcome::Held, true, 0)),
            (
                whole,
                200,
                relay(&[b"{\"choices\":[{\"message\":{\"content\":\"hello world\"}}]}"], false),
                (Outcome::Estimated, true, 12),
            ),
            (REQUEST, 200, relay(&[b"\x1f\x8b"], true), (Outcome::Held, true, 0)),
            (
                Request { is_listed: true, ..REQUEST },
                200,
                relay(&[b"{}"], false),
                (Outcome::Released, true, 0),
            ),
        ] {
            assert_eq!(row(auto, request, status, &relay), expected, "{request:?} {status}");
        }
    }

    const USAGE: &[u8] =
        b"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2}}\n\n";
    const DONE: &[u8] = b"data: [DONE]\n\n";

    #[test]
    fn an_error_is_free_only_where_nothing_was_delivered() {
        let auto = MissingUsage::Auto;
        let whole = Request { stream: false, ..REQUEST };
        let empties =
            b"data: {\"error\":\"\",\"choices\":[{\"delta\":{\"content\":\" word\"}}]}\n\n".repeat(40);
        let released = (Outcome::Released, true, 0);
        let failed = b"{\"choices\":null,\"error_type\":\"overloaded\"}";
        for (request, relay, expected) in [
            (REQUEST, relay(&[&empties, DONE], false), (Outcome::Estimated, true, 50)),
            (REQUEST, relay(&[ERROR, TEXT, DONE], false), (Outcome::Estimated, true, 12)),
            (REQUEST, relay(&[TEXT, ERROR], false), (Outcome::Estimated, true, 12)),
            (REQUEST, relay(&[ERROR, USAGE, DONE], false), (Outcome::Used, true, 11)),
            (REQUEST, relay(&[ERROR, DONE], false), released),
            (REQUEST, relay(&[b"event: error\ndata: {\"message\":\"x\"}\n\n"], false), released),
            (whole, relay(&[b"{\"error\":{\"message\":\"x\"}}"], false), released),
            (whole, relay(&[b"{\"error\":{\"message\":\"x"], false), released),
            (whole, relay(&[failed], false), released),
            (REQUEST, relay(&[failed], false), released),
            (REQUEST, relay(&[b"{\"choices\":[{\"error\":{\"code\":5}}]}"], false), released),
            (whole, relay(&[b"{\"error\":{}}"], false), (Outcome::Estimated, true, 10)),
            (
                whole,
                relay(
                    &[b"{\"error\":\"x\",\"choices\":[{\"message\":{\"content\":\"hello world\"}}]}"],
                    false,
                ),
                (Outcome::Estimated, true, 12),
            ),
        ] {
            assert_eq!(row(auto, request, 200, &relay), expected, "{request:?}");
        }
    }

    #[test]
    fn an_answer_that_is_no_text_costs_the_hold() {
        let nothing = relay(&[b"\x28\xb5\x2f\xfd\x24\x05\x29\x00"], false);
        for policy in [MissingUsage::Auto, MissingUsage::Estimate] {
            assert_eq!(row(policy, REQUEST, 200, &nothing), (Outcome::Held, true, 0));
        }
        let open = Request { has_hold: false, ..REQUEST };
        assert_eq!(row(MissingUsage::Auto, open, 200, &nothing), (Outcome::Estimated, true, 110));
    }

    #[test]
    fn output_that_cannot_be_counted_costs_the_hold_at_least() {
        let audio = b"data: {\"choices\":[{\"delta\":{\"audio\":{\"data\":\"QUJD\"}}}]}\n\n";
        for policy in [MissingUsage::Auto, MissingUsage::Estimate] {
            assert_eq!(row(policy, REQUEST, 200, &relay(&[TEXT, audio], false)), (Outcome::Held, true, 0));
        }
        let unbounded = Request { output_bound: None, held_output: 1, ..REQUEST };
        let both = relay(&[TEXT, audio], false);
        assert_eq!(row(MissingUsage::Auto, unbounded, 200, &both), (Outcome::Estimated, true, 12));
    }

    #[test]
    fn what_was_delivered_beyond_the_hold_is_charged() {
        let reasoning = Request { reasoning: true, output_bound: None, held_output: 1, ..REQUEST };
        let text = relay(&[TEXT, DONE], false);
        assert_eq!(row(MissingUsage::Auto, reasoning, 200, &text), (Outcome::Estimated, true, 12));
        let more = Request { held_output: 2, ..reasoning };
        assert_eq!(row(MissingUsage::Auto, more, 200, &text), (Outcome::Held, true, 0));
    }

    /// Some servers repeat all text so far in each event.
    #[test]
    fn an_estimate_is_bounded_by_what_the_request_allows() {
        let text = relay(&[&TEXT.repeat(100), DONE], false);
        assert_eq!(row(MissingUsage::Auto, REQUEST, 200, &text), (Outcome::Estimated, true, 110));
        let unbounded = Request { output_bound: None, ..REQUEST };
        assert!(row(MissingUsage::Auto, unbounded, 200, &text).2 >= 200);
    }

    #[test]
    fn of_a_stream_that_did_not_end_the_larger_counts() {
        let auto = MissingUsage::Auto;
        let text = TEXT.repeat(20);
        let delivered = Encoding::O200kBase.count(&"hello world".repeat(20));
        for (chunks, expected) in [
            (vec![USAGE, &text], (Outcome::Estimated, true, 9 + delivered)),
            (vec![&text, USAGE], (Outcome::Estimated, true, 9 + delivered)),
            (vec![&text, USAGE, DONE], (Outcome::Used, true, 11)),
            (vec![TEXT, USAGE], (Outcome::Used, true, 11)),
            (vec![USAGE], (Outcome::Used, true, 11)),
        ] {
            assert_eq!(row(auto, REQUEST, 200, &relay(&chunks, false)), expected);
        }
        // Ended by itself, without the mark that others send.
        for (chunks, expected) in [
            (vec![USAGE, &text], (Outcome::Estimated, true, 9 + delivered)),
            (vec![&text, USAGE], (Outcome::Used, true, 11)),
        ] {
            let mut relay = relay(&chunks, false);
            relay.chunk(b"", true);
            assert_eq!(row(auto, REQUEST, 200, &relay), expected);
        }
    }

    #[test]
    fn a_half_that_is_not_reported_is_counted() {
        let report = |usage: &str| format!("data: {{\"choices\":[],\"usage\":{usage}}}\n\n").into_bytes();
        for (usage, expected) in [
            (r#"{"prompt_tokens":9}"#, (Outcome::Estimated, true, 11)),
            (r#"{"prompt_tokens":9,"completion_tokens":0}"#, (Outcome::Estimated, true, 11)),
            (r#"{"completion_tokens":5}"#, (Outcome::Estimated, true, 15)),
            (r#"{"prompt_tokens":9,"completion_tokens":1}"#, (Outcome::Used, true, 10)),
            (r#"{"total_tokens":30}"#, (Outcome::Used, true, 30)),
        ] {
            let relay = relay(&[TEXT, &report(usage), DONE], false);
            assert_eq!(row(MissingUsage::Auto, REQUEST, 200, &relay), expected, "{usage}");
        }
    }

    #[test]
    fn the_setting_for_missing_usage() {
        let stream = relay(&[TEXT], false);
        assert_eq!(row(MissingUsage::Hold, REQUEST, 200, &stream), (Outcome::Held, true, 0));
        let reasoning = Request { reasoning: true, ..REQUEST };
        assert_eq!(row(MissingUsage::Estimate, reasoning, 200, &stream), (Outcome::Estimated, true, 12));
        let open = Request { has_hold: false, ..REQUEST };
        assert_eq!(row(MissingUsage::Hold, open, 200, &stream), (Outcome::Estimated, true, 110));
    }

    #[test]
    fn without_an_answer() {
        let ended = |reached_provider, request| {
            let charge = charge(MissingUsage::Auto, Ending { reached_provider }, request, None);
            (charge.outcome, charge.sent, charge.usage.map_or(0, |usage| usage.total()))
        };
        assert_eq!(ended(false, REQUEST), (Outcome::Released, false, 0));
        assert_eq!(ended(true, REQUEST), (Outcome::Estimated, true, 10));
        assert_eq!(ended(true, Request { stream: false, ..REQUEST }), (Outcome::Held, true, 0));
        let listed = Request { is_listed: true, ..REQUEST };
        assert_eq!(ended(true, listed), (Outcome::Released, true, 0));
        assert_eq!(ended(false, listed), (Outcome::Released, false, 0));
    }
}
