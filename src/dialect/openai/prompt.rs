//! Counts a chat request's prompt while its body arrives. Each byte is read once; only tools, and a content part
//! whose `type` comes after what it says or is none of a text, are read twice.

use super::count::Count;
use crate::json::Fault;
use crate::json::walk::Walker;
use crate::tokenizer::{PROMPT_OVERHEAD, Rules, image};

/// The tokens of a prompt as far as its body was read.
#[derive(Debug, Default)]
pub struct Prompt {
    walker: Walker,
    count: Count,
}

impl Prompt {
    /// The byte of the body to go on from. It is less than before where something must be read again.
    pub fn position(&self) -> usize {
        self.walker.at()
    }

    /// All that counts was read.
    pub fn is_done(&self) -> bool {
        self.walker.is_done()
    }

    /// Reads on. `bytes` begin at [`position`](Self::position); what they are may be read a second time, so
    /// the work is at most twice their length. `find` gives the rules of a model, by the client's name.
    pub fn push(&mut self, bytes: &[u8], find: impl Fn(&str) -> Option<Rules>) {
        let start = self.walker.at();
        while self.walker.push(start, bytes, &mut self.count) {
            if self.count.rules.is_none()
                && let Some(rules) = self.count.model.take().and_then(|name| find(&name))
            {
                self.start(rules);
            }
        }
    }

    /// Counts by these rules, from the start if it did by others.
    pub fn choose(&mut self, rules: Rules) {
        match self.count.rules {
            None => self.start(rules),
            Some(chosen) if chosen == rules => {}
            Some(_) => {
                *self = Self::default();
                self.count.rules = Some(rules);
            }
        }
    }

    fn start(&mut self, rules: Rules) {
        self.count.rules = Some(rules);
        if let Some(key_at) = self.count.skipped_at.take() {
            self.walker.go_back_to_member(key_at);
        }
    }

    /// Why the body is not for certain what was counted.
    pub fn fault(&self) -> Option<Fault> {
        self.count.fault
    }

    /// Prompt tokens for a model by its normalised name. A body whose end was not reached is no request.
    pub fn tokens(&self, model: &str) -> u64 {
        let Count { total, ids, images, low_images, .. } = &self.count;
        let images = images.saturating_mul(image::tokens(model, false));
        let low_images = low_images.saturating_mul(image::tokens(model, true));
        [PROMPT_OVERHEAD, *total, images, low_images].into_iter().fold(0, u64::saturating_add).max(*ids)
    }

    /// Tokens of long members that nobody knows: a provider may make them a part of the prompt.
    pub fn unknown_tokens(&self) -> u64 {
        self.count.unknown
    }
}

#[cfg(test)]
#[path = "prompt_tests.rs"]
mod tests;
