//! The record of a reservation: all that a settle has to know, so that it never asks today's policy.
//!
//! Bytes, integers big-endian, amounts and times as doubles (they are whole and at most 2^53):
//!
//! ```text
//! 'R' | format 2 or 3 | attempt u8 | entries u8 | identity 8 | model tag 8
//!     | grant f64, -1 for none | prompt tokens f64 | output tokens f64 | reserved at f64, ms | plan tag 8
//!     | in format 3 alternatives
//!     | entries × (meter | flags u8 | limit tag 8 | subject tag 8 | rates | amount f64 | mark)
//! ```
//! Format 3 is written where another model, or another tier of the model, may answer. The upper half of an entry's flags
//! is then 1 + the position of the model that has to answer for the entry to be owed; 0: whichever does.
//!
//! Only the script knows how much was charged where, so it writes `amount` and `mark`. Meters, rates and marks
//! are in [`codec`](super::codec), alternatives in [`alternatives`](super::alternatives). Tombstones: `S`, and `T` followed by the attempt.
//!
//! Format 1, which knew fixed windows only, can still be read and settled.

use super::codec::{Reader, put_meter, put_rates};
#[cfg(test)]
use super::codec::{double, put_amount, put_mark};
use super::settlement::Stored;
use super::{Alternatives, BucketId, Charge, Counted, HeldRecord, Hold, Meter};
use crate::limits::{Algorithm, Mark, Rates};
use crate::tag::Tag;

const FORMAT: u8 = 2;
const FORMAT_WITH_ALTERNATIVES: u8 = 3;
const SHADOW: u8 = 1;
const ATTEMPTS: u8 = 2;
const SHARED: u8 = 4;
const PRICED: u8 = 8;
/// The upper half of the flags.
const MODEL: u32 = 4;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The latest attempt that was answered from this record.
    pub attempt: u8,
    pub identity: Tag,
    pub model: Tag,
    pub grant: Option<u64>,
    pub prompt_tokens: u64,
    /// Of all choices, extensions included.
    pub output_tokens: u64,
    /// When it was held by the store's clock, milliseconds since the Unix epoch; absent in format 1.
    pub reserved_at_ms: Option<u64>,
    /// Absent in format 1.
    pub plan: Option<Tag>,
    pub alternatives: Alternatives,
    pub entries: Vec<Entry>,
}

/// One charge as it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub meter: Meter,
    pub rates: Rates,
    pub shadow: bool,
    /// The rates are prices, the amount is nano-dollars.
    pub priced: bool,
    /// Owed only when this one of the record's alternatives answers.
    pub model: Option<u8>,
    pub amount: u64,
    pub mark: Mark,
}

/// The bytes are not a record.
#[derive(Debug, PartialEq, Eq)]
pub struct Unreadable;

impl Record {
    pub fn tokens(&self) -> u64 {
        self.prompt_tokens.saturating_add(self.output_tokens)
    }

    /// What is worth knowing of it when it is closed.
    pub fn held(&self) -> HeldRecord {
        HeldRecord {
            model: self.model,
            plan: self.plan,
            prompt_tokens: self.prompt_tokens,
            output_tokens: self.output_tokens,
            reserved_at_ms: self.reserved_at_ms,
            prices: self.entries.iter().find(|entry| entry.priced).map(|entry| entry.rates),
        }
    }
}

/// The part of an entry that the service knows, as scripts take it and copy it into the record.
pub fn known_part(charge: &Charge) -> Vec<u8> {
    let flags =
        flags(charge.shadow, charge.priced, charge.model) | if charge.attempts { ATTEMPTS } else { 0 };
    known(&charge.meter, &charge.rates, flags)
}

fn flags(shadow: bool, priced: bool, model: Option<u8>) -> u8 {
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    let model = model.map_or(0, |position| position.saturating_add(1));
    flag(shadow, SHADOW) | flag(priced, PRICED) | model.wrapping_shl(MODEL)
}

fn known(meter: &Meter, rates: &Rates, flags: u8) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(48);
    put_meter(&mut bytes, meter.algorithm, meter.limit);
    bytes.push(flags | if meter.bucket.shared { SHARED } else { 0 });
    bytes.extend(meter.bucket.limit.0);
    bytes.extend(meter.bucket.subject.0);
    put_rates(&mut bytes, rates);
    bytes
}

/// The beginning of a record without entries.
pub fn head(hold: &Hold) -> Vec<u8> {
    let mut bytes = vec![b'R', format(&hold.alternatives), hold.attempt, 0];
    bytes.extend(hold.identity.0);
    bytes.extend(hold.model.0);
    bytes
}

fn format(alternatives: &Alternatives) -> u8 {
    if alternatives.is_empty() { FORMAT } else { FORMAT_WITH_ALTERNATIVES }
}

/// What stands between the amounts of a record and its entries.
pub fn plan_and_alternatives(plan: Tag, alternatives: &Alternatives) -> Vec<u8> {
    let mut bytes = plan.0.to_vec();
    if !alternatives.is_empty() {
        alternatives.put(&mut bytes);
    }
    bytes
}

/// Entries of today can be added to a record of this format.
pub fn can_grow(record: &[u8]) -> bool {
    matches!(record, [b'R', FORMAT | FORMAT_WITH_ALTERNATIVES, ..])
}

impl Entry {
    pub fn known_part(&self) -> Vec<u8> {
        known(&self.meter, &self.rates, flags(self.shadow, self.priced, self.model))
    }

    pub fn counted(&self) -> Counted {
        Counted { rates: self.rates, priced: self.priced, model: self.model }
    }
}

/// A whole record as bytes, as the reserve script puts it together.
#[cfg(test)]
pub fn write(record: &Record) -> Vec<u8> {
    let entries = u8::try_from(record.entries.len()).unwrap_or(u8::MAX);
    let mut bytes = vec![b'R', format(&record.alternatives), record.attempt, entries];
    bytes.extend(record.identity.0);
    bytes.extend(record.model.0);
    bytes.extend(record.grant.map_or(-1.0, double).to_be_bytes());
    put_amount(&mut bytes, record.prompt_tokens);
    put_amount(&mut bytes, record.output_tokens);
    put_amount(&mut bytes, record.reserved_at_ms.unwrap_or(0));
    bytes.extend(plan_and_alternatives(record.plan.unwrap_or(Tag([0; 8])), &record.alternatives));
    for entry in &record.entries {
        bytes.extend(entry.known_part());
        put_amount(&mut bytes, entry.amount);
        put_mark(&mut bytes, &entry.mark);
    }
    bytes
}

/// The grant of an open record of this format: output tokens per choice, or none.
pub fn grant(record: &[u8]) -> Option<Option<u64>> {
    match record {
        [b'R', FORMAT | FORMAT_WITH_ALTERNATIVES, _, _, rest @ ..] => {
            Reader(rest.get(16..)?).optional_amount()
        }
        _ => None,
    }
}

/// Reads what is stored under an id.
pub fn read(bytes: Option<&[u8]>) -> Result<Stored, Unreadable> {
    match bytes {
        None => Ok(Stored::Absent),
        Some(b"S") => Ok(Stored::Settled),
        Some([b'T', attempt]) => Ok(Stored::Refused { attempt: *attempt }),
        Some([b'R', format, attempt, entries, rest @ ..]) => {
            let entries = usize::from(*entries);
            let record = match *format {
                FORMAT | FORMAT_WITH_ALTERNATIVES => record(*format, *attempt, entries, rest),
                1 => record_of_format_1(*attempt, entries, rest),
                _ => None,
            };
            record.map(Stored::Open).ok_or(Unreadable)
        }
        Some(_) => Err(Unreadable),
    }
}

fn record(format: u8, attempt: u8, entries: usize, bytes: &[u8]) -> Option<Record> {
    let mut reader = Reader(bytes);
    let identity = reader.tag()?;
    let model = reader.tag()?;
    let grant = reader.optional_amount()?;
    let prompt_tokens = reader.amount()?;
    let output_tokens = reader.amount()?;
    let reserved_at_ms = Some(reader.amount()?);
    let plan = Some(reader.tag()?);
    let alternatives = match format {
        FORMAT_WITH_ALTERNATIVES => Alternatives::read(&mut reader)?,
        _ => Alternatives::default(),
    };
    let entry = |_| {
        let (algorithm, limit) = reader.meter()?;
        let flags = reader.byte()?;
        let shared = flags & SHARED != 0;
        let bucket = BucketId { shared, limit: reader.tag()?, subject: reader.tag()? };
        let rates = reader.rates()?;
        let amount = reader.amount()?;
        let mark = reader.mark(algorithm)?;
        let meter = Meter { bucket, algorithm, limit };
        let (shadow, priced) = (flags & SHADOW != 0, flags & PRICED != 0);
        let model = flags.wrapping_shr(MODEL).checked_sub(1);
        Some(Entry { meter, rates, shadow, priced, model, amount, mark })
    };
    let entries = (0..entries).map(entry).collect::<Option<Vec<_>>>()?;
    let record = Record {
        attempt,
        identity,
        model,
        grant,
        prompt_tokens,
        output_tokens,
        reserved_at_ms,
        plan,
        alternatives,
        entries,
    };
    reader.0.is_empty().then_some(record)
}

/// `identity 8 | entries × window start | model tag 8 | grant | tokens
///  | entries × (metric u8 | amount | window length | limit tag 8 | subject tag 8)`
fn record_of_format_1(attempt: u8, entries: usize, bytes: &[u8]) -> Option<Record> {
    let mut reader = Reader(bytes);
    let identity = reader.tag()?;
    let starts = (0..entries).map(|_| reader.amount()).collect::<Option<Vec<_>>>()?;
    let model = reader.tag()?;
    let grant = reader.optional_amount()?;
    let prompt_tokens = reader.amount()?;
    let entry = |start_ms| {
        let rates = match reader.byte()? {
            b'r' => Rates::REQUESTS,
            b't' => Rates::TOKENS,
            _ => return None,
        };
        let amount = reader.amount()?;
        let algorithm = Algorithm::FixedWindow { length_ms: reader.amount()? };
        let bucket = BucketId { shared: false, limit: reader.tag()?, subject: reader.tag()? };
        let meter = Meter { bucket, algorithm, limit: 0 };
        let mark = Mark::Window { start_ms };
        Some(Entry { meter, rates, shadow: false, priced: false, model: None, amount, mark })
    };
    let entries = starts.into_iter().map(entry).collect::<Option<Vec<_>>>()?;
    let record = Record {
        attempt,
        identity,
        model,
        grant,
        prompt_tokens,
        output_tokens: 0,
        reserved_at_ms: None,
        plan: None,
        alternatives: Alternatives::default(),
        entries,
    };
    reader.0.is_empty().then_some(record)
}

#[cfg(test)]
mod tests;
