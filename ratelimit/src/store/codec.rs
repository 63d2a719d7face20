//! How numbers, meters, rates and marks are written: as Lua's `struct` reads and writes them, big-endian.
//!
//! ```text
//! meter: kind u8 | limit f64 | parameters
//!        'F' length · 'C' 4 boundaries · 'S' sub-window length, sub-windows · 'T' num, den · 'N' lease · 'B' –
//! mark : 'F', 'C' start · 'S' index · 'N', 'B' –
//!        'T' generation, interval, time, level, charged before, refunded before (early, own)
//! rates: 'r' requests · 't' tokens · 'i' input · 'o' output · 'x' and 7 × f64
//! ```

use crate::limits::{Algorithm, Mark, Rates};
use crate::tag::Tag;

/// Exact for amounts up to 2^53.
pub fn double(amount: u64) -> f64 {
    amount as f64
}

/// A whole number that a double carries exactly; anything else is nothing.
fn whole(value: f64) -> Option<i64> {
    let fits = value.fract() == 0.0 && value.abs() <= 9_007_199_254_740_992.0;
    fits.then_some(value as i64)
}

pub fn put_amount(bytes: &mut Vec<u8>, amount: u64) {
    bytes.extend(double(amount).to_be_bytes());
}

fn put_all(bytes: &mut Vec<u8>, amounts: &[u64]) {
    for amount in amounts {
        put_amount(bytes, *amount);
    }
}

pub fn put_meter(bytes: &mut Vec<u8>, algorithm: Algorithm, limit: u64) {
    bytes.push(kind(algorithm));
    put_amount(bytes, limit);
    match algorithm {
        Algorithm::FixedWindow { length_ms } => put_amount(bytes, length_ms),
        Algorithm::CalendarWindow { boundaries_ms } => put_all(bytes, &boundaries_ms),
        Algorithm::SlidingWindow { sub_window_ms, sub_windows } => {
            put_all(bytes, &[sub_window_ms, sub_windows.into()]);
        }
        Algorithm::TokenBucket { num, den } => put_all(bytes, &[num, den]),
        Algorithm::Concurrency { lease_ms } => put_amount(bytes, lease_ms),
        Algorithm::Balance => {}
    }
}

/// The letter that names an algorithm in keys' values and scripts.
pub fn kind(algorithm: Algorithm) -> u8 {
    match algorithm {
        Algorithm::FixedWindow { .. } => b'F',
        Algorithm::CalendarWindow { .. } => b'C',
        Algorithm::SlidingWindow { .. } => b'S',
        Algorithm::TokenBucket { .. } => b'T',
        Algorithm::Concurrency { .. } => b'N',
        Algorithm::Balance => b'B',
    }
}

pub fn put_mark(bytes: &mut Vec<u8>, mark: &Mark) {
    match *mark {
        Mark::Window { start_ms } => put_amount(bytes, start_ms),
        Mark::SubWindow { index } => put_amount(bytes, index),
        Mark::Level { generation, interval, at_ms, level, before, early, own } => {
            put_all(bytes, &[generation, interval, at_ms]);
            bytes.extend((level as f64).to_be_bytes());
            put_all(bytes, &[before, early, own]);
        }
        Mark::None => {}
    }
}

const PRESETS: [(u8, Rates); 4] = [
    (b'r', Rates::REQUESTS),
    (b't', Rates::TOKENS),
    (b'i', Rates::INPUT_TOKENS),
    (b'o', Rates::OUTPUT_TOKENS),
];

pub fn put_rates(bytes: &mut Vec<u8>, rates: &Rates) {
    if let Some((letter, _)) = PRESETS.iter().find(|(_, preset)| preset == rates) {
        return bytes.push(*letter);
    }
    bytes.push(b'x');
    let Rates { request, input, cache_read, cache_write, output, reasoning, per } = *rates;
    put_all(bytes, &[request, input, cache_read, cache_write, output, reasoning, per]);
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

    /// A whole number that may be below 0.
    pub fn signed(&mut self) -> Option<i64> {
        whole(f64::from_be_bytes(self.array()?))
    }

    pub fn amount(&mut self) -> Option<u64> {
        u64::try_from(self.signed()?).ok()
    }

    pub fn optional_amount(&mut self) -> Option<Option<u64>> {
        match self.signed()? {
            -1 => Some(None),
            value => u64::try_from(value).ok().map(Some),
        }
    }

    pub fn meter(&mut self) -> Option<(Algorithm, u64)> {
        let kind = self.byte()?;
        let limit = self.amount()?;
        let algorithm = match kind {
            b'F' => Algorithm::FixedWindow { length_ms: self.amount()? },
            b'C' => Algorithm::CalendarWindow {
                boundaries_ms: [self.amount()?, self.amount()?, self.amount()?, self.amount()?],
            },
            b'S' => Algorithm::SlidingWindow {
                sub_window_ms: self.amount()?,
                sub_windows: u32::try_from(self.amount()?).ok()?,
            },
            b'T' => Algorithm::TokenBucket { num: self.amount()?, den: self.amount()? },
            b'N' => Algorithm::Concurrency { lease_ms: self.amount()? },
            b'B' => Algorithm::Balance,
            _ => return None,
        };
        Some((algorithm, limit))
    }

    pub fn rates(&mut self) -> Option<Rates> {
        let letter = self.byte()?;
        if let Some((_, preset)) = PRESETS.iter().find(|(preset, _)| *preset == letter) {
            return Some(*preset);
        }
        (letter == b'x').then_some(())?;
        Some(Rates {
            request: self.amount()?,
            input: self.amount()?,
            cache_read: self.amount()?,
            cache_write: self.amount()?,
            output: self.amount()?,
            reasoning: self.amount()?,
            per: self.amount()?,
        })
    }

    pub fn mark(&mut self, algorithm: Algorithm) -> Option<Mark> {
        Some(match algorithm {
            Algorithm::FixedWindow { .. } | Algorithm::CalendarWindow { .. } => {
                Mark::Window { start_ms: self.amount()? }
            }
            Algorithm::SlidingWindow { .. } => Mark::SubWindow { index: self.amount()? },
            Algorithm::TokenBucket { .. } => Mark::Level {
                generation: self.amount()?,
                interval: self.amount()?,
                at_ms: self.amount()?,
                level: self.signed()?,
                before: self.amount()?,
                early: self.amount()?,
                own: self.amount()?,
            },
            Algorithm::Concurrency { .. } | Algorithm::Balance => Mark::None,
        })
    }
}
