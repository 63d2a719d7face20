#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod answering;
mod counting;
mod observing;
mod overrunning;
mod refusing;
mod reserving;
mod rewriting;
mod waiting;

use std::cell::Cell;

use serde_json::json;
use tokengate_api::{Outcome, ReservationId, ReserveRequest, ReserveResponse, SettleItem};

use super::charge::Ending;
use super::*;
use crate::callers::Standing;
use crate::config::{self, FailureMode};
use crate::dialect::refusal::LocalReply;
use crate::models::Models;

/// One stream with everything around it that a proxy would be.
struct Proxy {
    stream: Stream,
    config: Config,
    models: Models,
    standing: Standing,
    now: Cell<u64>,
    body: Vec<u8>,
    effects: Vec<Effect>,
}

const BODY: &str = r#"{"model":"gpt-4o","messages":[{"role":"user","content":"hi"}]}"#;
const ANSWER: &[u8] =
    br#"{"choices":[{"message":{"content":"ok"}}],"usage":{"prompt_tokens":8,"completion_tokens":1}}"#;

impl Proxy {
    fn new() -> Self {
        let models = json!({"policy_version": "v1", "models": [
            {"name": "gpt-4o", "match": ["gpt-4o"], "max_output_tokens": 100, "default_output_tokens": 20}]});
        Self {
            stream: Stream::default(),
            config: Config::default(),
            models: Models::new(serde_json::from_value(models).unwrap()),
            standing: Standing::Known,
            now: Cell::new(1_000),
            body: Vec::new(),
            effects: Vec::new(),
        }
    }

    fn failure_mode(mut self, mode: FailureMode) -> Self {
        self.config.failure_mode = mode;
        self
    }

    fn observing(mut self) -> Self {
        self.config.mode = Mode::Observe;
        self
    }

    fn step(&mut self, event: Event<'_>) -> &mut Self {
        let env = Env {
            config: &self.config,
            models: &self.models,
            now_ms: &|| self.now.get(),
            new_id: &|| Some(ReservationId::from_bytes([7; 16])),
            property: &|path| (path == ["source", "address"]).then(|| b"192.0.2.7:1234".to_vec()),
            standing: &|_| self.standing,
        };
        let (stream, effects) = std::mem::take(&mut self.stream).step(&env, event);
        self.stream = stream;
        self.effects.extend(effects);
        self
    }

    fn headers(&mut self, extra: &[(&str, &str)]) -> &mut Self {
        let all = [
            (":method", "POST"),
            (":path", "/v1/chat/completions"),
            ("authorization", "Bearer key"),
            ("content-length", "62"),
        ];
        let replaced = |name: &str| extra.iter().any(|(other, _)| *other == name);
        let kept = all.iter().filter(|(name, _)| !replaced(name)).chain(extra);
        let pairs = kept.map(|(k, v)| (k.as_bytes().to_vec(), v.as_bytes().to_vec())).collect();
        self.step(Event::RequestHeaders { headers: &Headers::new(pairs), end_of_stream: false })
    }

    fn request(&mut self, body: &str) -> &mut Self {
        self.headers(&[]);
        self.arrives(body.as_bytes())
    }

    /// A whole body, after the headers.
    fn arrives(&mut self, body: &[u8]) -> &mut Self {
        self.body = body.to_vec();
        self.step(Event::RequestBody { length: body.len() });
        self.step(Event::RequestEnd { body })
    }

    /// The body so far is shown from where it is to be counted on.
    fn count_on(&mut self, size: usize) -> &mut Self {
        let body = std::mem::take(&mut self.body);
        if let Some(from) = self.stream.counts_from().filter(|from| *from < body.len()) {
            self.step(Event::RequestPiece { bytes: &body[from..(from + size).min(body.len())] });
        }
        self.body = body;
        self
    }

    fn answer(&mut self, answer: serde_json::Value) -> &mut Self {
        let answer: ReserveResponse = serde_json::from_value(answer).unwrap();
        self.step(Event::ReserveAnswer(answer))
    }

    fn allow(&mut self) -> &mut Self {
        self.answer(json!({"decision": "allow", "account": "acc", "policy_version": "v1", "limits": [
            {"name": "l", "scope": {}, "metric": "tokens", "limit": 1000, "remaining": 900, "reset_ms": 500,
             "window_ms": 60000}]}))
    }

    fn deny(&mut self) -> &mut Self {
        self.answer(json!({"decision": "deny", "reason": "tpm_limit_exceeded", "policy_version": "v1"}))
    }

    fn head(&mut self, status: u16, from_provider: bool) -> &mut Self {
        let rate_limit_headers = vec!["x-ratelimit-limit-tokens".to_owned()];
        self.step(Event::ResponseHead(ResponseHead {
            status,
            from_provider,
            coding: Coding::Identity,
            rate_limit_headers,
        }))
    }

    fn response_end(&mut self) -> &mut Self {
        self.step(Event::ResponseEnd(Ending { reached_provider: true }))
    }

    fn end(&mut self, reached_provider: bool) -> &mut Self {
        self.step(Event::End(Ending { reached_provider }))
    }

    fn reserves(&self) -> Vec<(ReserveRequest, u32)> {
        let reserve = |effect: &Effect| match effect {
            Effect::Reserve { request, timeout_ms } => Some(((**request).clone(), *timeout_ms)),
            _ => None,
        };
        self.effects.iter().filter_map(reserve).collect()
    }

    fn settles(&self) -> Vec<SettleItem> {
        let settle = |effect: &Effect| match effect {
            Effect::Settle { item, .. } => Some((**item).clone()),
            _ => None,
        };
        self.effects.iter().filter_map(settle).collect()
    }

    fn replies(&self) -> Vec<&LocalReply> {
        let reply = |effect: &'_ Effect| matches!(effect, Effect::Reply(_));
        self.effects
            .iter()
            .filter(|e| reply(e))
            .map(|e| if let Effect::Reply(r) = e { r } else { unreachable!() })
            .collect()
    }

    fn measured(&self, measure: &Measure) -> bool {
        self.effects.iter().any(|effect| matches!(effect, Effect::Measure(one) if one == measure))
    }

    fn resumed(&self) -> bool {
        self.effects.contains(&Effect::Resume)
    }

    fn refused_with(&self) -> (u16, &str) {
        let [reply] = self.replies()[..] else { panic!("{} replies", self.replies().len()) };
        (reply.status, reply.details.as_str())
    }
}

/// The body of our own answer.
fn json_of(reply: &LocalReply) -> serde_json::Value {
    serde_json::from_slice(&reply.body).unwrap()
}

/// Any order of events, however odd: at most one reply, one settle for each reserve that was not answered
/// deny or gone, and never a resume after a refusal.
#[test]
fn any_order_of_events_settles_once() {
    use proptest::prelude::*;
    proptest!(|(order in proptest::collection::vec(0usize..20, 0..16), open: bool, listed: bool)| {
        let mut proxy = Proxy::new().failure_mode(if open { FailureMode::Open } else { FailureMode::Closed });
        proxy.config.overrun = config::Overrun::Stop;
        proxy.body = BODY.as_bytes().to_vec();
        let models = proxy.models.clone();
        if !listed {
            proxy.models = Models::default();
        }
        let mut must_settle = false;
        for event in &order {
            let was_reserving = matches!(proxy.stream, Stream::Reserving(_) | Stream::Abandoned(_));
            match event {
                0 => proxy.headers(&[]),
                1 => proxy.step(Event::RequestBody { length: 10 }),
                2 => proxy.step(Event::RequestEnd { body: BODY.as_bytes() }),
                3 => proxy.allow(),
                4 => { must_settle &= !was_reserving; proxy.deny() }
                5 => proxy.step(Event::ReserveFailed(Failure::Connection)),
                6 => proxy.step(Event::ReserveFailed(Failure::Unusable)),
                7 => proxy.head(200, true),
                8 => proxy.head(503, false),
                9 => proxy.step(Event::ResponseBody { chunk: ANSWER, is_last: true }),
                10 => proxy.count_on(10),
                11 => proxy.step(Event::RequestPiece { bytes: b"" }),
                12 => proxy.step(Event::Extended { status: tokengate_api::ExtendStatus::Deny, held: None }),
                13 => proxy.step(Event::Cut),
                14 => proxy.response_end(),
                15 => proxy.headers(&[("content-length", "100000")]),
                16 => proxy.step(Event::Identified(Standing::Known)),
                17 => proxy.step(if open { Event::IdentifyFailed } else { Event::Identified(Standing::Unknown) }),
                18 => {
                    proxy.models = models.clone();
                    proxy.step(if open { Event::ModelsKnown } else { Event::ModelsFailed })
                }
                _ => proxy.step(Event::RewriteFailed),
            };
            must_settle |= matches!(proxy.stream, Stream::Reserving(_));
        }
        proxy.end(true);
        // Of a reserve that is under way, an answer comes in any case.
        let was_reserving = matches!(proxy.stream, Stream::Abandoned(_));
        proxy.step(Event::ReserveFailed(Failure::Deadline));
        prop_assert!(!was_reserving || matches!(proxy.stream, Stream::Refused));
        prop_assert!(proxy.replies().len() <= 1);
        prop_assert_eq!(proxy.settles().len(), usize::from(must_settle));
    });
}
