//! What an extension adds to a reservation, as a pure function of its record.

use super::record::{Entry, Record};
use super::{Extension, MAX_ENTRIES};
use crate::limits::{Algorithm, MAX_AMOUNT, Mark};

/// What an extension asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Growth {
    /// Nothing that is not there already.
    Nothing,
    /// More than can be held at all.
    TooMuch,
    /// Charges without marks. Those of concurrency limits stand for a renewed lease and add no entry.
    By { output_tokens: u64, charges: Vec<Entry> },
}

/// By the record's own rates: today's policy is not asked.
pub fn growth(record: &Record, extension: &Extension) -> Growth {
    let output_tokens = extension.output_tokens.unwrap_or(0).max(record.output_tokens);
    if output_tokens > MAX_AMOUNT {
        return Growth::TooMuch;
    }
    let mut charges: Vec<Entry> = Vec::new();
    let mut added = 0;
    for entry in &record.entries {
        if charges.iter().any(|charge| charge.meter.bucket == entry.meter.bucket) {
            continue;
        }
        if matches!(entry.meter.algorithm, Algorithm::Concurrency { .. }) {
            if extension.lease {
                charges.push(Entry { amount: 1, mark: Mark::None, ..*entry });
            }
            continue;
        }
        let of_bucket = record.entries.iter().filter(|other| other.meter.bucket == entry.meter.bucket);
        let held = of_bucket.fold(0, |sum: u64, other| sum.saturating_add(other.amount));
        let whole = record.alternatives.of_hold(&entry.counted(), record.prompt_tokens, output_tokens);
        let amount = whole.saturating_sub(held);
        if amount > 0 && output_tokens > record.output_tokens {
            added += 1;
            charges.push(Entry { amount, mark: Mark::None, ..*entry });
        }
    }
    if charges.is_empty() && output_tokens == record.output_tokens {
        Growth::Nothing
    } else if record.entries.len() + added > MAX_ENTRIES {
        Growth::TooMuch
    } else {
        Growth::By { output_tokens, charges }
    }
}
