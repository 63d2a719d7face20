//! One request's life under any order of events: at most one reply, one settle for every reserve that was not
//! answered `deny` or `gone`, and nothing goes on that was refused.

use std::cell::Cell;

use serde_json::json;
use tokengate::callers::Standing;
use tokengate::config::{Config, Mode};
use tokengate::dialect::openai;
use tokengate::gzip;

use tokengate::headers::{Coding, Headers};
use tokengate::models::Models;
use tokengate::stream::charge::Ending;
use tokengate::stream::report::{Measure, NO_MODEL};
use tokengate::stream::{Effect, Env, Event, Failure, Packing, ResponseHead, Rewrite, Stream};
use tokengate_api::{Decision, Outcome, ReservationId, ReserveResponse};

use super::script::{self, Line};
use super::signature;

pub fn run(input: &[u8]) -> u64 {
    let mut proxy = Proxy::new();
    for line in script::parse(input) {
        proxy.play(line);
    }
    proxy.step(Event::End(Ending { reached_provider: true }));
    if matches!(proxy.stream, Stream::Abandoned(_)) {
        // The host waits for the answer as long as for any.
        proxy.step(Event::ReserveFailed(Failure::Deadline));
    }
    assert_eq!(proxy.settles, usize::from(proxy.must_settle), "settles: {:?}", proxy.log);
    signature(&proxy.log)
}

/// The host: carries effects out and remembers what must not come twice.
struct Proxy {
    stream: Stream,
    config: Config,
    models: Models,
    now: Cell<u64>,
    has_ids: bool,
    standing: Standing,
    rewrites_fail: bool,
    fields: Vec<(Vec<u8>, Vec<u8>)>,
    body: Vec<u8>,
    began: bool,
    must_settle: bool,
    settles: usize,
    replies: usize,
    resumes: usize,
    decisions: usize,
    most_decisions: usize,
    is_stopping: bool,
    /// What was done, in short; what stands for this run.
    log: Vec<String>,
}

impl Proxy {
    fn new() -> Self {
        let models = json!({"policy_version": "v1", "models": [
            {"name": "gpt-4o", "match": ["gpt-4o", "house*"], "max_output_tokens": 100, "default_output_tokens": 20},
            {"name": "o3", "match": ["o3"], "reasoning": true, "output_limit": {"missing": "write_default"}},
            {"name": "strict", "match": ["strict"], "output_limit": {"missing": "refuse"}}],
            "asserted_headers": ["x-end-user"]});
        Self {
            stream: Stream::default(),
            config: Config::default(),
            models: Models::new(serde_json::from_value(models).expect("a model list")),
            now: Cell::new(1_000),
            has_ids: true,
            standing: Standing::Unasked,
            rewrites_fail: false,
            fields: Vec::new(),
            body: Vec::new(),
            began: false,
            must_settle: false,
            settles: 0,
            replies: 0,
            resumes: 0,
            decisions: 0,
            most_decisions: 1,
            is_stopping: false,
            log: Vec::new(),
        }
    }

    fn play(&mut self, line: Line) {
        match line {
            Line::Config(json) if !self.began => {
                if let Ok(config) = Config::parse(&json) {
                    self.config = config;
                }
            }
            Line::Config(_) => {}
            Line::Field(name, value) => self.fields.push((name, value)),
            Line::Headers { end_of_stream } => {
                let headers = Headers::new(std::mem::take(&mut self.fields));
                self.began = true;
                self.step(Event::RequestHeaders { headers: &headers, end_of_stream });
            }
            Line::Held(length) => self.step(Event::RequestBody { length }),
            Line::Piece(size, body) => {
                if let Some(from) = self.stream.counts_from() {
                    let end = from.saturating_add(size).min(body.len());
                    self.step(Event::RequestPiece { bytes: body.get(from..end).unwrap_or(&[]) });
                }
            }
            Line::End { body, packed } => {
                let body = if packed { gzip::deflate(&body).expect("it packs") } else { body };
                // The host shows the body only to who waits for it.
                if self.stream.wants_body() {
                    self.body.clone_from(&body);
                }
                self.step(Event::RequestEnd { body: &body });
            }
            Line::Withheld => self.step(Event::BodyWithheld),
            Line::Answer(json) => {
                let Ok(answer) = serde_json::from_slice::<ReserveResponse>(&json) else { return };
                // The service grants something or denies.
                if answer.grant.max_output_tokens == Some(0) {
                    return;
                }
                let is_abandoned = matches!(self.stream, Stream::Abandoned(_));
                if is_abandoned || matches!(self.stream, Stream::Reserving(_)) {
                    let is_final = match answer.decision {
                        Decision::Allow => false,
                        Decision::Deny => is_abandoned || self.config.mode == Mode::Enforce,
                        Decision::Gone => true,
                    };
                    self.must_settle &= !is_final;
                }
                self.step(Event::ReserveAnswer(answer));
            }
            Line::Failed("connection") => self.step(Event::ReserveFailed(Failure::Connection)),
            Line::Failed("deadline") => self.step(Event::ReserveFailed(Failure::Deadline)),
            Line::Failed(_) => self.step(Event::ReserveFailed(Failure::Unusable)),
            Line::RewritesFail => self.rewrites_fail = true,
            Line::RewriteFailed => {
                self.most_decisions += 1;
                self.step(Event::RewriteFailed);
            }
            Line::NoId => self.has_ids = false,
            Line::Standing(standing) => self.standing = standing,
            Line::Identified(standing) => self.step(Event::Identified(standing)),
            Line::IdentifyFailed => self.step(Event::IdentifyFailed),
            Line::Head { status, from_provider, coding } => {
                let coding = match coding {
                    "gzip" => Coding::Gzip,
                    "br" => Coding::Other,
                    _ => Coding::Identity,
                };
                let rate_limit_headers = vec!["x-ratelimit-limit-tokens".to_owned()];
                self.step(Event::ResponseHead(ResponseHead {
                    status,
                    from_provider,
                    coding,
                    rate_limit_headers,
                }));
            }
            Line::Chunk { bytes, is_last } => self.step(Event::ResponseBody { chunk: &bytes, is_last }),
            Line::Extended(status, held) => self.step(Event::Extended { status, held }),
            Line::Cut => self.step(Event::Cut),
            Line::Wait(ms) => self.now.set(self.now.get() + ms),
            Line::Stop { reached_provider } => self.step(Event::End(Ending { reached_provider })),
        }
    }

    fn step(&mut self, event: Event<'_>) {
        let ends = matches!(event, Event::End(_));
        let held = self.stream.holds_request();
        let env = Env {
            config: &self.config,
            models: &self.models,
            now_ms: &|| self.now.get(),
            standing: &|_| self.standing,
            new_id: &|| self.has_ids.then(|| ReservationId::from_bytes([7; 16])),
            property: &|path| match path {
                ["source", "address"] => Some(b"192.0.2.7:1234".to_vec()),
                [.., "org"] => Some(b"acme".to_vec()),
                _ => None,
            },
        };
        let (stream, effects) = std::mem::take(&mut self.stream).step(&env, event);
        self.stream = stream;
        for effect in effects {
            if let Effect::RewriteBody(rewrite) = &effect
                && !self.rewritten(rewrite)
            {
                return self.step(Event::RewriteFailed);
            }
            self.carry_out(effect, held, ends);
        }
        assert!(self.settles == 0 || self.must_settle, "settled without a reserve: {:?}", self.log);
    }

    fn carry_out(&mut self, effect: Effect, held: bool, ends: bool) {
        let noted = match &effect {
            Effect::Reserve { request, timeout_ms } => {
                assert!(*timeout_ms <= self.config.quota.timeout_ms && (1..=128).contains(&request.choices));
                assert!(request.attempt <= 2 && !ends && self.replies == 0, "a late reserve: {:?}", self.log);
                self.must_settle = true;
                format!("reserve {}", request.attempt)
            }
            Effect::Resume => {
                self.resumes += 1;
                assert!(held && self.replies == 0 && self.resumes == 1, "it may not go on: {:?}", self.log);
                assert!(!self.stream.holds_request(), "resumed and held: {:?}", self.log);
                "resume".to_owned()
            }
            Effect::Reply(reply) => {
                self.replies += 1;
                assert!(self.replies == 1 && !ends, "a second or late reply: {:?}", self.log);
                assert!((400..=599).contains(&reply.status) && reply.details.starts_with("tokengate_"));
                assert!(serde_json::from_slice::<serde_json::Value>(&reply.body).is_ok(), "the reply's body");
                reply.headers.iter().for_each(|(name, value)| header(name, value));
                assert!(self.stream.holds_request(), "refused and let go: {:?}", self.log);
                reply.details.chars().take(48).collect()
            }
            Effect::Settle { item, .. } => {
                self.settles += 1;
                assert!(self.settles == 1, "settled twice: {:?}", self.log);
                assert!(item.sent || item.outcome == Outcome::Released, "charged although not sent");
                assert_eq!(item.usage.is_some(), matches!(item.outcome, Outcome::Used | Outcome::Estimated));
                assert!(item.account.is_some() || item.reserve.is_some(), "held, or to be booked, or both");
                format!("{:?} {}", item.outcome, item.sent)
            }
            Effect::SetRequestHeader(name, value) | Effect::SetResponseHeader(name, value) => {
                header(name, value);
                (*name).to_owned()
            }
            Effect::RemoveRequestHeader(_) | Effect::RemoveResponseHeader(_) => return,
            Effect::Measure(measure) => self.measured(measure),
            Effect::Log(field, text) => {
                let only_ours = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.:".contains(&b));
                assert!(only_ours && text.len() <= 64, "{} of a log: {text:?}", field.name());
                field.name().to_owned()
            }
            Effect::ReplaceResponseBody(bytes) => format!("replace {}", bytes.is_empty()),
            Effect::RewriteBody(rewrite) => format!("rewrite {:?}", rewrite.packing),
            Effect::Extend(item) => {
                assert!(item.hold_output_tokens > Some(0) && self.settles == 0 && !self.is_stopping);
                "extend".to_owned()
            }
            Effect::KeepLease { lease_ms, .. } => {
                assert!(self.settles == 0, "a lease of what is over");
                format!("lease {}", *lease_ms > 0)
            }
            Effect::CutSoon => {
                assert!(!std::mem::replace(&mut self.is_stopping, true), "stopped twice: {:?}", self.log);
                "stop".to_owned()
            }
            Effect::CutResponse => {
                // Or a body came where there must be none.
                let is_refused = matches!(self.stream, Stream::Refused);
                assert!(self.is_stopping || is_refused, "cut without a word: {:?}", self.log);
                "cut".to_owned()
            }
            Effect::RefreshModels => "refresh".to_owned(),
            Effect::AwaitModels => unreachable!("the list is there"),
            Effect::Identify { request, .. } => {
                assert!(request.key_hash.is_empty() != request.identity.is_none());
                "identify".to_owned()
            }
            Effect::LearnCaller { is_known, .. } => format!("learn {is_known}"),
        };
        self.log.push(noted);
    }

    fn measured(&mut self, measure: &Measure) -> String {
        let (noted, model) = match measure {
            Measure::Decision { decision, model } => {
                self.decisions += 1;
                // A rewrite that fails out of turn, which no host does, takes the decision back.
                assert!(self.decisions <= self.most_decisions, "decided twice: {:?}", self.log);
                (decision.clone().into_owned(), Some(model))
            }
            Measure::Held { model, .. } => ("held".to_owned(), Some(model)),
            Measure::UnboundedOutput { model } => ("unbounded".to_owned(), Some(model)),
            Measure::Stopped { model } => ("stopped".to_owned(), Some(model)),
            Measure::UsageMissing { model } => ("missing".to_owned(), Some(model)),
            Measure::UsageMismatch { model } => ("mismatch".to_owned(), Some(model)),
            Measure::OtherModel { model } => ("other".to_owned(), Some(model)),
            Measure::Settled { model, outcome, .. } => ((*outcome).to_owned(), Some(model)),
            Measure::FallbackCount => ("fallback".to_owned(), None),
            Measure::BodyRefused { member } => ((*member).to_owned(), None),
            Measure::ReserveFailed(failure) => (format!("{failure:?}"), None),
            Measure::Degraded { by } => ((*by).to_owned(), None),
        };
        let known = ["gpt-4o", "o3", "strict", "unlisted", NO_MODEL];
        assert!(
            model.is_none_or(|model| known.contains(&model.as_str())),
            "a label of a client's: {model:?}"
        );
        noted
    }

    /// What goes to the provider reads again, and needs no further change.
    fn rewritten(&self, rewrite: &Rewrite) -> bool {
        let plain = match rewrite.packing {
            Packing::Plain => self.body.clone(),
            Packing::Unpack | Packing::Repack => {
                gzip::inflate(&self.body, 1 << 26).expect("it was read before")
            }
        };
        let out = rewrite.edits.apply(&plain).expect("the edits are within the body");
        let again = openai::parse(&out).expect("an edited body is read again");
        assert_eq!(again.include_usage(), None, "usage is asked for");
        !self.rewrites_fail
    }
}

/// No line ends, no control characters: what Envoy would refuse, or worse, send.
fn header(name: &str, value: &str) {
    assert!(
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    );
    assert!(!value.bytes().any(|b| b.is_ascii_control()), "{name}: {value:?}");
}
