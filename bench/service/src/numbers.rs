//! Medians, percentiles, and how they are written.

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// The value below which `share` of all are; 0 of none.
pub fn percentile(values: &[f64], share: f64) -> f64 {
    let at = (values.len() as f64 * share) as usize;
    sorted(values).get(at.min(values.len().saturating_sub(1))).copied().unwrap_or(0.0)
}

/// The middle one, or the mean of the two in the middle.
pub fn median(values: &[f64]) -> f64 {
    let sorted = sorted(values);
    match sorted.len() {
        0 => 0.0,
        count => (sorted[(count - 1) / 2] + sorted[count / 2]) / 2.0,
    }
}

/// Median with the least and the most.
pub fn spread(values: &[f64]) -> String {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    format!("{:.2} ({least:.2}–{most:.2})", median(values))
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
