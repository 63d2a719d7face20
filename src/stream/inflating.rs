//! A metered request whose body is whole and packed: it is inflated a little in each step, for a worker that
//! inflates serves nobody.

use std::borrow::Cow;

use super::{Caller, Env, SLICE, Step, Stream, held};
use crate::dialect::openai::Prompt;
use crate::dialect::refusal::Refusal;
use crate::gzip::Inflater;

/// What one step makes, about: inflating is faster than counting.
const PART: usize = 4 * SLICE;

pub struct Inflating {
    caller: Caller,
    prompt: Prompt,
    packed: Vec<u8>,
    position: usize,
    inflater: Inflater,
    plain: Vec<u8>,
}

impl Inflating {
    pub fn begin(env: &Env<'_>, caller: Caller, prompt: Prompt, packed: &[u8]) -> Step {
        let (packed, inflater) = (packed.to_vec(), Inflater::default());
        Box::new(Self { caller, prompt, packed, position: 0, inflater, plain: Vec::new() }).piece(env)
    }

    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    pub fn piece(mut self: Box<Self>, env: &Env<'_>) -> Step {
        let format = self.caller.format;
        let limit = env.config.max_body_bytes.0;
        let enough = self.plain.len().saturating_add(PART);
        while self.position < self.packed.len() && self.plain.len() < enough {
            let Some(end) = self.inflater.next_part(&self.packed, self.position, &mut self.plain) else {
                return Stream::refuse(env, Refusal::malformed_gzip(), format);
            };
            self.position = end;
            if self.plain.len() > limit {
                return Stream::refuse(env, Refusal::too_large(limit), format);
            }
        }
        if self.position < self.packed.len() {
            return (Stream::Inflating(self), Vec::new());
        }
        let Self { caller, prompt, mut inflater, plain, .. } = *self;
        if !inflater.is_whole() {
            return Stream::refuse(env, Refusal::malformed_gzip(), format);
        }
        held::read(env, caller, prompt, Cow::Owned(plain), true)
    }
}
