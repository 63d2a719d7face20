//! The bare scripts: `EVALSHA` as the service sent it, recorded by MONITOR and made to fit other reservations.
//!
//! What differs from one reservation to the next is replaced, nothing else: the id, the tenant's tags, the
//! service's clock, and what only the record knows, which the settle repeats.

use redis::Cmd;
use tokengate_ratelimit::store::Hold;

use crate::Outcome;

type Words = Vec<Vec<u8>>;

/// One pair as it was recorded, for one tenant.
#[derive(Clone)]
pub struct Recorded {
    reserve: Words,
    settle: Words,
    id: String,
    marks: Vec<Mark>,
}

/// A mark of the record that an argument of the settle ends with.
#[derive(Clone, Copy)]
struct Mark {
    word: usize,
    at: usize,
    length: usize,
    kind: Option<u8>,
}

/// Of a command `EVALSHA hash keys …`: where the first key and the first argument stand.
const KEYS: usize = 3;
/// Of a record: when it was made, ms.
const MADE_AT: usize = 44;
/// Of a refund: where it says which hold it ends, and its kind; `ratelimit/src/store/redis/answer.rs`.
const PLACE: usize = 17;
const REFUNDED_KIND: usize = PLACE + 8;

fn arguments(words: &Words) -> Outcome<usize> {
    let keys: usize = std::str::from_utf8(words.get(2).ok_or("EVALSHA without keys")?)?.parse()?;
    Ok(KEYS + keys)
}

impl Recorded {
    /// From the commands of one reserve and one settle of `hold`.
    pub fn new(commands: Vec<Words>, hold: &Hold) -> Outcome<Self> {
        let [reserve, settle] = <[Words; 2]>::try_from(commands)
            .map_err(|commands| format!("a pair is two EVALSHA, not {}", commands.len()))?;
        let first = arguments(&settle)?;
        let record = settle.get(first + 1).ok_or("a settle without a record")?;
        let mut marks = Vec::new();
        for (number, (key, argument)) in settle[KEYS + 3..first].iter().zip(&settle[first + 7..]).enumerate()
        {
            let kind =
                (argument.first() == Some(&b'R')).then(|| argument.get(REFUNDED_KIND).copied()).flatten();
            let length = mark_length(kind);
            let charge = hold.charges.iter().find(|charge| {
                let bucket = charge.meter.bucket;
                key.ends_with(format!("{}:{}", bucket.limit, bucket.subject).as_bytes())
            });
            let bucket = charge.ok_or("a settle of an unknown bucket")?.meter.bucket;
            let tags = [bucket.limit.0, bucket.subject.0].concat();
            let rates = position(record, &tags).ok_or("the record lacks a bucket")? + tags.len();
            // A letter, or `x` and seven numbers; then the amount.
            let at = rates + if record[rates] == b'x' { 57 } else { 1 } + 8;
            if record[at..at + length] != argument[argument.len() - length..] {
                return Err("a mark is not where it was looked for".into());
            }
            let mark = Mark { word: first + 7 + number, at, length, kind };
            if let Some(place) = mark.place(record)
                && argument[PLACE..REFUNDED_KIND] != place
            {
                return Err("a hold is not where it was looked for".into());
            }
            marks.push(mark);
        }
        let id = hold.id.as_str().to_owned();
        Ok(Self { reserve, settle, id, marks })
    }

    /// The same for another tenant.
    pub fn of_tenant(&self, own: &Hold, other: &Hold) -> Self {
        let mut changes = vec![
            (own.account.to_string().into_bytes(), other.account.to_string().into_bytes()),
            (own.identity.0.to_vec(), other.identity.0.to_vec()),
        ];
        for (own, other) in own.charges.iter().zip(&other.charges) {
            let (own, other) = (own.meter.bucket.subject, other.meter.bucket.subject);
            changes.push((own.to_string().into_bytes(), other.to_string().into_bytes()));
            changes.push((own.0.to_vec(), other.0.to_vec()));
        }
        let change = |words: &Words| {
            words
                .iter()
                .map(|word| changes.iter().fold(word.clone(), |word, (from, to)| replace(word, from, to)))
                .collect()
        };
        Self { reserve: change(&self.reserve), settle: change(&self.settle), ..self.clone() }
    }

    /// `EVALSHA` that reserves under another id.
    pub fn reserve(&self, id: &str, now_ms: u64) -> Outcome<Cmd> {
        self.command(&self.reserve, id, now_ms)
    }

    /// The key of a reservation's record.
    pub fn record_key(&self, id: &str) -> Vec<u8> {
        replace(self.reserve[KEYS].clone(), self.id.as_bytes(), id.as_bytes())
    }

    /// `EVALSHA` that settles what `record` is the record of.
    pub fn settle(&self, id: &str, now_ms: u64, record: Vec<u8>) -> Outcome<Cmd> {
        let mut words = self.settle.clone();
        for mark in &self.marks {
            let Mark { word, at, length, .. } = *mark;
            let word = &mut words[word];
            let start = word.len() - length;
            word[start..].copy_from_slice(record.get(at..at + length).ok_or("a record is shorter")?);
            if let Some(place) = mark.place(&record) {
                word[PLACE..REFUNDED_KIND].copy_from_slice(&place);
            }
        }
        let first = arguments(&words)?;
        words[first + 1] = record;
        self.command(&words, id, now_ms)
    }

    fn command(&self, words: &Words, id: &str, now_ms: u64) -> Outcome<Cmd> {
        let first = arguments(words)?;
        let mut command = Cmd::new();
        for (number, word) in words.iter().enumerate() {
            match number {
                _ if number == first => command.arg(now_ms),
                // The record's key, and the member of the open holds.
                _ if number == KEYS || number == first + 4 => {
                    command.arg(replace(word.clone(), self.id.as_bytes(), id.as_bytes()))
                }
                _ => command.arg(word.as_slice()),
            };
        }
        Ok(command)
    }

    /// Whether both are the same commands but for what differs from one reservation to the next.
    pub fn is_like(&self, other: &Self) -> bool {
        let commands = |recorded: &Self| -> Outcome<_> {
            let id = "0".repeat(32);
            let first = arguments(&recorded.settle)?;
            let record = &other.settle[first + 1];
            let commands = [recorded.reserve(&id, 0)?, recorded.settle(&id, 0, record.clone())?];
            Ok(commands.map(|command| command.get_packed_command()))
        };
        matches!((commands(self), commands(other)), (Ok(own), Ok(others)) if own == others)
    }
}

impl Mark {
    /// What a refund says of where its hold is counted: `ratelimit/src/limits/holds.rs`.
    fn place(&self, record: &[u8]) -> Option<[u8; 8]> {
        let double = |at| record.get(at..at + 8)?.try_into().ok();
        match self.kind? {
            b'S' => double(self.at),
            b'T' => double(self.at + 8),
            _ => {
                let made_at_ms = f64::from_be_bytes(double(MADE_AT)?);
                Some((made_at_ms / 3_600_000.0).floor().to_be_bytes())
            }
        }
    }
}

/// How much of the argument of a refund of this kind is the mark: `ratelimit/src/store/codec.rs`.
fn mark_length(kind: Option<u8>) -> usize {
    match kind {
        Some(b'F' | b'C' | b'S') => 8,
        Some(b'T') => 56,
        _ => 0,
    }
}

fn position(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}

/// `to` for every `from` of the same length.
fn replace(mut bytes: Vec<u8>, from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut start = 0;
    while let Some(at) = position(&bytes[start..], from) {
        bytes[start + at..start + at + to.len()].copy_from_slice(to);
        start += at + to.len();
    }
    bytes
}
