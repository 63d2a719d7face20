//! What goes into the scripts for a charge, and what they answer.

use super::super::codec::{Reader, kind, put_amount, put_mark, put_meter};
use super::super::record::known_part;
use super::super::settlement::{Change, Correction};
use super::super::{Charge, Hold, Meter, Standing, StoreError};
use crate::limits::{Algorithm, Gauge, Wait};

/// The argument of a charge of a reserve.
pub fn charge(hold: &Hold, charge: &Charge) -> Vec<u8> {
    let rates = &charge.rates;
    let base = u64::try_from(rates.hold_sum(hold.prompt_tokens, 0)).unwrap_or(u64::MAX);
    let parts = [base, rates.dearest_output(), rates.per.max(1)];
    addition(hold.amount(charge, hold.output_tokens), parts, known_part(charge))
}

/// The argument of a charge whose amount is settled: what an extension adds.
pub fn addition(amount: u64, [base, per_output, per]: [u64; 3], known_part: Vec<u8>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(32 + known_part.len());
    for number in [amount, base, per_output, per] {
        put_amount(&mut bytes, number);
    }
    bytes.extend(known_part);
    bytes
}

pub fn correction(correction: &Correction) -> Vec<u8> {
    let (letter, amount, refund) = match &correction.change {
        Change::Refund { mark, amount, held, place } => (b'R', *amount, Some((mark, *held, *place))),
        Change::Excess { amount } => (b'E', *amount, None),
        Change::GiveBack { amount } => (b'G', *amount, None),
    };
    let mut bytes = vec![letter];
    put_amount(&mut bytes, amount);
    if let Some((_, held, place)) = refund {
        put_amount(&mut bytes, held);
        put_amount(&mut bytes, place);
    }
    put_meter(&mut bytes, correction.meter.algorithm, correction.meter.limit);
    if let Some((mark, _, _)) = refund {
        put_mark(&mut bytes, mark);
    }
    bytes
}

pub fn meter(meter: &Meter) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(32);
    put_meter(&mut bytes, meter.algorithm, meter.limit);
    bytes
}

pub fn letter_of(meter: &Meter) -> u8 {
    kind(meter.algorithm)
}

/// A script's refusal to decide, by its letter.
pub fn failure(letter: Option<u8>) -> StoreError {
    match letter {
        Some(b'C') => StoreError::Clock,
        Some(b'B') => StoreError::Boundary,
        _ => StoreError::Format,
    }
}

/// Letter, time, and what follows.
pub struct Answer<'a> {
    pub letter: u8,
    pub now_ms: u64,
    reader: Reader<'a>,
}

impl<'a> Answer<'a> {
    pub fn read(bytes: &'a [u8]) -> Result<Self, StoreError> {
        let mut reader = Reader(bytes);
        match reader.byte() {
            Some(letter @ (b'H' | b'P' | b'R' | b'G')) => {
                let now_ms = reader.amount().ok_or(StoreError::Format)?;
                Ok(Self { letter, now_ms, reader })
            }
            letter => Err(failure(letter)),
        }
    }

    pub fn gauge(&mut self) -> Option<Gauge> {
        Some(Gauge {
            used: self.reader.amount()?,
            remaining: self.reader.signed()?,
            held: self.reader.amount()?,
            reset_ms: self.reader.amount()?,
        })
    }

    pub fn standing(&mut self, algorithm: Algorithm) -> Option<Standing> {
        let gauge = self.gauge()?;
        let would_deny = self.reader.byte()? != 0;
        let wait = match (self.reader.signed()?, algorithm) {
            (-1, _) => Wait::No,
            (-2, _) => Wait::Unknown,
            (-3, _) => Wait::Never,
            (ms, Algorithm::Concurrency { .. }) => Wait::Estimate(u64::try_from(ms).ok()?),
            (ms, _) => Wait::Ms(u64::try_from(ms).ok()?),
        };
        Some(Standing { gauge, would_deny, wait })
    }

    pub fn rest(&self) -> &'a [u8] {
        self.reader.0
    }
}
