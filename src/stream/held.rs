//! A metered request while its body arrives, and on until its prompt is counted.

use std::borrow::Cow;

use super::inflating::Inflating;
use super::report::Measure;
use super::reserving::{self, Prepared};
use super::{Caller, Effect, Env, Step, Stream};
use crate::dialect::openai::{self, Prompt};
use crate::dialect::refusal::Refusal;
use crate::models::Model;
use crate::paths::CHAT_COMPLETIONS;
use tokengate_api::{MissingOutputLimit, UsageChunk, model_name};

/// The most of a body that one step counts, in bytes: a worker that counts serves nobody.
pub const SLICE: usize = 16 * 1024;

pub struct Held {
    caller: Caller,
    is_gzip: bool,
    prompt: Prompt,
}

impl Held {
    pub fn new(caller: Caller, is_gzip: bool) -> Self {
        Self { caller, is_gzip, prompt: Prompt::default() }
    }

    pub fn body(self: Box<Self>, env: &Env<'_>, length: usize) -> Step {
        let limit = env.config.max_body_bytes.0;
        if length > limit {
            return Stream::refuse(env, Refusal::too_large(limit), self.caller.format);
        }
        (Stream::Held(self), Vec::new())
    }

    /// Where in the body to count on. A coded body is counted at its end.
    pub fn counts_from(&self) -> Option<usize> {
        (!self.is_gzip).then(|| self.prompt.position())
    }

    /// Counts along.
    pub fn piece(mut self: Box<Self>, env: &Env<'_>, bytes: &[u8]) -> Step {
        if bytes.is_empty() {
            return Stream::refuse(env, Refusal::misconfigured_proxy(), self.caller.format);
        }
        self.prompt.push(bytes, |name| Some(find_model(env, name)?.1.rules()));
        (Stream::Held(self), Vec::new())
    }

    /// Waiting on would be for ever.
    pub fn withheld(self: Box<Self>, env: &Env<'_>) -> Step {
        Stream::refuse(env, Refusal::misconfigured_proxy(), self.caller.format)
    }

    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Its body will be inflated, and kept so until it is counted.
    pub fn is_packed(&self) -> bool {
        self.is_gzip
    }

    /// Reads the request as a whole, counts on and asks for its tokens when all is counted.
    pub fn end(self: Box<Self>, env: &Env<'_>, body: &[u8]) -> Step {
        let Self { caller, is_gzip, prompt } = *self;
        if is_gzip {
            return Inflating::begin(env, caller, prompt, body);
        }
        read(env, caller, prompt, Cow::Borrowed(body), is_gzip)
    }
}

/// Reads the whole plain body, and begins or goes on counting it.
pub fn read(env: &Env<'_>, caller: Caller, mut prompt: Prompt, plain: Cow<'_, [u8]>, is_gzip: bool) -> Step {
    match prepare(env, &plain, is_gzip) {
        Ok(prepared) => {
            prompt.choose(prepared.model.rules());
            count(&mut prompt, &plain);
            let length = plain.len();
            let kept = if let Cow::Owned(plain) = plain { Some(plain) } else { None };
            Box::new(Counting { caller, prepared, prompt, length, kept }).go_on(env)
        }
        Err(refusal) => Stream::refuse(env, *refusal, caller.format),
    }
}

/// Counts the next slice of a whole body.
fn count(prompt: &mut Prompt, body: &[u8]) {
    let start = prompt.position();
    let end = start.saturating_add(SLICE).min(body.len());
    prompt.push(body.get(start..end).unwrap_or(&[]), |_| None);
}

/// A request whose body is whole and not counted yet.
pub struct Counting {
    caller: Caller,
    prepared: Prepared,
    prompt: Prompt,
    /// Of the plain body.
    length: usize,
    /// The plain body, where the proxy has it packed.
    kept: Option<Vec<u8>>,
}

impl Counting {
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Where in the proxy's body to count on.
    pub fn counts_from(&self) -> Option<usize> {
        self.kept.is_none().then(|| self.prompt.position())
    }

    pub fn piece(mut self: Box<Self>, env: &Env<'_>, bytes: &[u8]) -> Step {
        match &self.kept {
            Some(body) => count(&mut self.prompt, body),
            None if bytes.is_empty() => {
                return Stream::refuse(env, Refusal::misconfigured_proxy(), self.caller.format);
            }
            None => self.prompt.push(bytes, |_| None),
        }
        self.go_on(env)
    }

    fn go_on(self: Box<Self>, env: &Env<'_>) -> Step {
        if !self.prompt.is_done() && self.prompt.position() < self.length {
            return (Stream::Counting(self), Vec::new());
        }
        let Self { caller, mut prepared, prompt, .. } = *self;
        if let Some(fault) = prompt.fault() {
            let refusal = Refusal::bad_request(openai::ambiguous(fault));
            return Stream::refuse(env, refusal, caller.format);
        }
        prepared.prompt_tokens = prepared.held(&prompt);
        prepared.unknown_tokens = prepared.model.held(prompt.unknown_tokens());
        let is_fallback = prepared.model.is_fallback;
        let (stream, mut effects) = reserving::begin(env, caller, prepared);
        if is_fallback {
            // Before the reserve, which may fail at once.
            effects.insert(0, Effect::Measure(Measure::FallbackCount));
        }
        (stream, effects)
    }
}

/// The spelling of a client's model name that is asked for, and what is known of the model.
fn find_model(env: &Env<'_>, name: &str) -> Option<(String, Model)> {
    let spelling = model_name::spellings(name).into_iter().next()?;
    let model = env.models.find(&spelling);
    Some((spelling, model))
}

/// All but the count.
fn prepare(env: &Env<'_>, body: &[u8], is_gzip: bool) -> Result<Prepared, Box<Refusal>> {
    let request = openai::parse(body).map_err(|error| Box::new(Refusal::bad_request(error)))?;
    let (model_name, model) =
        find_model(env, &request.model).ok_or_else(|| Box::new(Refusal::model_not_found(&request.model)))?;
    let mut alternatives: Vec<(String, Model)> = Vec::new();
    for name in &request.alternatives {
        let found = find_model(env, name);
        let found = found.ok_or_else(|| Box::new(Refusal::bad_request(openai::no_such_alternative())))?;
        if found.0 != model_name && alternatives.iter().all(|(name, _)| *name != found.0) {
            alternatives.push(found);
        }
    }
    let (alternative_names, alternatives): (Vec<_>, Vec<_>) = alternatives.into_iter().unzip();
    let output_limits = request.output_limits();
    let asked = request.max_output_tokens();
    let prepared = Prepared {
        endpoint: CHAT_COMPLETIONS,
        prompt_tokens: 0,
        unknown_tokens: 0,
        max_output_tokens: asked.map(|asked| asked.min(model.max_output_tokens.unwrap_or(u64::MAX))),
        choices: request.choices,
        stream: request.stream,
        include_usage: request.include_usage().filter(|_| model.usage_chunk == UsageChunk::Ask),
        output_limits,
        service_tier: request.service_tier,
        is_gzip,
        model_name: Some(model_name),
        model,
        alternative_names,
        alternatives,
    };
    if asked.is_none() && prepared.missing_limit() == MissingOutputLimit::Refuse {
        return Err(Box::new(Refusal::bad_request(openai::missing_output_limit())));
    }
    Ok(prepared)
}
