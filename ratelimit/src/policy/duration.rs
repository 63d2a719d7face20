//! Lengths of time as an operator writes them: `1s`, `1m`, `24h`, `7d`.

use super::error::Result;
use super::fields::Item;
use super::yaml::Value;

/// 366 days.
const MAX_MS: u64 = 366 * 86_400_000;

/// Milliseconds, from one second to 366 days.
pub fn read_ms(item: &Item<'_>) -> Result<u64> {
    let Value::Text(text) = &item.node.value else {
        return Err(item.fault("must be a time with its unit; write 1s, 1m, 24h or 7d"));
    };
    let fault = || item.fault(format!("`{text}` is not a duration; write 1s, 1m, 24h or 7d"));
    let split = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(fault)?;
    let (digits, unit) = text.split_at_checked(split).ok_or_else(fault)?;
    let number: u64 = digits.parse().map_err(|_| fault())?;
    let unit_ms = match unit {
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(fault()),
    };
    match number.checked_mul(unit_ms) {
        Some(ms) if (1..=MAX_MS).contains(&ms) => Ok(ms),
        _ => Err(item.fault("must be from 1s to 366d")),
    }
}

/// In the largest unit that divides it: `90s`, `1m`, `24h`, `7d`.
pub fn show(ms: u64) -> String {
    match [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")]
        .into_iter()
        .find(|(unit, _)| ms > 0 && ms.is_multiple_of(*unit))
    {
        // A day is written as hours, as in `every: 24h`.
        Some((86_400_000, _)) if ms == 86_400_000 => "24h".to_owned(),
        Some((unit, name)) => format!("{}{name}", ms / unit),
        None => format!("{ms}ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_shown_in_the_largest_unit() {
        for (ms, text) in
            [(60_000, "1m"), (90_000, "90s"), (86_400_000, "24h"), (172_800_000, "2d"), (1_500, "1500ms")]
        {
            assert_eq!(show(ms), text);
        }
    }
}
