//! A request that waits for the quota service's answer.

use std::borrow::Cow;

use tokengate_api::{Decision, MissingOutputLimit, Reason, ReserveRequest, ReserveResponse};

use super::abandoned::Abandoned;
use super::admitted::Admitted;
use super::hold::{Hold, is_urgent};
use super::overrun::Overrun;
use super::report::{self, LogField, Measure, NO_MODEL};
use super::{Caller, Effect, Env, Failure, Packing, Rewrite, Step, Stream, charge, decided, observed};
use crate::config::{self, FailureMode, HoldAt, Mode};
use crate::dialect::BadRequest;
use crate::dialect::openai::{OutputLimits, Prompt};
use crate::dialect::refusal::Refusal;
use crate::edits::{Edit, Edits};
use crate::limit_headers::{self, HeaderList};
use crate::models::Model;
use crate::paths::LISTED;
use crate::tokenizer::raised;

/// Held for the output where neither the client nor the policy gives a number.
const DEFAULT_OUTPUT_TOKENS: u64 = 1_024;
/// A repeat needs at least this long to be of use.
const SHORTEST_WAIT_MS: u64 = 5;

/// All that is known of a request before it is reserved.
pub struct Prepared {
    pub endpoint: &'static str,
    pub model_name: Option<String>,
    pub model: Model,
    /// Other models that may answer, as they are asked for and as they are known.
    pub alternative_names: Vec<String>,
    pub alternatives: Vec<Model>,
    pub service_tier: Option<String>,
    pub prompt_tokens: u64,
    /// Held beside the prompt, and left out where the prompt is charged by our count.
    pub unknown_tokens: u64,
    /// Per choice, as the client gave it, capped at the model's maximum.
    pub max_output_tokens: Option<u64>,
    pub choices: u32,
    pub stream: bool,
    pub include_usage: Option<Edit>,
    pub output_limits: OutputLimits,
    pub is_gzip: bool,
}

pub struct Reserving {
    caller: Caller,
    prepared: Prepared,
    request: ReserveRequest,
    started_at: u64,
}

/// Asks for the tokens of a metered request.
pub fn begin(env: &Env<'_>, caller: Caller, prepared: Prepared) -> Step {
    if caller.has_digest
        && let Some(error) = prepared.forbidden_change()
    {
        return Stream::refuse(env, Refusal::bad_request(error), caller.format);
    }
    let Some(id) = (env.new_id)() else {
        return Stream::refuse(env, Refusal::quota_unavailable(), caller.format);
    };
    let request = ReserveRequest {
        id,
        attempt: 1,
        deadline_ms: env.config.quota.timeout_ms,
        key_hash: caller.identified.key_hash(),
        identity: caller.identified.verified(),
        asserted: caller.asserted.clone(),
        ip: caller.ip.clone(),
        model: prepared.model_name.clone(),
        models: prepared.alternative_names.clone(),
        service_tier: prepared.service_tier.clone(),
        dialect: "openai".to_owned(),
        endpoint: prepared.endpoint.to_owned(),
        prompt_tokens: prepared.prompt_tokens.saturating_add(prepared.unknown_tokens),
        max_output_tokens: prepared.max_output_tokens.or_else(|| prepared.least_output()),
        choices: prepared.choices,
        stream: prepared.stream,
        can_clamp: prepared.endpoint != LISTED && env.config.mode == Mode::Enforce && !caller.has_digest,
        request_id: caller.request_id.clone(),
    };
    let reserving = Reserving { caller, prepared, request, started_at: (env.now_ms)() };
    let effects = vec![
        Effect::Log(LogField::ReservationId, reserving.request.id.to_string()),
        Effect::Log(LogField::Model, reserving.prepared.label().to_owned()),
        Effect::Log(LogField::PromptTokens, reserving.request.prompt_tokens.to_string()),
        reserving.call(),
    ];
    (Stream::Reserving(Box::new(reserving)), effects)
}

/// Asks for a request that has no tokens.
pub fn begin_listed(env: &Env<'_>, caller: Caller) -> Step {
    let prepared = Prepared {
        endpoint: LISTED,
        model_name: None,
        model: env.models.find(""),
        alternative_names: Vec::new(),
        alternatives: Vec::new(),
        service_tier: None,
        prompt_tokens: 0,
        unknown_tokens: 0,
        max_output_tokens: None,
        choices: 1,
        stream: false,
        include_usage: None,
        output_limits: OutputLimits::default(),
        is_gzip: false,
    };
    begin(env, caller, prepared)
}

impl Prepared {
    /// The model, for metrics and logs.
    fn label(&self) -> &str {
        if self.model_name.is_some() { self.model.label() } else { NO_MODEL }
    }

    /// The models that may answer.
    fn models(&self) -> impl Iterator<Item = &Model> {
        std::iter::once(&self.model).chain(&self.alternatives)
    }

    /// The most that the prompt costs with one of the models. It was counted by the encoding of the first.
    pub fn held(&self, prompt: &Prompt) -> u64 {
        let held = |model: &Model| {
            let counted = prompt.tokens(&model.name);
            if model.encoding == self.model.encoding { model.held(counted) } else { raised(counted) }
        };
        self.models().map(held).max().unwrap_or(0)
    }

    /// What is done about a missing limit: whichever model answers, no less than it is to be done for it.
    pub fn missing_limit(&self) -> MissingOutputLimit {
        let strictness = |missing: &MissingOutputLimit| match missing {
            MissingOutputLimit::HoldDefault => 0,
            MissingOutputLimit::HoldMax => 1,
            MissingOutputLimit::WriteDefault => 2,
            MissingOutputLimit::Refuse => 3,
        };
        self.models().map(|model| model.missing_limit).max_by_key(strictness).unwrap_or_default()
    }

    /// Per choice, as it is held unless the service grants something else.
    fn output_limit(&self) -> u64 {
        let missing = match self.missing_limit() {
            MissingOutputLimit::HoldMax => self.models().filter_map(|model| model.max_output_tokens).max(),
            _ => Some(self.default_output()),
        };
        let missing = missing.unwrap_or(DEFAULT_OUTPUT_TOKENS).max(self.least_output().unwrap_or(0));
        self.max_output_tokens.unwrap_or(missing)
    }

    fn default_output(&self) -> u64 {
        let of_model = |model: &Model| {
            let default = model.default_output_tokens.unwrap_or(DEFAULT_OUTPUT_TOKENS);
            default.min(model.max_output_tokens.unwrap_or(u64::MAX))
        };
        self.models().map(of_model).max().unwrap_or(DEFAULT_OUTPUT_TOKENS)
    }

    /// What the client wants to be written at least, where that is more than is held without a limit.
    fn least_output(&self) -> Option<u64> {
        let least = self.output_limits.least().min(self.model.max_output_tokens.unwrap_or(u64::MAX));
        (least > self.default_output()).then_some(least)
    }

    /// Writes the output limit that the provider is to keep to, where it is another than the client's. Gives
    /// what then bounds the output.
    fn bound_output(&self, grant: Option<u64>, edits: &mut Edits) -> Option<u64> {
        let limit = match self.max_output_tokens {
            Some(asked) => grant.into_iter().chain(self.model.max_output_tokens).fold(asked, u64::min),
            None => {
                let writes_default = self.missing_limit() == MissingOutputLimit::WriteDefault;
                grant.or(writes_default.then(|| self.default_output()))?
            }
        };
        self.output_limits.keep_to(limit, self.model.reasoning, edits);
        Some(limit)
    }

    /// Why a body that must go on as it came cannot.
    fn forbidden_change(&self) -> Option<BadRequest> {
        let forbidden = |param, must: String| {
            let message = format!(
                "{must}, and the body's digest in the headers forbids changing it here: do so yourself, or send no digest."
            );
            Some(BadRequest { param: Some(param), message })
        };
        if self.include_usage.is_some() {
            let must = "A stream must have 'stream_options': {'include_usage': true}".to_owned();
            return forbidden("stream_options", must);
        }
        let mut edits = Edits::default();
        let limit = self.bound_output(None, &mut edits).filter(|_| !edits.is_empty())?;
        forbidden(
            "max_tokens",
            match self.max_output_tokens {
                Some(_) => format!(
                    "'max_tokens' or 'max_completion_tokens' must be given, and no output limit may be above {limit}"
                ),
                None => format!("'max_tokens' or 'max_completion_tokens' must be given, such as {limit}"),
            },
        )
    }
}

impl Reserving {
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    fn call(&self) -> Effect {
        Effect::Reserve { request: Box::new(self.request.clone()), timeout_ms: self.request.deadline_ms }
    }

    /// A body comes where there must be none.
    pub fn body(self: Box<Self>, length: usize) -> Step {
        if !self.caller.is_bodyless || length == 0 {
            return (Stream::Reserving(self), Vec::new());
        }
        let (_, mut effects) =
            Stream::answer(Refusal::needless_body(), self.caller.format, self.prepared.label());
        let (stream, log) = self.abandoned();
        effects.extend(log);
        (stream, effects)
    }

    pub fn answered(self: Box<Self>, env: &Env<'_>, answer: ReserveResponse) -> Step {
        let learned = learned(&self.caller, &answer);
        let (stream, mut effects) = match answer.decision {
            Decision::Allow => self.allowed(env, &answer),
            Decision::Deny => self.denied(env, &answer),
            // The id was closed before: by the service itself, after an answer that it could not be sure of.
            Decision::Gone => Stream::refuse(env, Refusal::quota_unavailable(), self.caller.format),
        };
        if answer.policy_version != env.models.policy_version() {
            effects.push(Effect::RefreshModels);
        }
        if answer.degraded {
            effects.push(Effect::Measure(Measure::Degraded { by: "service" }));
        }
        effects.extend(learned);
        (stream, effects)
    }

    fn allowed(self: Box<Self>, env: &Env<'_>, answer: &ReserveResponse) -> Step {
        let headers = limit_headers::rate_limit(&answer.limits, env.config.headers.reset);
        let held = self.prepared.prompt_tokens.saturating_add(
            answer.grant.max_output_tokens.unwrap_or(0).saturating_mul(self.prepared.choices.into()),
        );
        let hold = Hold {
            id: self.request.id.clone(),
            account: Some(answer.account.clone()),
            // Decided without the store, so that nothing may be held.
            reserve: answer.degraded.then(|| self.request.clone()),
            allowed: (!answer.degraded).then(|| Box::new(self.request.clone())),
            frees: is_urgent(answer, held).then_some(self.caller.id),
            reserved_at: self.started_at,
            model: self.prepared.label().to_owned(),
        };
        let mark = answer.degraded.then_some(Mark::Degraded);
        let account =
            report::is_tag(&answer.account).then(|| Effect::Log(LogField::Account, answer.account.clone()));
        let lease = answer.grant.lease_ms.map(|lease_ms| Effect::KeepLease {
            id: hold.id.clone(),
            account: answer.account.clone(),
            lease_ms,
        });
        let (stream, mut effects) = self.let_go(env, answer.grant.max_output_tokens, hold, headers, mark);
        effects.extend(account);
        effects.extend(lease);
        (stream, effects)
    }

    fn denied(self: Box<Self>, env: &Env<'_>, answer: &ReserveResponse) -> Step {
        let reset = env.config.headers.reset;
        let model = self.prepared.model_name.as_deref().unwrap_or("");
        let refusal = Refusal::denied(answer, model, self.request.prompt_tokens, reset);
        if env.config.mode == Mode::Enforce {
            return Stream::answer(refusal, self.caller.format, self.prepared.label());
        }
        // Nothing is held; what the request uses is booked at its end.
        let headers = limit_headers::rate_limit(&answer.limits, reset);
        let hold = self.hold();
        self.let_go(env, None, hold, headers, Some(Mark::Observed(refusal.label())))
    }

    pub fn failed(mut self: Box<Self>, env: &Env<'_>, failure: Failure) -> Step {
        let elapsed = (env.now_ms)().saturating_sub(self.started_at);
        let left = u64::from(env.config.quota.timeout_ms).saturating_sub(elapsed);
        let may_repeat = failure != Failure::Unusable && self.request.attempt == 1;
        if may_repeat && left >= SHORTEST_WAIT_MS {
            self.request.attempt = 2;
            self.request.deadline_ms = u32::try_from(left).unwrap_or(u32::MAX);
            let effects = vec![Effect::Measure(Measure::ReserveFailed(failure)), self.call()];
            return (Stream::Reserving(self), effects);
        }
        let failed = Effect::Measure(Measure::ReserveFailed(failure));
        let (stream, mut effects) = self.unanswered(env);
        effects.push(failed);
        (stream, effects)
    }

    /// Goes on without an answer, or does not.
    fn unanswered(self: Box<Self>, env: &Env<'_>) -> Step {
        let hold = self.hold();
        let refusal = Refusal::quota_unavailable();
        match (env.config.failure_mode, env.config.mode) {
            (FailureMode::Open, _) => {
                let (stream, mut effects) = self.let_go(env, None, hold, Vec::new(), Some(Mark::Degraded));
                effects.push(Effect::Measure(Measure::Degraded { by: "filter" }));
                (stream, effects)
            }
            (FailureMode::Closed, Mode::Observe) => {
                let mark = Some(Mark::Observed(refusal.label()));
                self.let_go(env, None, hold, Vec::new(), mark)
            }
            (FailureMode::Closed, Mode::Enforce) => {
                let (stream, mut effects) =
                    Stream::answer(refusal, self.caller.format, self.prepared.label());
                effects.extend(hold.release());
                (stream, effects)
            }
        }
    }

    /// The stream is over, or was answered by somebody else: what the reserve holds goes back once it is known.
    pub fn abandoned(self) -> Step {
        let hold = self.hold();
        let log = Effect::Log(LogField::Outcome, "released".to_owned());
        (Stream::Abandoned(Box::new(Abandoned::new(hold, self.caller))), vec![log])
    }

    /// The hold that this reserve may have become without our knowing.
    fn hold(&self) -> Hold {
        Hold {
            id: self.request.id.clone(),
            account: None,
            reserve: Some(self.request.clone()),
            allowed: None,
            frees: None,
            reserved_at: self.started_at,
            model: self.prepared.label().to_owned(),
        }
    }

    fn let_go(
        self,
        env: &Env<'_>,
        grant: Option<u64>,
        hold: Hold,
        mut headers: HeaderList,
        mark: Option<Mark>,
    ) -> Step {
        let Self { caller, prepared, request, .. } = self;
        let mut degraded = None;
        let mark = mark.or_else(|| {
            // Without the list, neither caps nor identity headers are what the policy says.
            (!env.models.are_known()).then(|| {
                degraded = Some(Effect::Measure(Measure::Degraded { by: "filter" }));
                Mark::Degraded
            })
        });
        let mut edits = Edits::default();
        let bound = match env.config.mode {
            Mode::Enforce if prepared.endpoint != LISTED && !caller.has_digest => {
                prepared.bound_output(grant, &mut edits)
            }
            _ => prepared.max_output_tokens,
        };
        let hides_usage = prepared.include_usage.is_some();
        if let Some(edit) = &prepared.include_usage {
            edits.push(edit.clone());
        }
        let mut effects: Vec<_> = degraded.into_iter().collect();
        if !edits.is_empty() {
            let packing = match (prepared.is_gzip, env.config.hold_at) {
                (false, _) => Packing::Plain,
                (true, HoldAt::Headers) => Packing::Unpack,
                (true, HoldAt::Body) => Packing::Repack,
            };
            effects.push(Effect::RewriteBody(Rewrite {
                edits,
                packing,
                fix_length: caller.has_content_length,
            }));
            if packing == Packing::Unpack {
                effects.push(Effect::RemoveRequestHeader("content-encoding".to_owned()));
            }
        }
        effects.push(Effect::Resume);
        let decision = match &mark {
            None => "admitted",
            Some(Mark::Degraded) => "open",
            Some(Mark::Observed(_)) => "observed",
        };
        effects.extend(decided(decision.into(), &hold.model));
        if let Some(Mark::Observed(code)) = &mark {
            effects.push(Effect::Log(LogField::Decision, observed(code)));
        }
        headers.extend(mark.map(Mark::header));
        if prepared.model.is_fallback && prepared.endpoint != LISTED {
            headers.push(("x-tokengate-tokenizer", "fallback".to_owned()));
        }
        let choices = u64::from(prepared.choices);
        let per_choice = grant.or(bound).unwrap_or_else(|| prepared.output_limit());
        let held_output = per_choice.saturating_mul(choices);
        if prepared.endpoint != LISTED {
            let (model, prompt) = (hold.model.clone(), request.prompt_tokens);
            effects.push(Effect::Measure(Measure::Held { model, prompt, output: held_output }));
            if bound.is_none() && prepared.missing_limit() != MissingOutputLimit::HoldMax {
                let model = hold.model.clone();
                effects.push(Effect::Measure(Measure::UnboundedOutput { model }));
            }
        }
        let request = charge::Request {
            prompt_tokens: prepared.prompt_tokens,
            held_output,
            output_bound: bound.map(|limit| limit.saturating_mul(choices)),
            stream: prepared.stream,
            reasoning: prepared.models().any(|model| model.reasoning),
            has_hold: hold.reserve.is_none(),
            is_listed: prepared.endpoint == LISTED,
        };
        let overrun = (prepared.stream
            && request.has_hold
            && (env.config.overrun, env.config.mode) == (config::Overrun::Stop, Mode::Enforce))
            .then(|| {
                let most = prepared.models().map(|model| model.max_output_tokens).collect::<Option<Vec<_>>>();
                let most = most.and_then(|most| most.into_iter().max());
                let most = most.map(|most| most.saturating_mul(u64::from(prepared.choices)));
                Overrun::new(held_output, most, bound.is_some())
            });
        let admitted = Admitted::new(hold, request, prepared.model.encoding, caller.format)
            .with_response_headers(headers)
            .hiding_usage(hides_usage)
            .bodyless(caller.is_bodyless)
            .watching(overrun);
        (Stream::Admitted(Box::new(admitted)), effects)
    }
}

/// Why a request was let go without a hold of its own.
enum Mark {
    Degraded,
    /// It would have been refused with this code.
    Observed(Cow<'static, str>),
}

impl Mark {
    fn header(self) -> (&'static str, String) {
        match self {
            Self::Degraded => ("x-tokengate-degraded", "open".to_owned()),
            Self::Observed(code) => (super::OBSERVED_HEADER, code.into_owned()),
        }
    }
}

/// What an answer says of its caller.
pub fn learned(caller: &Caller, answer: &ReserveResponse) -> Option<Effect> {
    let is_known = match (answer.decision, &answer.reason) {
        (Decision::Deny, Some(Reason::UnknownKey)) => false,
        // Not for who it is, or not always.
        (Decision::Deny, Some(Reason::InvalidIdentity) | None) | (Decision::Gone, _) => return None,
        (Decision::Allow | Decision::Deny, _) => true,
    };
    let policy_version = answer.policy_version.clone();
    Some(Effect::LearnCaller { caller: caller.id, is_known, policy_version })
}
