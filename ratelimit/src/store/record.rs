//! The record of a reservation: all that a settle has to know, so that it never asks today's policy.
//!
//! Bytes, integers big-endian, amounts and times as doubles (they are whole and at most 2^53):
//!
//! ```text
//! 'R' | format 2 | attempt u8 | entries u8 | identity 8 | model tag 8
//!     | grant f64, -1 for none | prompt tokens f64 | output tokens f64 | reserved at f64, ms | plan tag 8
//!     | entries × (meter | flags u8 | limit tag 8 | subject tag 8 | rates | amount f64 | mark)
//! ```
//! Only the script knows how much was charged where, so it writes `amount` and `mark`. Meters, rates and marks
//! are in [`codec`](super::codec). Tombstones: `S`, and `T` followed by the attempt.
//!
//! Format 1, which knew fixed windows only, can still be read and settled.

use super::codec::{Reader, put_meter, put_rates};
#[cfg(test)]
use super::codec::{double, put_amount, put_mark};
use super::settlement::Stored;
use super::{BucketId, Charge, HeldRecord, Hold, Meter};
use crate::limits::{Algorithm, Mark, Rates};
use crate::tag::Tag;

pub const FORMAT: u8 = 2;
const SHADOW: u8 = 1;
const ATTEMPTS: u8 = 2;
const SHARED: u8 = 4;
const PRICED: u8 = 8;

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
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    let flags = flag(charge.shadow, SHADOW) | flag(charge.attempts, ATTEMPTS) | flag(charge.priced, PRICED);
    known(&charge.meter, &charge.rates, flags)
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
    let mut bytes = vec![b'R', FORMAT, hold.attempt, 0];
    bytes.extend(hold.identity.0);
    bytes.extend(hold.model.0);
    bytes
}

impl Entry {
    /// What counts as held until it is settled. A slot is its own sign, and a request that was sent stays counted.
    pub fn held(&self) -> u64 {
        let slot = matches!(self.meter.algorithm, Algorithm::Concurrency { .. });
        if slot || self.rates == Rates::REQUESTS { 0 } else { self.amount }
    }

    pub fn known_part(&self) -> Vec<u8> {
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        known(&self.meter, &self.rates, flag(self.shadow, SHADOW) | flag(self.priced, PRICED))
    }
}

/// A whole record as bytes, as the reserve script puts it together.
#[cfg(test)]
pub fn write(record: &Record) -> Vec<u8> {
    let entries = u8::try_from(record.entries.len()).unwrap_or(u8::MAX);
    let mut bytes = vec![b'R', FORMAT, record.attempt, entries];
    bytes.extend(record.identity.0);
    bytes.extend(record.model.0);
    bytes.extend(record.grant.map_or(-1.0, double).to_be_bytes());
    put_amount(&mut bytes, record.prompt_tokens);
    put_amount(&mut bytes, record.output_tokens);
    put_amount(&mut bytes, record.reserved_at_ms.unwrap_or(0));
    bytes.extend(record.plan.unwrap_or(Tag([0; 8])).0);
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
        [b'R', FORMAT, _, _, rest @ ..] => Reader(rest.get(16..)?).optional_amount(),
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
                FORMAT => record(*attempt, entries, rest),
                1 => record_of_format_1(*attempt, entries, rest),
                _ => None,
            };
            record.map(Stored::Open).ok_or(Unreadable)
        }
        Some(_) => Err(Unreadable),
    }
}

fn record(attempt: u8, entries: usize, bytes: &[u8]) -> Option<Record> {
    let mut reader = Reader(bytes);
    let identity = reader.tag()?;
    let model = reader.tag()?;
    let grant = reader.optional_amount()?;
    let prompt_tokens = reader.amount()?;
    let output_tokens = reader.amount()?;
    let reserved_at_ms = Some(reader.amount()?);
    let plan = Some(reader.tag()?);
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
        Some(Entry { meter, rates, shadow, priced, amount, mark })
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
        Some(Entry { meter, rates, shadow: false, priced: false, amount, mark })
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
        entries,
    };
    reader.0.is_empty().then_some(record)
}

#[cfg(test)]
mod tests;
