//! Decimal numbers in quoted strings. They never pass through a floating-point number.

use super::error::Result;
use super::fields::Item;
use super::yaml::Value;
use crate::limits::MAX_AMOUNT;

/// Decimals of nano-dollars.
pub const NANO_DOLLARS: u32 = 9;

/// `text` × 10^`places`; nothing when it is not a plain decimal number, has more places, or is above 2^52.
pub fn scaled(text: &str, places: u32) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').map_or((text, None), |(w, f)| (w, Some(f)));
    let digits =
        |text: &str| !text.is_empty() && text.len() <= 20 && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || fraction.is_some_and(|fraction| !digits(fraction)) {
        return None;
    }
    let fraction = fraction.unwrap_or_default();
    let missing = places.checked_sub(u32::try_from(fraction.len()).ok()?)?;
    let number: u64 = format!("{whole}{fraction}").parse().ok()?;
    number.checked_mul(10_u64.checked_pow(missing)?).filter(|number| *number <= MAX_AMOUNT)
}

/// A decimal number in a string, × 10^`places`.
pub fn read(item: &Item<'_>, places: u32, example: &str) -> Result<u64> {
    let text = match &item.node.value {
        Value::Integer(_) | Value::Fraction => {
            return Err(
                item.fault(format!("write it in quotes, as \"{example}\": it is read to the last digit"))
            );
        }
        _ => item.text()?,
    };
    scaled(text, places).ok_or_else(|| {
        item.fault(format!(
            "must be a number like \"{example}\" with at most {places} decimals, and not too large"
        ))
    })
}

/// Dollars, as integer nano-dollars.
pub fn read_usd(item: &Item<'_>) -> Result<u64> {
    read(item, NANO_DOLLARS, "500.00")
}

/// A whole number, or a decimal number in a string, × 1000.
pub fn read_thousandths(item: &Item<'_>) -> Result<u64> {
    match item.node.value {
        Value::Integer(_) => Ok(item.amount()?.saturating_mul(1000)),
        _ => read(item, 3, "0.25"),
    }
}

/// Nano-dollars as dollars with at least two decimals.
pub fn show_usd(nano_dollars: u64) -> String {
    let (whole, fraction) = (nano_dollars / 1_000_000_000, nano_dollars % 1_000_000_000);
    let fraction = format!("{fraction:09}");
    let kept = fraction.trim_end_matches('0').len().max(2);
    format!("${whole}.{}", fraction.get(..kept).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_exact_or_nothing() {
        for (text, places, expected) in [
            ("2.00", 6, Some(2_000_000)),
            ("0.000001", 6, Some(1)),
            ("0.0000001", 6, None),
            ("0.10", 9, Some(100_000_000)),
            ("4503599.627370496", 9, Some(MAX_AMOUNT)),
            ("4503599.627370497", 9, None),
            ("007", 0, Some(7)),
            ("", 6, None),
            (".5", 6, None),
            ("5.", 6, None),
            ("-1", 6, None),
            ("1e3", 6, None),
            ("1_000", 6, None),
            ("1,5", 6, None),
            (" 1", 6, None),
            ("99999999999999999999", 6, None),
            ("1.2.3", 6, None),
        ] {
            assert_eq!(scaled(text, places), expected, "{text}");
        }
    }

    #[test]
    fn dollars_are_shown_to_the_last_digit() {
        for (nano, text) in
            [(500_000_000_000, "$500.00"), (1, "$0.000000001"), (1_500_000_000, "$1.50"), (0, "$0.00")]
        {
            assert_eq!(show_usd(nano), text);
        }
    }
}
