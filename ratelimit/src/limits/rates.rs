use tokengate_api::Usage;

use super::MAX_AMOUNT;

/// What one limit counts of a request: `ceil(Σ class × rate / per)`.
///
/// Tokens count 1 of each class with `per` 1; weights are thousandths; prices are pico-dollars per token with
/// `per` 1000, so that the sum is nano-dollars with one rounding. Self-contained: a record keeps it, and a
/// settle never asks today's prices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rates {
    /// For the request itself, whatever its size.
    pub request: u64,
    pub input: u64,
    pub cache_read: u64,
    pub cache_write: u64,
    pub output: u64,
    pub reasoning: u64,
    /// At least 1.
    pub per: u64,
}

impl Rates {
    pub const REQUESTS: Self =
        Self { request: 1, input: 0, cache_read: 0, cache_write: 0, output: 0, reasoning: 0, per: 1 };
    pub const TOKENS: Self =
        Self { request: 0, input: 1, cache_read: 1, cache_write: 1, output: 1, reasoning: 1, per: 1 };
    pub const INPUT_TOKENS: Self = Self { output: 0, reasoning: 0, ..Self::TOKENS };
    pub const OUTPUT_TOKENS: Self = Self { input: 0, cache_read: 0, cache_write: 0, ..Self::TOKENS };

    /// What a finished request costs. Above 2^52 it is 2^52 + 1: it fits no limit.
    pub fn of_usage(&self, usage: &Usage) -> u64 {
        let classes = [
            (1, self.request),
            (usage.input, self.input),
            (usage.cache_read, self.cache_read),
            (usage.cache_write, self.cache_write),
            (usage.output, self.output),
            (usage.reasoning, self.reasoning),
        ];
        let product = |(amount, rate)| u128::from(amount).saturating_mul(u128::from(rate));
        self.counted(classes.map(product).into_iter().fold(0, u128::saturating_add))
    }

    /// What has to be held: every prompt token at the dearest class it can turn out to be, and so the output.
    pub fn of_hold(&self, prompt_tokens: u64, output_tokens: u64) -> u64 {
        self.counted(self.hold_sum(prompt_tokens, output_tokens))
    }

    /// The same before it is divided by `per`.
    pub fn hold_sum(&self, prompt_tokens: u64, output_tokens: u64) -> u128 {
        let product = |amount: u64, rate: u64| u128::from(amount).saturating_mul(u128::from(rate));
        u128::from(self.request)
            .saturating_add(product(prompt_tokens, self.dearest_input()))
            .saturating_add(product(output_tokens, self.dearest_output()))
    }

    /// Class by class the larger of both, which divide by the same.
    #[must_use]
    pub fn larger(self, other: &Self) -> Self {
        Self {
            request: self.request.max(other.request),
            input: self.input.max(other.input),
            cache_read: self.cache_read.max(other.cache_read),
            cache_write: self.cache_write.max(other.cache_write),
            output: self.output.max(other.output),
            reasoning: self.reasoning.max(other.reasoning),
            per: self.per.min(other.per),
        }
    }

    pub fn dearest_input(&self) -> u64 {
        self.input.max(self.cache_read).max(self.cache_write)
    }

    pub fn dearest_output(&self) -> u64 {
        self.output.max(self.reasoning)
    }

    /// Counts tokens at all, so that a release gives its charge back.
    pub fn by_tokens(&self) -> bool {
        self.dearest_input() > 0 || self.dearest_output() > 0
    }

    fn counted(&self, sum: u128) -> u64 {
        let whole = sum.div_ceil(u128::from(self.per.max(1)));
        u64::try_from(whole).unwrap_or(u64::MAX).min(MAX_AMOUNT + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// gpt-4.1: 2, 0.5 and 8 dollars per million.
    const PRICE: Rates = Rates {
        request: 0,
        input: 2_000_000,
        cache_read: 500_000,
        cache_write: 2_000_000,
        output: 8_000_000,
        reasoning: 8_000_000,
        per: 1000,
    };

    #[test]
    fn money_is_rounded_up_once() {
        let usage = Usage { input: 1000, cache_read: 200, cache_write: 0, output: 300, reasoning: 50 };
        // 2,000 + 100 + 2,400 + 400 micro-dollars.
        assert_eq!(PRICE.of_usage(&usage), 4_900_000);
        let third = Rates { input: 333_333, per: 1000, ..Rates::OUTPUT_TOKENS };
        let third = Rates { output: 0, reasoning: 0, ..third };
        assert_eq!(third.of_usage(&Usage { input: 1, ..Usage::default() }), 334);
        assert_eq!(third.of_usage(&Usage { input: 3, ..Usage::default() }), 1000);
        assert_eq!(third.of_usage(&Usage::default()), 0);
    }

    #[test]
    fn a_hold_is_never_below_any_usage_within_it() {
        let usage = Usage { input: 100, cache_read: 0, cache_write: 0, output: 40, reasoning: 10 };
        for rates in [PRICE, Rates::TOKENS, Rates::INPUT_TOKENS, Rates::OUTPUT_TOKENS, Rates::REQUESTS] {
            assert!(rates.of_hold(100, 50) >= rates.of_usage(&usage), "{rates:?}");
        }
    }

    #[test]
    fn what_cannot_be_counted_fits_no_limit() {
        assert_eq!(Rates::TOKENS.of_hold(u64::MAX, u64::MAX), MAX_AMOUNT + 1);
        let all = Usage {
            input: u64::MAX,
            cache_read: u64::MAX,
            cache_write: u64::MAX,
            output: u64::MAX,
            reasoning: u64::MAX,
        };
        assert_eq!(PRICE.of_usage(&all), MAX_AMOUNT + 1);
        assert_eq!(Rates::TOKENS.of_hold(MAX_AMOUNT, 0), MAX_AMOUNT);
    }
}
