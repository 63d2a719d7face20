//! One request's life: `Received → Held → Counting → Reserving → Admitted`, or refused, or passed through.
//! Before `Held` it may wait for the model list or to know who calls. Events go in, effects come out; nothing here knows of a proxy.
//!
//! The rule that everything else serves: exactly one settle for every reserve that was not answered
//! `deny` or `gone`.

mod abandoned;
mod admitted;
pub mod charge;
mod event;
mod held;
mod hold;
mod inflating;
mod overrun;
mod passing;
pub mod relay;
pub mod report;
mod reserving;
mod sniff;
mod waiting;

pub use event::{Effect, Env, Event, Failure, Packing, ResponseHead, Rewrite};

use abandoned::Abandoned;
use admitted::Admitted;
pub use held::SLICE;
use held::{Counting, Held};
use inflating::Inflating;
use report::{LogField, Measure, NO_MODEL};
use reserving::Reserving;
use waiting::{AwaitingModels, Identifying};

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::callers::CallerId;
use crate::config::{Config, HoldAt, Mode};
use crate::dialect::openai;
use crate::dialect::refusal::{BodyFormat, Refusal};
use crate::headers::{Coding, Headers};
use crate::identity::{self, Identified};
use crate::paths::{self, Class};

pub type Step = (Stream, Vec<Effect>);

/// Where a request is. The default is the state before its headers.
#[derive(Default)]
pub enum Stream {
    #[default]
    Received,
    /// The model list is not there yet.
    AwaitingModels(Box<AwaitingModels>),
    /// A metered request whose body may arrive, and whose caller is asked for.
    Identifying(Box<Identifying>),
    /// A metered request whose body is on its way.
    Held(Box<Held>),
    /// A metered request whose body is whole and packed.
    Inflating(Box<Inflating>),
    /// A metered request whose body is whole and not counted yet.
    Counting(Box<Counting>),
    Reserving(Box<Reserving>),
    /// Over, or answered by somebody else, while the reserve was under way.
    Abandoned(Box<Abandoned>),
    /// Let go on; then, answered.
    Admitted(Box<Admitted>),
    /// Let go on although it would have been refused with this code; not metered.
    Observed(Cow<'static, str>),
    /// Answered, by us as a rule. Everything else that comes is swallowed.
    Refused,
    /// Not metered, or ended.
    PassedThrough,
}

impl Stream {
    /// The request must not go on yet, nor at all once it was refused.
    pub fn holds_request(&self) -> bool {
        matches!(
            self,
            Self::AwaitingModels(_)
                | Self::Identifying(_)
                | Self::Held(_)
                | Self::Inflating(_)
                | Self::Counting(_)
                | Self::Reserving(_)
                | Self::Abandoned(_)
                | Self::Refused
        )
    }

    /// The body may arrive, and must not go on.
    pub fn holds_body(&self) -> bool {
        matches!(self, Self::Identifying(_) | Self::Held(_))
    }

    /// Nothing is done with the body before an answer is there.
    pub fn awaits_answer(&self) -> bool {
        matches!(self, Self::AwaitingModels(_) | Self::Identifying(_))
    }

    pub fn awaits_models(&self) -> bool {
        matches!(self, Self::AwaitingModels(_))
    }

    /// Whose request it is, until it is let go or refused.
    pub fn caller(&self) -> Option<CallerId> {
        match self {
            Self::Identifying(waiting) => Some(waiting.caller().id),
            Self::Held(held) => Some(held.caller().id),
            Self::Inflating(inflating) => Some(inflating.caller().id),
            Self::Counting(counting) => Some(counting.caller().id),
            Self::Reserving(reserving) => Some(reserving.caller().id),
            _ => None,
        }
    }

    /// [`Event::RequestEnd`] must come with the body.
    pub fn wants_body(&self) -> bool {
        matches!(self, Self::Held(_))
    }

    /// Where in the body to count on: [`Event::RequestPiece`] may come with at most [`SLICE`] bytes from there.
    /// It must once [`Event::RequestEnd`] was.
    pub fn counts_from(&self) -> Option<usize> {
        match self {
            Self::Held(held) => held.counts_from(),
            Self::Counting(counting) => counting.counts_from(),
            _ => None,
        }
    }

    /// [`Event::RequestPiece`] must come, and needs no bytes: the body is kept here.
    pub fn counts_kept(&self) -> bool {
        match self {
            Self::Inflating(_) => true,
            Self::Counting(counting) => counting.counts_from().is_none(),
            _ => false,
        }
    }

    /// After [`Event::RequestEnd`] the body may be kept until it is counted.
    pub fn will_keep(&self) -> bool {
        matches!(self, Self::Held(held) if held.is_packed())
    }

    /// [`Event::ResponseBody`] must come with the bytes.
    pub fn wants_answer(&self) -> bool {
        matches!(self, Self::Admitted(admitted) if admitted.reads_body())
    }

    pub fn step(self, env: &Env<'_>, event: Event<'_>) -> Step {
        match (self, event) {
            (Self::Received, Event::RequestHeaders { headers, end_of_stream }) => {
                AwaitingModels::receive(env, headers, end_of_stream)
            }
            (Self::AwaitingModels(waiting), Event::RequestBody { length }) => waiting.body(length),
            (Self::AwaitingModels(waiting), Event::ModelsKnown) => waiting.known(env),
            (Self::AwaitingModels(waiting), Event::ModelsFailed) => waiting.failed(env),
            (Self::Identifying(waiting), Event::RequestBody { length }) => waiting.body(env, length),
            (Self::Identifying(waiting), Event::BodyWithheld) => resume(waiting.withheld(env)),
            (Self::Identifying(waiting), Event::Identified(standing)) => resume(waiting.told(env, standing)),
            (Self::Identifying(waiting), Event::IdentifyFailed) => resume(waiting.failed(env)),
            (Self::Held(held), Event::RequestBody { length }) => held.body(env, length),
            (Self::Held(held), Event::RequestPiece { bytes }) => resume(held.piece(env, bytes)),
            (Self::Held(held), Event::RequestEnd { body }) => held.end(env, body),
            (Self::Inflating(inflating), Event::RequestPiece { .. }) => resume(inflating.piece(env)),
            (Self::Counting(counting), Event::RequestPiece { bytes }) => resume(counting.piece(env, bytes)),
            (Self::Held(held), Event::BodyWithheld) => resume(held.withheld(env)),
            // An answer before anything was reserved: the proxy's own, or another filter's.
            (
                Self::AwaitingModels(_)
                | Self::Identifying(_)
                | Self::Held(_)
                | Self::Inflating(_)
                | Self::Counting(_),
                Event::ResponseHead(_) | Event::End(_),
            ) => (Self::PassedThrough, Vec::new()),

            (Self::Reserving(reserving), Event::RequestBody { length }) => reserving.body(length),
            (Self::Reserving(reserving), Event::ReserveAnswer(answer)) => {
                resume(reserving.answered(env, answer))
            }
            (Self::Reserving(reserving), Event::ReserveFailed(failure)) => {
                resume(reserving.failed(env, failure))
            }
            (Self::Reserving(reserving), Event::ResponseHead(_) | Event::End(_)) => reserving.abandoned(),
            (Self::Abandoned(abandoned), Event::ReserveAnswer(answer)) => abandoned.answered(&answer),
            (Self::Abandoned(abandoned), Event::ReserveFailed(_)) => abandoned.failed(),

            (Self::Admitted(admitted), Event::RequestBody { length }) => admitted.body(env, length),
            (Self::Admitted(admitted), Event::RewriteFailed) => admitted.rewrite_failed(),
            (Self::Admitted(admitted), Event::ResponseHead(head)) => admitted.response_head(env, head),
            (Self::Admitted(admitted), Event::ResponseBody { chunk, is_last }) => {
                admitted.response_body(chunk, is_last)
            }
            (Self::Admitted(admitted), Event::Extended { status, held }) => admitted.extended(status, held),
            (Self::Admitted(admitted), Event::Cut) => admitted.cut(),
            // Whichever comes first; a client that does not read does not put its settle off.
            (Self::Admitted(admitted), Event::ResponseEnd(ending) | Event::End(ending)) => {
                admitted.end(env, ending)
            }

            (Self::Observed(code), Event::ResponseHead(_)) => {
                (Self::PassedThrough, vec![Effect::SetResponseHeader(OBSERVED_HEADER, code.into_owned())])
            }

            // Late answers, bodies of what is not metered, our own reply's way out.
            (stream, _) => (stream, Vec::new()),
        }
    }

    /// Refuses the request, or, where nothing is refused, lets it go on with a mark.
    fn refuse(env: &Env<'_>, refusal: Refusal, format: BodyFormat) -> Step {
        let body_refused =
            refusal.body_member().map(|member| Effect::Measure(Measure::BodyRefused { member }));
        let (stream, mut effects) = match env.config.mode {
            Mode::Enforce => Self::answer(refusal, format, NO_MODEL),
            Mode::Observe => {
                let code = refusal.label();
                let mut effects = decided("observed".into(), NO_MODEL);
                effects.push(Effect::Log(LogField::Decision, observed(&code)));
                (Self::Observed(code), effects)
            }
        };
        effects.extend(body_refused);
        (stream, effects)
    }

    /// Answers the request ourselves.
    fn answer(refusal: Refusal, format: BodyFormat, model: &str) -> Step {
        let mut effects = decided(refusal.label(), model);
        effects.push(Effect::Reply(refusal.reply(format)));
        (Self::Refused, effects)
    }
}

fn decided(decision: Cow<'static, str>, model: &str) -> Vec<Effect> {
    let log = Effect::Log(LogField::Decision, decision.clone().into_owned());
    vec![Effect::Measure(Measure::Decision { decision, model: model.to_owned() }), log]
}

/// For the access log: what would have been decided.
fn observed(code: &str) -> String {
    format!("observed:{code}")
}

/// A request that waits does not go on by itself when it is let go without a hold.
fn resume((stream, mut effects): Step) -> Step {
    if matches!(stream, Stream::Observed(_)) {
        effects.push(Effect::Resume);
    }
    (stream, effects)
}

/// Says in `mode: observe` what would have happened.
const OBSERVED_HEADER: &str = "x-tokengate-observed";

/// The caller of a request, as its headers tell.
#[derive(Clone, Debug)]
pub struct Caller {
    id: CallerId,
    identified: Identified,
    /// What a key may say of its own caller.
    asserted: BTreeMap<String, String>,
    /// The client's address.
    ip: Option<String>,
    request_id: Option<String>,
    format: BodyFormat,
    has_content_length: bool,
    has_digest: bool,
    /// Its method has no body, and the end of its request was not seen.
    is_bodyless: bool,
}

fn received(env: &Env<'_>, headers: &Headers, end_of_stream: bool) -> Step {
    let Config { identity, paths, max_body_bytes, .. } = env.config;
    let format = BodyFormat::of_accept(headers.get("accept"));
    let class = paths::classify(paths, headers);
    // Before anything can be let go: also what is only observed must not take a credential along.
    let asserted_headers = env.models.asserted_headers();
    let removals = identity::headers_to_remove(identity, asserted_headers, headers);
    let mut effects: Vec<Effect> = removals.into_iter().map(Effect::RemoveRequestHeader).collect();
    let method = headers.text(":method").unwrap_or("?");
    let (path, query) = paths::split(headers.get(":path").unwrap_or(b"?"));
    match class {
        Class::Preflight if headers.announce_body() || !end_of_stream => {
            return with(effects, Stream::refuse(env, Refusal::needless_body(), format));
        }
        Class::Preflight | Class::Passed => return (Stream::PassedThrough, effects),
        Class::Unknown => {
            let path: String = std::str::from_utf8(path).unwrap_or("?").chars().take(128).collect();
            return with(effects, Stream::refuse(env, Refusal::unknown_endpoint(method, &path), format));
        }
        Class::Misspelled => {
            let refusal = Refusal::misspelled_endpoint(method, paths::CHAT_COMPLETIONS_PATH);
            return with(effects, Stream::refuse(env, refusal, format));
        }
        Class::Metered | Class::Listed | Class::Bodyless => {}
    }
    let caller = identity::identify(identity, headers, env.property)
        .and_then(|identified| Ok((identified, identity::asserted(asserted_headers, headers)?)));
    let (identified, asserted) = match caller {
        Ok(caller) => caller,
        Err(error) => return with(effects, Stream::refuse(env, Refusal::identity(error), format)),
    };
    let holds_headers = env.config.hold_at == HoldAt::Headers;
    let content_length = headers.text("content-length");
    let caller = Caller {
        id: CallerId::of(&identified),
        identified,
        asserted,
        ip: identity::client_address(env.property),
        request_id: headers.text("x-request-id").filter(|id| id.len() <= 128).map(str::to_owned),
        format,
        has_content_length: content_length.is_some() && holds_headers,
        has_digest: headers.have_digest(),
        is_bodyless: class == Class::Bodyless && !end_of_stream && env.config.mode == Mode::Enforce,
    };
    match class {
        Class::Bodyless if headers.announce_body() => {
            return with(effects, Stream::refuse(env, Refusal::needless_body(), format));
        }
        Class::Bodyless | Class::Listed => return with(effects, reserving::begin_listed(env, caller)),
        _ => {}
    }
    if let Some(member) = openai::in_query(query) {
        let error = openai::in_wrong_place(member);
        return with(effects, Stream::refuse(env, Refusal::bad_request(error), format));
    }
    let content_length = content_length.and_then(|length| length.parse::<usize>().ok());
    if content_length.is_some_and(|length| length > max_body_bytes.0) {
        return with(effects, Stream::refuse(env, Refusal::too_large(max_body_bytes.0), format));
    }
    let is_gzip = match headers.coding() {
        Coding::Identity => false,
        Coding::Gzip => true,
        Coding::Other => return with(effects, Stream::refuse(env, Refusal::unreadable_coding(), format)),
    };
    // Usage in a compressed answer could not be read.
    effects.push(Effect::SetRequestHeader("accept-encoding", "identity".to_owned()));
    // It was read as JSON, so nobody is to read it as something else.
    if headers.all("content-type").ne([JSON.as_bytes()]) {
        effects.push(Effect::SetRequestHeader("content-type", JSON.to_owned()));
    }
    if !holds_headers {
        // The body may become longer when the headers are gone.
        effects.push(Effect::RemoveRequestHeader("content-length".to_owned()));
    }
    let held = Box::new(Held::new(caller, is_gzip));
    if end_of_stream {
        return with(effects, held.end(env, b""));
    }
    with(effects, Identifying::hold(env, held, content_length))
}

const JSON: &str = "application/json";

/// A step with more effects before its own.
fn with(mut before: Vec<Effect>, (stream, effects): Step) -> Step {
    before.extend(effects);
    (stream, before)
}

#[cfg(test)]
mod tests;
