//! `price_usd_per_million`: what a model's tokens cost.

use super::decimal;
use super::error::Result;
use super::fields::Item;
use crate::limits::Rates;

/// A dollar per million tokens is a million pico-dollars per token, so six decimals are a whole number of them.
const PLACES: u32 = 6;

/// Decimal strings → integer pico-dollars per token; [`Rates`] sums them up to nano-dollars.
///
/// `input` and `output` must be there; a class that is left out costs what the next more general one does.
pub fn read(item: &Item<'_>) -> Result<Rates> {
    let mut fields = item.fields()?;
    let price = |item: Item<'_>| decimal::read(&item, PLACES, "2.00");
    let input = price(fields.required("input")?)?;
    let output = price(fields.required("output")?)?;
    let mut or = |name: &str, general: u64| fields.optional(name).map_or(Ok(general), price);
    let rates = Rates {
        request: 0,
        input,
        cache_read: or("cache_read", input)?,
        cache_write: or("cache_write", input)?,
        output,
        reasoning: or("reasoning", output)?,
        per: 1000,
    };
    fields.finish(&[])?;
    Ok(rates)
}
