//! A metered request while its body arrives.

use super::reserving::{self, Prepared};
use super::{Caller, Env, Step, Stream};
use crate::dialect::openai;
use crate::dialect::refusal::Refusal;
use crate::paths::CHAT_COMPLETIONS;
use tokengate_api::model_name;

pub struct Held {
    caller: Caller,
}

impl Held {
    pub fn new(caller: Caller) -> Self {
        Self { caller }
    }

    pub fn body(self, env: &Env<'_>, length: usize) -> Step {
        let limit = env.config.max_body_bytes.0;
        if length > limit {
            return Stream::refuse(Refusal::too_large(limit), self.caller.format);
        }
        (Stream::Held(self), Vec::new())
    }

    /// Waiting on would be for ever.
    pub fn withheld(self) -> Step {
        Stream::refuse(Refusal::misconfigured_proxy(), self.caller.format)
    }

    /// Reads the request, counts it and asks for its tokens.
    pub fn end(self, env: &Env<'_>, body: &[u8]) -> Step {
        let request = match openai::parse(body) {
            Ok(request) => request,
            Err(error) => return Stream::refuse(Refusal::bad_request(error), self.caller.format),
        };
        let Some(model_name) = model_name::spellings(&request.model).into_iter().next() else {
            return Stream::refuse(Refusal::model_not_found(&request.model), self.caller.format);
        };
        let model = env.models.find(&model_name);
        let asked = request.max_output_tokens();
        let prepared = Prepared {
            endpoint: CHAT_COMPLETIONS,
            prompt_tokens: request.prompt_tokens(model.encoding, &model.name),
            max_output_tokens: asked.map(|asked| asked.min(model.max_output_tokens.unwrap_or(u64::MAX))),
            choices: request.choices,
            stream: request.stream,
            include_usage: request.include_usage(),
            output_limits: request.output_limits(),
            body_length: body.len(),
            model_name: Some(model_name),
            model,
        };
        reserving::begin(env, self.caller, prepared)
    }
}
