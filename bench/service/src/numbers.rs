//! Medians, percentiles, and how they are written.

/// The value below which `share` of all are; 0 of none.
pub fn percentile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (sorted.len() as f64 * share) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or(0.0)
}

/// The middle one, or the mean of the two in the middle.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let values: Vec<f64> = values.into_iter().collect();
    let upper = percentile(&values, 0.5);
    if values.len() % 2 == 1 {
        return upper;
    }
    let below = values.iter().copied().filter(|value| *value < upper).fold(f64::NEG_INFINITY, f64::max);
    if values.iter().filter(|value| **value < upper).count() == values.len() / 2 {
        (below + upper) / 2.0
    } else {
        upper
    }
}

/// Median with the least and the most.
pub fn spread(values: &[f64]) -> String {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    format!("{:.2} ({least:.2}–{most:.2})", median(values.iter().copied()))
}

/// Microseconds as milliseconds.
pub fn ms(us: f64) -> String {
    format!("{:.3}", us / 1000.0)
}

/// With a comma before the thousands.
pub fn count(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
