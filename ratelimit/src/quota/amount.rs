//! How much, as operators say it.

use super::OperateError;
use crate::limits::MAX_AMOUNT;
use crate::policy::{Count, nano_dollars};

/// Money where cost is counted, else a whole number; at least `least`.
pub fn amount(count: Count, amount: Option<u64>, usd: Option<&str>, least: u64) -> Result<u64, OperateError> {
    let wrong = |field: &str, message: &str| Err(OperateError::bad(field, message));
    let countable = |amount: &u64| (least..=MAX_AMOUNT).contains(amount);
    match (count, amount, usd) {
        (_, Some(_), Some(_)) => wrong("usd", "takes the place of amount; give one of them"),
        (Count::Cost, None, Some(usd)) => match nano_dollars(usd).filter(countable) {
            Some(amount) => Ok(amount),
            None => {
                let above = if least > 0 { "above 0, " } else { "" };
                let message = format!(
                    "must be a number like \"25.00\" with at most 9 decimals, {above}at most 4503599.627370496"
                );
                wrong("usd", &message)
            }
        },
        (Count::Cost, ..) => wrong("usd", "is missing: the limit counts cost"),
        (_, None, Some(_)) => wrong("usd", "the limit does not count cost: give amount"),
        (_, Some(amount), None) if countable(&amount) => Ok(amount),
        (_, Some(_), None) => wrong("amount", &format!("must be at least {least} and at most 2^52")),
        (_, None, None) => wrong("amount", "is missing"),
    }
}
