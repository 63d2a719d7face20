//! The record of a reservation: all that a settle has to know, so that it never asks today's policy.
//!
//! Bytes, integers big-endian, amounts and times as doubles (they are whole and at most 2^52):
//!
//! ```text
//! 'R' | format 1 | attempt u8 | entries u8 | identity 8
//!     | entries × window start f64                       (written by the script: only it knows the window)
//!     | model tag 8 | grant f64, -1 for none | tokens f64
//!     | entries × (metric u8 | amount f64 | window length f64 | limit tag 8 | subject tag 8)
//! ```
//! Tombstones: `S`, and `T` followed by the attempt.

use tokengate_api::Metric;

use super::settlement::Stored;
use super::{BucketId, Hold};
use crate::tag::Tag;

pub const FORMAT: u8 = 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The latest attempt that was answered from this record.
    pub attempt: u8,
    pub identity: Tag,
    pub model: Tag,
    pub grant: Option<u64>,
    pub tokens: u64,
    pub entries: Vec<Entry>,
}

/// One charge as it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub bucket: BucketId,
    pub metric: Metric,
    pub amount: u64,
    pub window_ms: u64,
    pub start_ms: u64,
}

/// The bytes are not a record of this format.
#[derive(Debug, PartialEq, Eq)]
pub struct Unreadable;

/// The part that goes before the window starts.
pub fn head(hold: &Hold) -> Vec<u8> {
    let entries = u8::try_from(hold.charges.len()).unwrap_or(u8::MAX);
    let mut bytes = vec![b'R', FORMAT, hold.attempt, entries];
    bytes.extend(hold.identity.0);
    bytes
}

/// The part that goes after them.
pub fn tail(hold: &Hold) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(24 + 33 * hold.charges.len());
    bytes.extend(hold.model.0);
    bytes.extend(hold.grant.map_or(-1.0, double).to_be_bytes());
    bytes.extend(double(hold.tokens).to_be_bytes());
    for charge in &hold.charges {
        bytes.push(metric_code(charge.metric));
        bytes.extend(double(charge.amount).to_be_bytes());
        bytes.extend(double(charge.window_ms).to_be_bytes());
        bytes.extend(charge.bucket.limit.0);
        bytes.extend(charge.bucket.subject.0);
    }
    bytes
}

/// Reads what is stored under an id.
pub fn read(bytes: Option<&[u8]>) -> Result<Stored, Unreadable> {
    match bytes {
        None => Ok(Stored::Absent),
        Some(b"S") => Ok(Stored::Settled),
        Some([b'T', attempt]) => Ok(Stored::Refused { attempt: *attempt }),
        Some([b'R', FORMAT, attempt, entries, rest @ ..]) => {
            record(*attempt, (*entries).into(), rest).map(Stored::Open).ok_or(Unreadable)
        }
        Some(_) => Err(Unreadable),
    }
}

fn record(attempt: u8, entries: usize, bytes: &[u8]) -> Option<Record> {
    let mut reader = Reader(bytes);
    let identity = reader.tag()?;
    let starts = (0..entries).map(|_| reader.amount()).collect::<Option<Vec<_>>>()?;
    let model = reader.tag()?;
    let grant = reader.optional_amount()?;
    let tokens = reader.amount()?;
    let entry = |start_ms| {
        let metric = metric(reader.byte()?)?;
        let amount = reader.amount()?;
        let window_ms = reader.amount()?;
        let bucket = BucketId { limit: reader.tag()?, subject: reader.tag()? };
        Some(Entry { bucket, metric, amount, window_ms, start_ms })
    };
    let entries = starts.into_iter().map(entry).collect::<Option<Vec<_>>>()?;
    reader.0.is_empty().then_some(Record { attempt, identity, model, grant, tokens, entries })
}

fn metric_code(metric: Metric) -> u8 {
    if metric == Metric::Requests { b'r' } else { b't' }
}

fn metric(code: u8) -> Option<Metric> {
    match code {
        b'r' => Some(Metric::Requests),
        b't' => Some(Metric::Tokens),
        _ => None,
    }
}

/// Exact for amounts up to 2^53.
pub fn double(amount: u64) -> f64 {
    amount as f64
}

/// A whole amount that a double carries exactly; anything else is nothing.
fn whole(value: f64) -> Option<u64> {
    let fits = value.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&value);
    fits.then_some(value as u64)
}

/// Takes values from the front of a slice.
pub struct Reader<'a>(pub &'a [u8]);

impl Reader<'_> {
    pub fn byte(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    pub fn tag(&mut self) -> Option<Tag> {
        self.array().map(Tag)
    }

    pub fn amount(&mut self) -> Option<u64> {
        whole(f64::from_be_bytes(self.array()?))
    }

    pub fn optional_amount(&mut self) -> Option<Option<u64>> {
        let value = f64::from_be_bytes(self.array()?);
        if value == -1.0 { Some(None) } else { whole(value).map(Some) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]
    use proptest::prelude::*;

    use super::super::tests::{hold, requests, tokens};
    use super::*;

    /// A record as the reserve script puts it together.
    fn written(hold: &Hold, starts: &[u64]) -> Vec<u8> {
        let starts: Vec<u8> = starts.iter().flat_map(|start| double(*start).to_be_bytes()).collect();
        [head(hold), starts, tail(hold)].concat()
    }

    #[test]
    fn reads_what_was_written_and_nothing_shorter_or_longer() {
        let mut hold = hold(1, &[requests(9), tokens(1 << 52, (1 << 52) - 1)]);
        for grant in [None, Some(0), Some(1 << 52)] {
            hold.grant = grant;
            let bytes = written(&hold, &[60_000, 1_800_000_000_000]);
            let Ok(Stored::Open(record)) = read(Some(&bytes)) else { panic!() };
            assert_eq!((record.attempt, record.identity, record.model), (1, hold.identity, hold.model));
            assert_eq!((record.grant, record.tokens), (grant, hold.tokens));
            for ((entry, charge), start_ms) in
                record.entries.iter().zip(&hold.charges).zip([60_000, 1_800_000_000_000])
            {
                let expected = Entry {
                    bucket: charge.bucket,
                    metric: charge.metric,
                    amount: charge.amount,
                    window_ms: charge.window_ms,
                    start_ms,
                };
                assert_eq!(*entry, expected);
            }
            for length in 0..bytes.len() {
                assert_eq!(read(Some(&bytes[..length])), Err(Unreadable), "{length}");
            }
            assert_eq!(read(Some(&[bytes.as_slice(), b"x"].concat())), Err(Unreadable));
        }
    }

    #[test]
    fn reads_tombstones() {
        assert_eq!(read(None), Ok(Stored::Absent));
        assert_eq!(read(Some(b"S")), Ok(Stored::Settled));
        assert_eq!(read(Some(b"T\xff")), Ok(Stored::Refused { attempt: 255 }));
        for bad in [b"".as_slice(), b"T", b"SS", b"T\x01\x01", b"s", b"R"] {
            assert_eq!(read(Some(bad)), Err(Unreadable), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_answer(mut bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(Some(&bytes));
            for (to, from) in bytes.iter_mut().zip([b'R', FORMAT]) {
                *to = from;
            }
            let _ = read(Some(&bytes));
        }
    }
}
