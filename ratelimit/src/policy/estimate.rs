//! How much of a limit can be used while holds are larger than use: for `check`, not for decisions.
//!
//! A request holds `k` times what it uses and gives the rest back when it ends, after `D`. While callers take
//! whatever is free:
//! - fixed window of length W: each round of holds leaves `1 − 1/k` of what it took for the next, and
//!   `max(1, W/D)` rounds fit: `1 − (1 − 1/k)^max(1, W/D)`.
//! - sliding window in N parts: a charge counts for W' = W + W/2N on average, so a request takes its hold for D
//!   and its use for W' − D: `W / (W' + (k − 1) × min(D, W'))`.
//! - bucket of B, refilled by r: what comes back while a request runs must find room: `B / (k × r × D)`, at
//!   least `1/k`.
//!
//! All requests are taken to be alike, none waits, and amounts do not come in steps; the figures are good to about
//! ten points.

use tokengate_api::{MissingOutputLimit, ModelInfo, Usage};

use super::{Count, DEFAULT_OUTPUT_TOKENS, Limit, Shape};

/// What a request is taken to be where the policy cannot know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assumed {
    pub prompt_tokens: u64,
    /// Tokens that are produced; none: a quarter of what is held.
    pub output_tokens: Option<u64>,
    pub tokens_per_second: u64,
}

impl Default for Assumed {
    fn default() -> Self {
        Self { prompt_tokens: 500, output_tokens: None, tokens_per_second: 50 }
    }
}

impl Assumed {
    /// Output tokens that are produced where so many are held; at least 1.
    pub fn output_of(&self, held: u64) -> u64 {
        self.output_tokens.unwrap_or(held / 4).min(held).max(1)
    }
}

/// Output tokens that a request without an output limit holds; nothing when it is refused.
pub fn default_output(model: &ModelInfo) -> Option<u64> {
    let max = model.max_output_tokens.unwrap_or(u64::MAX);
    match model.output_limit.missing {
        MissingOutputLimit::Refuse => None,
        MissingOutputLimit::HoldMax => Some(max),
        MissingOutputLimit::HoldDefault | MissingOutputLimit::WriteDefault => {
            Some(model.default_output_tokens.unwrap_or(DEFAULT_OUTPUT_TOKENS).min(max))
        }
    }
}

/// How a request without an output limit and one limit get along.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// In units of the limit's count.
    pub hold: u64,
    /// Holds that fit the limit at once.
    pub fit: u64,
    /// Of the limit's amount that can be used, 0 to 1; none where nothing is given back.
    pub utilisation: Option<f64>,
    /// Requests a minute when all of it is used; none where time does not bring anything back.
    pub per_minute: Option<f64>,
}

/// Nothing when the model refuses such requests.
pub fn estimate(limit: &Limit, amount: u64, model: &ModelInfo, assumed: Assumed) -> Option<Estimate> {
    let held_output = default_output(model)?;
    let output = assumed.output_of(held_output);
    let usage = Usage { input: assumed.prompt_tokens, output, ..Usage::default() };
    let held_rates = limit.hold_rates(model, None, assumed.prompt_tokens, held_output);
    let hold = held_rates.of_hold(assumed.prompt_tokens, held_output).max(1);
    let used = limit.rates(model).of_usage(&usage).max(1);
    let seconds = float(output) / float(assumed.tokens_per_second.max(1));
    let utilisation = limit
        .count
        .by_usage()
        .then(|| usable(&limit.shape, float(amount), float(hold) / float(used), seconds))
        .flatten();
    let used_amount = utilisation.unwrap_or(1.0) * float(amount) / float(used);
    let per_minute = match &limit.shape {
        Shape::TokenBucket { amount, every_ms } => {
            Some(utilisation.unwrap_or(1.0) * float(*amount) / float(used) * 60_000.0 / float(*every_ms))
        }
        Shape::Concurrency { .. } => Some(float(amount) * 60.0 / seconds),
        shape => shape.window_ms().map(|window_ms| used_amount * 60_000.0 / float(window_ms)),
    };
    Some(Estimate { hold, fit: amount / hold, utilisation, per_minute })
}

/// The formulas of this module's head: `k` ≥ 1, times in seconds.
fn usable(shape: &Shape, amount: f64, k: f64, duration: f64) -> Option<f64> {
    let k = k.max(1.0);
    let share = match shape {
        Shape::SlidingWindow { length_ms, sub_windows } => {
            let window = float(*length_ms) / 1000.0;
            let counted = window + window / (2.0 * f64::from(*sub_windows));
            window / (counted + (k - 1.0) * duration.min(counted))
        }
        Shape::TokenBucket { amount: refill, every_ms } => {
            let rate = float(*refill) / (float(*every_ms) / 1000.0);
            (amount / (k * rate * duration)).max(1.0 / k)
        }
        shape => {
            let window = float(shape.window_ms()?) / 1000.0;
            1.0 - (1.0 - 1.0 / k).powf((window / duration).max(1.0))
        }
    };
    Some(share.min(1.0))
}

/// Estimates need no last digit.
#[allow(clippy::cast_precision_loss)]
fn float(amount: u64) -> f64 {
    amount as f64
}

impl Estimate {
    pub fn percent(&self) -> Option<String> {
        self.utilisation.map(|share| format!("{:.0} %", share * 100.0))
    }
}

impl Count {
    /// `1524 tokens`, `$0.01`
    pub(super) fn show_with_unit(self, amount: u64) -> String {
        match self {
            Self::Cost => self.show(amount),
            Self::InFlight => format!("{amount} under way"),
            _ => format!("{amount} {}", self.name().replace('_', " ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What LIMITER §2 measured at a hold of four times the use, in per cent.
    #[test]
    fn is_near_what_was_measured() {
        let sliding = Shape::SlidingWindow { length_ms: 60_000, sub_windows: 60 };
        let fixed = Shape::FixedWindow { length_ms: 60_000 };
        for (shape, seconds, measured) in [
            (&fixed, 5.0, 92.0),
            (&fixed, 20.0, 61.0),
            (&fixed, 60.0, 32.0),
            (&sliding, 5.0, 75.0),
            (&sliding, 20.0, 48.0),
            (&sliding, 60.0, 26.0),
        ] {
            let estimate = usable(shape, 1e6, 4.0, seconds).map_or(0.0, |share| share * 100.0);
            assert!((estimate - measured).abs() < 8.0, "{shape:?} {seconds}: {estimate} not {measured}");
        }
    }

    #[test]
    fn the_ends_of_each_formula() {
        for shape in [
            Shape::FixedWindow { length_ms: 60_000 },
            Shape::SlidingWindow { length_ms: 60_000, sub_windows: 120 },
            Shape::TokenBucket { amount: 1000, every_ms: 1000 },
        ] {
            let at = |k, seconds| usable(&shape, 1000.0, k, seconds).unwrap_or_default();
            // Nothing is held beyond use: all of it can be used. Never ending: what is held is lost.
            assert!(at(1.0, 30.0) > 0.99, "{shape:?}");
            assert!((at(4.0, 1e6) - 0.25).abs() < 0.01, "{shape:?}");
            assert!(at(4.0, 1e-6) > 0.99, "{shape:?}");
        }
        assert_eq!(usable(&Shape::Balance, 1.0, 2.0, 1.0), None);
    }
}
