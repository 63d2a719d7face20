//! The numbers of a usage report, under the names that servers give them.

use tokengate_api::Usage;

use crate::json::scan::{Frame, Name};

use Frame::Member;

/// A report with more tokens than this in any class is no report.
pub const MOST: u64 = 100_000_000;

/// What reports say so far. A number is the largest of those that one report gives for the same thing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    prompt: Option<u64>,
    /// By the name that some servers use for a prompt without what was read from or written to a cache.
    input: Option<u64>,
    completion: Option<u64>,
    total: Option<u64>,
    cached: Option<u64>,
    cache_write: Option<u64>,
    /// The same by the names that go with `input`.
    input_cached: Option<u64>,
    input_cache_write: Option<u64>,
    reasoning: Option<u64>,
    is_absurd: bool,
}

impl Report {
    /// Whether `path`, below the usage object, leads to a number of the report.
    pub fn has(path: &[Frame]) -> bool {
        Self::default().slot(path).is_some()
    }

    /// Takes a number as it is written.
    pub fn number(&mut self, path: &[Frame], literal: &[u8]) {
        let Some(number) = number(literal) else { return };
        if let Some(slot) = self.slot(path) {
            *slot = Some(slot.unwrap_or(0).max(number));
            self.is_absurd |= number > MOST;
        }
    }

    fn slot(&mut self, path: &[Frame]) -> Option<&mut Option<u64>> {
        Some(match path {
            [Member(Name::PromptTokens)] => &mut self.prompt,
            [Member(Name::InputTokens)] => &mut self.input,
            [Member(Name::CompletionTokens | Name::OutputTokens)] => &mut self.completion,
            [Member(Name::TotalTokens)] => &mut self.total,
            [Member(Name::CachedTokens | Name::PromptCacheHitTokens)]
            | [Member(Name::PromptTokensDetails | Name::InputTokensDetails), Member(Name::CachedTokens)] => {
                &mut self.cached
            }
            [
                Member(Name::PromptTokensDetails | Name::InputTokensDetails),
                Member(Name::CacheWriteTokens),
            ] => &mut self.cache_write,
            [Member(Name::CacheReadInputTokens)] => &mut self.input_cached,
            [Member(Name::CacheCreationInputTokens)] => &mut self.input_cache_write,
            [Member(Name::ReasoningTokens)]
            | [
                Member(Name::CompletionTokensDetails | Name::OutputTokensDetails),
                Member(Name::ReasoningTokens),
            ] => &mut self.reasoning,
            _ => return None,
        })
    }

    /// Takes what a later report says, and whether it says anything. A number that it leaves out, or says to be
    /// zero, stays.
    pub fn replace(&mut self, later: &Self) -> bool {
        if later.is_absurd {
            return false;
        }
        let says = |number: Option<u64>| number.is_some_and(|number| number > 0);
        let parts =
            [(self.prompt, later.prompt), (self.input, later.input), (self.completion, later.completion)];
        if parts.into_iter().any(|(old, new)| says(new) && old != new) {
            // The old sum is not that of the new parts.
            self.total = None;
        }
        for (slot, new) in [
            (&mut self.prompt, later.prompt),
            (&mut self.input, later.input),
            (&mut self.completion, later.completion),
            (&mut self.total, later.total),
            (&mut self.cached, later.cached),
            (&mut self.cache_write, later.cache_write),
            (&mut self.input_cached, later.input_cached),
            (&mut self.input_cache_write, later.input_cache_write),
            (&mut self.reasoning, later.reasoning),
        ] {
            if says(new) || slot.is_none() {
                *slot = new;
            }
        }
        later.usage().is_some()
    }

    /// No part of the sum is known.
    pub fn is_sum_only(&self) -> bool {
        [self.prompt, self.input, self.completion].into_iter().flatten().all(|part| part == 0)
    }

    /// The classes made disjoint; `None` when there is no number to use.
    pub fn usage(&self) -> Option<Usage> {
        let zero = |number: Option<u64>| number.unwrap_or(0);
        let total = zero(self.total);
        let cached = zero(self.cached).max(zero(self.input_cached));
        let cache_write = zero(self.cache_write).max(zero(self.input_cache_write));
        let mut prompt = self.prompt.filter(|prompt| *prompt > 0).or(self.input);
        if let (Some(0) | None, Some(input)) = (self.prompt, self.input) {
            // What was cached comes on top, unless the total says that it is a part.
            let beside = zero(self.input_cached).saturating_add(zero(self.input_cache_write));
            let parts = input.saturating_add(zero(self.completion));
            if total == 0 || total >= parts.saturating_add(beside) {
                prompt = Some(input.saturating_add(beside));
            }
        }
        let (prompt, completion) = match (prompt, self.completion) {
            (None, None) => (total, 0),
            (None, Some(completion)) => (total.saturating_sub(completion), completion),
            (Some(prompt), None) => (prompt, total.saturating_sub(prompt)),
            (Some(prompt), Some(completion)) => (prompt, completion),
        };
        // Some servers count reasoning in the total only.
        let beyond = total.saturating_sub(prompt.saturating_add(completion));
        if prompt == 0 && completion == 0 && beyond == 0 {
            return None;
        }
        let cache_read = cached.min(prompt);
        let cache_write = cache_write.min(prompt.saturating_sub(cache_read));
        let reasoning = zero(self.reasoning).saturating_sub(beyond).min(completion);
        Some(Usage {
            input: prompt.saturating_sub(cache_read).saturating_sub(cache_write),
            cache_read,
            cache_write,
            output: completion.saturating_sub(reasoning),
            reasoning: reasoning.saturating_add(beyond),
        })
    }
}

/// A number of tokens: a whole number that is not negative, however it is written. One that is too large for
/// any type is larger than any limit.
fn number(literal: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(literal).ok()?.trim();
    if !text.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    text.parse::<u64>().ok().or_else(|| {
        let number =
            text.parse::<f64>().ok().filter(|number| number.fract() == 0.0 || number.is_infinite())?;
        // Saturates.
        Some(number as u64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_servers_write_them() {
        for (literal, expected) in [
            ("12", Some(12)),
            ("12.0", Some(12)),
            ("1.2e1", Some(12)),
            ("1e400", Some(u64::MAX)),
            ("99999999999999999999", Some(u64::MAX)),
            ("-5", None),
            ("1.5", None),
            ("NaN", None),
            ("Infinity", None),
            ("-Infinity", None),
            ("null", None),
            ("", None),
        ] {
            assert_eq!(number(literal.as_bytes()), expected, "{literal}");
        }
    }

    fn report(numbers: &[(&[Name], u64)]) -> Report {
        let mut report = Report::default();
        for (path, number) in numbers {
            let path: Vec<Frame> = path.iter().map(|name| Member(*name)).collect();
            assert!(Report::has(&path));
            report.number(&path, number.to_string().as_bytes());
        }
        report
    }

    const PROMPT: &[Name] = &[Name::PromptTokens];
    const COMPLETION: &[Name] = &[Name::CompletionTokens];
    const TOTAL: &[Name] = &[Name::TotalTokens];
    const REASONING: &[Name] = &[Name::CompletionTokensDetails, Name::ReasoningTokens];

    #[test]
    fn the_rest_of_a_total_is_reasoning() {
        for (numbers, expected) in [
            (vec![(PROMPT, 10), (COMPLETION, 5), (TOTAL, 40)], (10, 5, 25)),
            (vec![(PROMPT, 10), (COMPLETION, 5), (TOTAL, 40), (REASONING, 25)], (10, 5, 25)),
            (vec![(PROMPT, 10), (COMPLETION, 5), (TOTAL, 40), (REASONING, 27)], (10, 3, 27)),
            (vec![(PROMPT, 10), (COMPLETION, 5), (TOTAL, 15), (REASONING, 3)], (10, 2, 3)),
            (vec![(PROMPT, 10), (COMPLETION, 5), (TOTAL, 15), (REASONING, 30)], (10, 0, 5)),
            (vec![(PROMPT, 10), (COMPLETION, 5), (TOTAL, 3)], (10, 5, 0)),
            (vec![(PROMPT, 10), (COMPLETION, 0), (TOTAL, 14)], (10, 0, 4)),
            (vec![(PROMPT, 10), (TOTAL, 14)], (10, 4, 0)),
            (vec![(COMPLETION, 10), (TOTAL, 4)], (0, 10, 0)),
        ] {
            let usage = report(&numbers).usage().unwrap_or_default();
            assert_eq!((usage.input, usage.output, usage.reasoning), expected, "{numbers:?}");
        }
    }

    #[test]
    fn what_was_cached_by_any_name() {
        let details: &[Name] = &[Name::PromptTokensDetails, Name::CachedTokens];
        let (input, read): (&[Name], &[Name]) = (&[Name::InputTokens], &[Name::CacheReadInputTokens]);
        let write: &[Name] = &[Name::CacheCreationInputTokens];
        for (numbers, expected) in [
            (vec![(PROMPT, 100), (details, 60)], (40, 60, 0)),
            (vec![(PROMPT, 100), (&[Name::PromptCacheHitTokens][..], 60)], (40, 60, 0)),
            (vec![(PROMPT, 100), (&[Name::CachedTokens][..], 60), (details, 60)], (40, 60, 0)),
            (vec![(PROMPT, 100), (read, 60), (write, 10)], (30, 60, 10)),
            (vec![(input, 100), (read, 60), (write, 10)], (100, 60, 10)),
            (vec![(input, 100), (read, 60), (TOTAL, 100)], (40, 60, 0)),
            (vec![(PROMPT, 0), (input, 7)], (7, 0, 0)),
            (vec![(PROMPT, 10), (details, 99)], (0, 10, 0)),
        ] {
            let usage = report(&numbers).usage().unwrap_or_default();
            assert_eq!((usage.input, usage.cache_read, usage.cache_write), expected, "{numbers:?}");
        }
    }
}
