//! A request that was let go on: its answer passes through, and its end is charged.

use tokengate_api::{ExtendStatus, Outcome, Usage, model_name};

use super::charge::{self, Charge, Ending, Response};
use super::hold::{Hold, Named};
use super::overrun::Overrun;
use super::relay::{Reading, Relay};
use super::report::{LogField, Measure, OUTPUT_SLACK, PROMPT_SLACK, far_above, far_apart};
use super::{Effect, Env, ResponseHead, Step, Stream};
use crate::config::RateLimit;
use crate::dialect::openai::Answer;
use crate::dialect::refusal::{BodyFormat, Refusal};
use crate::limit_headers::HeaderList;
use crate::tokenizer::Encoding;

pub struct Admitted {
    /// Until it is settled.
    hold: Option<Hold>,
    /// As metrics and logs name it.
    model: String,
    request: charge::Request,
    encoding: Encoding,
    format: BodyFormat,
    response_headers: HeaderList,
    hides_usage: bool,
    /// The request is of a method that has no body.
    is_bodyless: bool,
    overrun: Option<Overrun>,
    /// The provider's status and body, once it has answered.
    answer: Option<(u16, Relay)>,
}

impl Admitted {
    pub fn new(hold: Hold, request: charge::Request, encoding: Encoding, format: BodyFormat) -> Self {
        let response_headers = HeaderList::new();
        let model = hold.model().to_owned();
        Self {
            hold: Some(hold),
            model,
            request,
            encoding,
            format,
            response_headers,
            hides_usage: false,
            is_bodyless: false,
            overrun: None,
            answer: None,
        }
    }

    pub fn with_response_headers(mut self, headers: HeaderList) -> Self {
        self.response_headers = headers;
        self
    }

    pub fn hiding_usage(mut self, hides_usage: bool) -> Self {
        self.hides_usage = hides_usage;
        self
    }

    pub fn bodyless(mut self, is_bodyless: bool) -> Self {
        self.is_bodyless = is_bodyless;
        self
    }

    /// Ends the stream when its hold is used up and no more is granted.
    pub fn watching(mut self, overrun: Option<Overrun>) -> Self {
        self.overrun = overrun;
        self
    }

    pub fn reads_body(&self) -> bool {
        self.answer.is_some()
    }

    /// The body could not be changed as it must be, so the request must not go on.
    pub fn rewrite_failed(self: Box<Self>) -> Step {
        let refusal = Refusal::misconfigured_proxy();
        let (stream, mut effects) = Stream::answer(refusal, self.format, &self.model);
        effects.extend(self.hold.into_iter().flat_map(Hold::release));
        (stream, effects)
    }

    /// A body comes where there must be none: nothing of it goes on.
    pub fn body(mut self: Box<Self>, env: &Env<'_>, length: usize) -> Step {
        if !self.is_bodyless || length == 0 {
            return (Stream::Admitted(self), Vec::new());
        }
        let mut effects = self.conclude(env, Ending { reached_provider: true });
        effects.push(match self.answer {
            Some(_) => Effect::CutResponse,
            None => Effect::Reply(Refusal::needless_body().reply(self.format)),
        });
        (Stream::Refused, effects)
    }

    pub fn response_head(mut self: Box<Self>, env: &Env<'_>, head: ResponseHead) -> Step {
        let mut effects = Vec::new();
        if env.config.headers.rate_limit == RateLimit::Replace {
            effects.extend(head.rate_limit_headers.into_iter().map(Effect::RemoveResponseHeader));
        }
        let own = std::mem::take(&mut self.response_headers);
        effects.extend(own.into_iter().map(|(name, value)| Effect::SetResponseHeader(name, value)));
        if head.from_provider {
            if head.status == 429 {
                effects.push(Effect::SetResponseHeader("x-tokengate-refused-by", "upstream".to_owned()));
            }
            if self.hides_usage || self.overrun.is_some() {
                // The body may become shorter, or end with an event of ours.
                effects.push(Effect::RemoveResponseHeader("content-length".to_owned()));
            }
            self.answer = Some((head.status, Relay::new(self.encoding, self.hides_usage, head.coding)));
        }
        (Stream::Admitted(self), effects)
    }

    pub fn response_body(mut self: Box<Self>, chunk: &[u8], is_last: bool) -> Step {
        let Self { overrun, answer: Some((_, relay)), request, .. } = &mut *self else {
            return (Stream::Admitted(self), Vec::new());
        };
        let Some(overrun) = overrun else {
            let instead = relay.chunk(chunk, is_last);
            return (Stream::Admitted(self), instead.map(Effect::ReplaceResponseBody).into_iter().collect());
        };
        if overrun.is_stopped() {
            let effects = vec![Effect::ReplaceResponseBody(Vec::new()), Effect::CutResponse];
            return (Stream::Admitted(self), effects);
        }
        if overrun.is_refused() && !is_last {
            let error = Refusal::output_stopped().event();
            let must_stop = |bytes, answer: &Answer| {
                overrun.must_stop(bytes, || request.bounded(answer.delivered_tokens()))
            };
            let (instead, is_stopped) = relay.chunk_until(chunk, &error, must_stop);
            let mut effects: Vec<_> = instead.map(Effect::ReplaceResponseBody).into_iter().collect();
            if is_stopped {
                overrun.stop();
                effects.push(Effect::CutSoon);
                effects.push(Effect::Measure(Measure::Stopped { model: self.model.clone() }));
                effects.push(Effect::Log(LogField::Decision, "stopped".to_owned()));
            }
            return (Stream::Admitted(self), effects);
        }
        let instead = relay.chunk(chunk, is_last);
        let total = match relay.reading() {
            Reading::Events => {
                overrun.delivered(chunk.len(), || request.bounded(relay.answer().delivered_tokens()))
            }
            _ => None,
        };
        let mut effects: Vec<_> = instead.map(Effect::ReplaceResponseBody).into_iter().collect();
        effects.extend(total.and_then(|total| self.hold.as_ref()?.extend(total)).map(Effect::Extend));
        (Stream::Admitted(self), effects)
    }

    pub fn extended(mut self: Box<Self>, status: ExtendStatus, held: Option<u64>) -> Step {
        if let Some(overrun) = &mut self.overrun {
            overrun.answered(status, held);
        }
        (Stream::Admitted(self), Vec::new())
    }

    /// The last event is on its way; upstream is cut off as well.
    pub fn cut(self: Box<Self>) -> Step {
        let is_stopped = self.overrun.as_ref().is_some_and(Overrun::is_stopped);
        (Stream::Admitted(self), is_stopped.then_some(Effect::CutResponse).into_iter().collect())
    }

    pub fn end(mut self: Box<Self>, env: &Env<'_>, ending: Ending) -> Step {
        (Stream::PassedThrough, self.conclude(env, ending))
    }

    /// Charges what is known by now and settles the hold; nothing where that was done before.
    fn conclude(&mut self, env: &Env<'_>, ending: Ending) -> Vec<Effect> {
        let Some(hold) = self.hold.take() else { return Vec::new() };
        if let Some((_, relay)) = &mut self.answer {
            relay.finish();
        }
        if let Some(overrun) = &self.overrun {
            self.request.held_output = overrun.held();
        }
        let response = self.answer.as_ref().map(|(status, relay)| Response { status: *status, relay });
        let charge = charge::charge(env.config.missing_usage, ending, self.request, response);
        let mut effects: Vec<_> = self.usage_fault(charge).map(Effect::Measure).into_iter().collect();
        let named = self.named();
        let named_model = named.model.as_deref().filter(|model| !hold.may_be_answered_by(model));
        effects.extend(self.other_model(env, named_model).map(Effect::Measure));
        effects.extend(hold.settle(charge, named));
        effects
    }

    fn named(&self) -> Named {
        let Some((200..300, relay)) = self.answer.as_ref() else { return Named::default() };
        Named { model: relay.answer().model(), service_tier: relay.answer().service_tier() }
    }

    /// Whether the answer is another model's than the one that is charged. A provider may name a version of it.
    fn other_model(&self, env: &Env<'_>, named: Option<&str>) -> Option<Measure> {
        let named = named.filter(|_| !self.request.is_listed && env.models.is_listed(&self.model))?;
        let is_version_of = |model: &str| {
            let mut spellings = model_name::spellings(named).into_iter();
            spellings.any(|name| {
                name.strip_prefix(model)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '@', ':']))
            })
        };
        let found = env.models.canonical(named);
        let is_same =
            found == Some(&self.model) || (is_version_of(&self.model) && !found.is_some_and(is_version_of));
        (!is_same).then(|| Measure::OtherModel { model: self.model.clone() })
    }

    /// What is wrong with the usage that the provider reported with its success.
    fn usage_fault(&self, charge: Charge) -> Option<Measure> {
        let (200..300, relay) = self.answer.as_ref()? else { return None };
        let model = || self.model.clone();
        match (charge.outcome, relay.answer().usage()) {
            (Outcome::Used | Outcome::Estimated, Some(usage)) => self
                .is_doubtful(usage, relay.answer().delivered_tokens())
                .then(|| Measure::UsageMismatch { model: model() }),
            (Outcome::Estimated | Outcome::Held, None) => Some(Measure::UsageMissing { model: model() }),
            _ => None,
        }
    }

    /// Believed all the same: the provider bills by it.
    fn is_doubtful(&self, usage: Usage, delivered: u64) -> bool {
        let Usage { input, cache_read, cache_write, output, reasoning } = usage;
        let prompt = input.saturating_add(cache_read).saturating_add(cache_write);
        let all_output = output.saturating_add(reasoning);
        // Reasoning may be delivered or not: it explains text that was, and none that was not.
        far_apart(self.request.prompt_tokens, prompt, PROMPT_SLACK)
            || self.request.output_bound.is_some_and(|bound| all_output > bound)
            || far_above(delivered, all_output, OUTPUT_SLACK)
            || far_above(output, delivered, OUTPUT_SLACK)
    }
}
