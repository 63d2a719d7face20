//! What a limit counts of a request: the fields `count` and `weights`.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokengate_api::{Metric, ModelInfo};

use super::decimal;
use super::error::Result;
use super::fields::{Fields, Item};
use super::prices::Prices;
use crate::limits::{MAX_AMOUNT, Rates};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Admitted requests, whatever becomes of them.
    Requests,
    /// Every reserve that reaches the service, refused ones too.
    Attempts,
    /// Tokens of every class, weighted if the limit says so.
    Tokens,
    InputTokens,
    OutputTokens,
    /// Nano-dollars.
    Cost,
    /// Requests under way; only with `algorithm: concurrency`.
    InFlight,
}

impl Count {
    const WRITTEN: [Self; 6] =
        [Self::Requests, Self::Attempts, Self::Tokens, Self::InputTokens, Self::OutputTokens, Self::Cost];

    pub fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Attempts => "attempts",
            Self::Tokens => "tokens",
            Self::InputTokens => "input_tokens",
            Self::OutputTokens => "output_tokens",
            Self::Cost => "cost",
            Self::InFlight => "in_flight",
        }
    }

    /// How the wire's answers speak of it.
    pub fn metric(self) -> Metric {
        match self {
            Self::Requests | Self::Attempts => Metric::Requests,
            Self::Tokens | Self::InputTokens | Self::OutputTokens => Metric::Tokens,
            Self::Cost => Metric::Cost,
            Self::InFlight => Metric::Concurrency,
        }
    }

    /// Grows with the size of a request: what is held is corrected when the usage is known.
    pub fn by_usage(self) -> bool {
        matches!(self, Self::Tokens | Self::InputTokens | Self::OutputTokens | Self::Cost)
    }

    /// An amount as an operator writes it.
    pub fn show(self, amount: u64) -> String {
        match self {
            Self::Cost => decimal::show_usd(amount),
            _ => amount.to_string(),
        }
    }

    pub fn read(item: &Item<'_>) -> Result<Self> {
        let word = item.text()?;
        Self::WRITTEN.into_iter().find(|count| count.name() == word).ok_or_else(|| {
            let names = Self::WRITTEN.map(Self::name).join(", ");
            item.fault(format!("unknown value `{word}`; use one of {names}"))
        })
    }
}

/// What one request counts, for any model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Counting {
    Same(Rates),
    /// Prices by canonical model name.
    Priced(Arc<BTreeMap<String, Prices>>),
}

impl Counting {
    /// Present when one class of tokens weighs more than another.
    pub fn weights(&self) -> Option<&Rates> {
        match self {
            Self::Same(rates) if rates.by_tokens() && rates.per != 1 => Some(rates),
            Self::Same(_) | Self::Priced(_) => None,
        }
    }

    /// Without a tier, where there are prices.
    pub fn rates(&self, model: &ModelInfo) -> Rates {
        match self {
            Self::Same(rates) => *rates,
            Self::Priced(prices) => prices.get(&model.name).map_or(UNPRICED, |prices| prices.standard),
        }
    }

    /// What a hold takes for a request that wants this tier.
    pub fn hold_rates(&self, model: &ModelInfo, wanted: Option<&str>, prompt: u64, output: u64) -> Rates {
        match self {
            Self::Same(rates) => *rates,
            Self::Priced(prices) => prices
                .get(&model.name)
                .map_or(UNPRICED, |prices| *prices.dearest(prices.wanted(wanted), prompt, output)),
        }
    }

    pub fn prices(&self, model: &ModelInfo) -> Option<&Prices> {
        match self {
            Self::Same(_) => None,
            Self::Priced(prices) => prices.get(&model.name),
        }
    }
}

/// A model without a price under a limit on cost: refused when the policy is read. Should it be asked for all the
/// same, it is dearer than any limit.
const UNPRICED: Rates = Rates {
    request: MAX_AMOUNT + 1,
    input: MAX_AMOUNT,
    cache_read: MAX_AMOUNT,
    cache_write: MAX_AMOUNT,
    output: MAX_AMOUNT,
    reasoning: MAX_AMOUNT,
    per: 1,
};

/// Reads `weights`, which only `count: tokens` may have.
pub fn counting(
    count: Count,
    fields: &mut Fields<'_>,
    prices: &Arc<BTreeMap<String, Prices>>,
) -> Result<Counting> {
    let weights = fields.optional("weights");
    if let Some(item) = &weights
        && count != Count::Tokens
    {
        return Err(item.fault(format!("only `count: tokens` has weights, not `{}`", count.name())));
    }
    Ok(match count {
        Count::Requests | Count::Attempts | Count::InFlight => Counting::Same(Rates::REQUESTS),
        Count::Tokens => Counting::Same(weights.map_or(Ok(Rates::TOKENS), |item| read_weights(&item))?),
        Count::InputTokens => Counting::Same(Rates::INPUT_TOKENS),
        Count::OutputTokens => Counting::Same(Rates::OUTPUT_TOKENS),
        Count::Cost => Counting::Priced(Arc::clone(prices)),
    })
}

/// Thousandths. A class that is left out weighs as the next more general one; input and output weigh 1.
fn read_weights(item: &Item<'_>) -> Result<Rates> {
    const ONE: u64 = 1000;
    let mut fields = item.fields()?;
    let mut weight = |name: &str| match fields.optional(name) {
        None => Ok(None),
        Some(item) => match decimal::read_thousandths(&item)? {
            weight if weight <= 1_000_000 => Ok(Some(weight)),
            _ => Err(item.fault("must be at most 1000")),
        },
    };
    let input = weight("input")?.unwrap_or(ONE);
    let output = weight("output")?.unwrap_or(ONE);
    let rates = Rates {
        request: 0,
        input,
        cache_read: weight("cache_read")?.unwrap_or(input),
        cache_write: weight("cache_write")?.unwrap_or(input),
        output,
        reasoning: weight("reasoning")?.unwrap_or(output),
        per: ONE,
    };
    fields.finish(&[])?;
    if !rates.by_tokens() {
        return Err(item.fault("are all 0: nothing would be limited"));
    }
    Ok(if rates == WEIGHT_ONE { Rates::TOKENS } else { rates })
}

const WEIGHT_ONE: Rates = Rates {
    request: 0,
    input: 1000,
    cache_read: 1000,
    cache_write: 1000,
    output: 1000,
    reasoning: 1000,
    per: 1000,
};
