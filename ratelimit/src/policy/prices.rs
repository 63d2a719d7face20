//! `price_usd_per_million`: what a model's tokens cost.

use std::collections::BTreeMap;

use super::decimal;
use super::error::{Fault, Result};
use super::fields::{Fields, Item};
use crate::limits::Rates;

/// A dollar per million tokens is a million pico-dollars per token, so six decimals are a whole number of them.
const PLACES: u32 = 6;
/// The most tiers of a model.
const MOST_TIERS: usize = 8;

/// What a model's tokens cost, in integer pico-dollars per token; [`Rates`] sums them up to nano-dollars.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prices {
    /// In every tier that has no price of its own.
    pub standard: Rates,
    /// By the name of the tier, in lower case.
    pub tiers: BTreeMap<String, Rates>,
}

/// What a request says of the tier that it wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted<'a> {
    /// Whatever the provider chooses.
    Any,
    Standard,
    /// This tier, or the standard one where the provider has no room in it.
    Tier(&'a str),
}

impl Prices {
    /// By the tier that an answer names; one that has no price of its own costs what the standard does.
    pub fn of_answer(&self, tier: Option<&str>) -> &Rates {
        let named = tier.and_then(|tier| self.tiers.get(&normal(tier)));
        named.unwrap_or(&self.standard)
    }

    /// What a request wants. A tier that nobody knows may be any.
    pub fn wanted<'a>(&'a self, tier: Option<&str>) -> Wanted<'a> {
        let tier = tier.map(normal).unwrap_or_default();
        match self.tiers.get_key_value(&tier) {
            Some((name, _)) => Wanted::Tier(name),
            None if tier == "default" || tier == "standard" => Wanted::Standard,
            None => Wanted::Any,
        }
    }

    /// All prices: the standard one, then each tier's. With each, whether a request can come to it.
    pub fn all<'a>(&'a self, wanted: Wanted<'a>) -> impl Iterator<Item = (Option<&'a str>, &'a Rates, bool)> {
        let tiers = self.tiers.iter().map(move |(name, rates)| {
            let expected = match wanted {
                Wanted::Any => true,
                Wanted::Standard => false,
                Wanted::Tier(tier) => tier == name,
            };
            (Some(name.as_str()), rates, expected)
        });
        std::iter::once((None, &self.standard, true)).chain(tiers)
    }

    /// The price by which a request holds the most.
    pub fn dearest<'a>(&'a self, wanted: Wanted<'a>, prompt_tokens: u64, output_tokens: u64) -> &'a Rates {
        let expected = self.all(wanted).filter(|(_, _, expected)| *expected).map(|(_, rates, _)| rates);
        expected.max_by_key(|rates| rates.of_hold(prompt_tokens, output_tokens)).unwrap_or(&self.standard)
    }
}

/// How the name of a tier is compared.
pub fn normal(tier: &str) -> String {
    tier.trim().to_lowercase()
}

/// `input` and `output` must be there; a class that is left out costs what the next more general one does.
pub fn read(item: &Item<'_>) -> Result<Prices> {
    let mut fields = item.fields()?;
    let given = Given::read(&mut fields)?;
    let (Some(input), Some(output)) = (given.input, given.output) else {
        return Err(fields.missing(if given.input.is_none() { "input" } else { "output" }));
    };
    let standard = given.rates(&Rates { input, output, ..NOTHING });
    let tiers = match fields.optional("tiers") {
        None => BTreeMap::new(),
        Some(item) => read_tiers(&item, &standard)?,
    };
    fields.finish(&[])?;
    Ok(Prices { standard, tiers })
}

const NOTHING: Rates =
    Rates { request: 0, input: 0, cache_read: 0, cache_write: 0, output: 0, reasoning: 0, per: 1000 };

/// The classes as they are written.
#[derive(PartialEq, Eq)]
struct Given {
    input: Option<u64>,
    cache_read: Option<u64>,
    cache_write: Option<u64>,
    output: Option<u64>,
    reasoning: Option<u64>,
}

impl Given {
    fn read(fields: &mut Fields<'_>) -> Result<Self> {
        let mut class = |name: &str| {
            let item = fields.optional(name);
            item.map(|item| decimal::read(&item, PLACES, "2.00")).transpose()
        };
        Ok(Self {
            input: class("input")?,
            cache_read: class("cache_read")?,
            cache_write: class("cache_write")?,
            output: class("output")?,
            reasoning: class("reasoning")?,
        })
    }

    fn is_empty(&self) -> bool {
        *self == Self { input: None, cache_read: None, cache_write: None, output: None, reasoning: None }
    }

    /// What is left out costs what the next more general class here does, and without one what it costs elsewhere.
    fn rates(&self, elsewhere: &Rates) -> Rates {
        Rates {
            input: self.input.unwrap_or(elsewhere.input),
            cache_read: self.cache_read.or(self.input).unwrap_or(elsewhere.cache_read),
            cache_write: self.cache_write.or(self.input).unwrap_or(elsewhere.cache_write),
            output: self.output.unwrap_or(elsewhere.output),
            reasoning: self.reasoning.or(self.output).unwrap_or(elsewhere.reasoning),
            ..NOTHING
        }
    }
}

fn read_tiers(item: &Item<'_>, standard: &Rates) -> Result<BTreeMap<String, Rates>> {
    let mut tiers = BTreeMap::new();
    for (name, item) in item.entries()? {
        let bad = |reason: String| Fault { at: Some(name.at), path: item.path.clone(), reason };
        let text = name.name.as_str();
        if matches!(text, "default" | "standard" | "auto") {
            return Err(bad(format!(
                "`{text}` is no tier of its own: what stands outside of `tiers` is its price"
            )));
        }
        if text.is_empty() || text.len() > 64 || text.chars().any(char::is_control) || normal(text) != text {
            return Err(bad(
                "a tier's name is written as the provider does, in lower case, with at most 64 bytes"
                    .to_owned(),
            ));
        }
        let mut fields = item.fields()?;
        let given = Given::read(&mut fields)?;
        fields.finish(&[])?;
        if given.is_empty() {
            return Err(item.fault("has no price: without one, leave the tier out"));
        }
        tiers.insert(text.to_owned(), given.rates(standard));
    }
    if tiers.is_empty() {
        return Err(item.fault("must have at least one tier"));
    }
    if tiers.len() > MOST_TIERS {
        return Err(item.fault(format!("has {} tiers; at most {MOST_TIERS} are supported", tiers.len())));
    }
    Ok(tiers)
}
