//! Turns one input into another: blind changes of bytes, and changes that know what the inputs look like.

use crate::rng::Rng;
use crate::tokens::{BROKEN, TOKENS};

/// Inputs stop growing here, runs of one byte or token apart.
const MAX_LENGTH: usize = 16 * 1024;
const LONG_RUN: usize = 40 * 1024;

/// One to six changes to `input`; `other` is another entry of the corpus.
pub fn mutate(rng: &mut Rng, input: &[u8], other: &[u8]) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..=rng.below(6) {
        change(rng, &mut bytes, other);
        if bytes.len() > MAX_LENGTH && !rng.one_in(8) {
            bytes.truncate(MAX_LENGTH);
        }
    }
    bytes
}

fn change(rng: &mut Rng, bytes: &mut Vec<u8>, other: &[u8]) {
    let length = bytes.len();
    let at = rng.below(length + 1);
    match rng.below(16) {
        0 if length > 0 => bytes[at.min(length - 1)] ^= 1 << rng.below(8),
        1 if length > 0 => bytes[at.min(length - 1)] = rng.next() as u8,
        2 => drop(bytes.drain(rng.range(length))),
        3 => insert(bytes, at, rng.pick(BROKEN)),
        // A piece of the input itself, elsewhere.
        4 => {
            let piece = bytes[rng.range(length)].to_vec();
            insert(bytes, at, &piece);
        }
        5 => {
            let piece = other[rng.range(other.len())].to_vec();
            insert(bytes, at, &piece);
        }
        // The beginning of one, the end of the other.
        6 => {
            bytes.truncate(at);
            bytes.extend_from_slice(&other[rng.below(other.len() + 1)..]);
        }
        7 => {
            let range = rng.range(length);
            bytes.splice(range, rng.pick(TOKENS).bytes());
        }
        8 => number(rng, bytes),
        9 => lines(rng, bytes),
        10 => grow(rng, bytes, at),
        11 => nest(rng, bytes, at),
        12 => bytes.truncate(at),
        _ => insert(bytes, at, rng.pick(TOKENS).as_bytes()),
    }
}

fn insert(bytes: &mut Vec<u8>, at: usize, piece: &[u8]) {
    bytes.splice(at..at, piece.iter().copied());
}

/// Another number in the place of one.
fn number(rng: &mut Rng, bytes: &mut Vec<u8>) {
    let starts: Vec<usize> = (0..bytes.len())
        .filter(|&i| bytes[i].is_ascii_digit() && (i == 0 || !bytes[i - 1].is_ascii_digit()))
        .collect();
    if starts.is_empty() {
        return;
    }
    let start = starts[rng.below(starts.len())];
    let end = (start..bytes.len()).find(|&i| !bytes[i].is_ascii_digit()).unwrap_or(bytes.len());
    let numbers: Vec<&&str> = TOKENS.iter().filter(|token| token.parse::<f64>().is_ok()).collect();
    let written = match rng.below(3) {
        0 => rng.below(300).to_string(),
        1 => (rng.next() >> rng.below(64)).to_string(),
        _ => (*numbers[rng.below(numbers.len())]).to_owned(),
    };
    bytes.splice(start..end, written.bytes());
}

/// Lines swapped, doubled or taken out.
fn lines(rng: &mut Rng, bytes: &mut Vec<u8>) {
    let mut lines: Vec<Vec<u8>> = bytes.split_inclusive(|b| *b == b'\n').map(<[u8]>::to_vec).collect();
    if lines.is_empty() {
        return;
    }
    let (a, b) = (rng.below(lines.len()), rng.below(lines.len()));
    match rng.below(3) {
        0 => lines.swap(a, b),
        1 => lines.insert(a, lines[b].clone()),
        _ => drop(lines.remove(a)),
    }
    *bytes = lines.concat();
}

fn grow(rng: &mut Rng, bytes: &mut Vec<u8>, at: usize) {
    let unit = match rng.below(3) {
        0 => vec![rng.next() as u8],
        1 => rng.pick(TOKENS).as_bytes().to_vec(),
        _ => bytes[rng.range(bytes.len())].to_vec(),
    };
    let most = if rng.one_in(64) { LONG_RUN } else { 300 };
    let times = rng.below(most / unit.len().max(1) + 2);
    insert(bytes, at, &unit.repeat(times));
}

fn nest(rng: &mut Rng, bytes: &mut Vec<u8>, at: usize) {
    let deepest = if rng.one_in(16) { 12_000 } else { 140 };
    let depth = 1 + rng.below(deepest);
    let (open, close) = if rng.one_in(2) { ("[", "]") } else { ("{\"a\":", "}") };
    let inside = if rng.one_in(2) { "1" } else { "" };
    let text = format!("{}{inside}{}", open.repeat(depth), close.repeat(depth));
    insert(bytes, at, text.as_bytes());
}
