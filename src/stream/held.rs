//! A metered request while its body arrives.

use std::borrow::Cow;

use super::reserving::{self, Prepared};
use super::{Caller, Env, Step, Stream};
use crate::dialect::openai;
use crate::dialect::refusal::Refusal;
use crate::gzip::{self, InflateError};
use crate::paths::CHAT_COMPLETIONS;
use tokengate_api::model_name;

pub struct Held {
    caller: Caller,
    is_gzip: bool,
}

impl Held {
    pub fn new(caller: Caller, is_gzip: bool) -> Self {
        Self { caller, is_gzip }
    }

    pub fn body(self, env: &Env<'_>, length: usize) -> Step {
        let limit = env.config.max_body_bytes.0;
        if length > limit {
            return Stream::refuse(env, Refusal::too_large(limit), self.caller.format);
        }
        (Stream::Held(self), Vec::new())
    }

    /// Waiting on would be for ever.
    pub fn withheld(self, env: &Env<'_>) -> Step {
        Stream::refuse(env, Refusal::misconfigured_proxy(), self.caller.format)
    }

    /// Reads the request, counts it and asks for its tokens.
    pub fn end(self, env: &Env<'_>, body: &[u8]) -> Step {
        let format = self.caller.format;
        match prepare(env, body, self.is_gzip) {
            Ok(prepared) => reserving::begin(env, self.caller, prepared),
            Err(refusal) => Stream::refuse(env, *refusal, format),
        }
    }
}

fn prepare(env: &Env<'_>, body: &[u8], is_gzip: bool) -> Result<Prepared, Box<Refusal>> {
    let limit = env.config.max_body_bytes.0;
    let body = match is_gzip {
        false => Cow::Borrowed(body),
        true => Cow::Owned(gzip::inflate(body, limit).map_err(|error| {
            Box::new(match error {
                InflateError::TooLarge => Refusal::too_large(limit),
                InflateError::Malformed => Refusal::malformed_gzip(),
            })
        })?),
    };
    let request = openai::parse(&body).map_err(|error| Box::new(Refusal::bad_request(error)))?;
    let model_name = model_name::spellings(&request.model).into_iter().next();
    let model_name = model_name.ok_or_else(|| Box::new(Refusal::model_not_found(&request.model)))?;
    let model = env.models.find(&model_name);
    let asked = request.max_output_tokens();
    Ok(Prepared {
        endpoint: CHAT_COMPLETIONS,
        prompt_tokens: request.prompt_tokens(model.encoding, &model.name),
        max_output_tokens: asked.map(|asked| asked.min(model.max_output_tokens.unwrap_or(u64::MAX))),
        choices: request.choices,
        stream: request.stream,
        include_usage: request.include_usage(),
        output_limits: request.output_limits(),
        is_gzip,
        model_name: Some(model_name),
        model,
    })
}
