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
    /// What was held beyond the prompt.
    pub held_output: u64,
    /// What the request itself lets the provider write, for all choices.
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
    let released = |sent| Charge { outcome: Outcome::Released, sent, usage: None };
    let estimate = |output| Charge {
        outcome: Outcome::Estimated,
        sent: true,
        usage: Some(Usage { input: request.prompt_tokens, output, ..Usage::default() }),
    };
    let held = || match request.has_hold {
        true => Charge { outcome: Outcome::Held, sent: true, usage: None },
        false => estimate(request.held_output),
    };
    let missing = |output| match policy {
        MissingUsage::Estimate => estimate(output),
        MissingUsage::Auto if request.stream && !request.reasoning => estimate(output),
        MissingUsage::Auto | MissingUsage::Hold => held(),
    };
    let Some(response) = response else {
        return match ending.reached_provider {
            _ if request.is_listed => released(ending.reached_provider),
            true => missing(0),
            false => released(false),
        };
    };
    // A redirect is no output either.
    if response.status >= 300 || request.is_listed {
        return released(true);
    }
    let answer = response.relay.answer();
    if let Some(usage) = answer.usage() {
        return Charge { outcome: Outcome::Used, sent: true, usage: Some(usage) };
    }
    match response.relay.reading() {
        Reading::Events if answer.failed_at_once() => released(true),
        Reading::Json { complete: true } => estimate(answer.delivered_tokens()),
        Reading::Events | Reading::Json { complete: false } => missing(answer.delivered_tokens()),
        Reading::Unreadable => held(),
        Reading::Empty => missing(0),
    }
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
