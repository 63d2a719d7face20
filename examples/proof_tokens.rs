//! Compares the filter's count with tiktoken-rs's on made-up texts, and on files if any are named.
//!
//!     cargo run --release --example proof_tokens -- [megabytes] [seed] [file…]

#[path = "../src/tokenizer/samples.rs"]
mod samples;

use std::{
    sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    thread,
};

use tiktoken_rs::CoreBPE;
use tokengate::tokenizer::Encoding;

/// Above this tiktoken-rs may panic on runs of white space.
const MAX_LENGTH: usize = 100_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let megabytes: usize = arguments.next().map_or(Ok(200), |text| text.parse())?;
    let seed: u64 = arguments.next().map_or(Ok(1), |text| text.parse())?;
    let files: Vec<String> = arguments.collect();
    let (checked, wrong) = (AtomicUsize::new(0), AtomicU64::new(0));
    let check = |encoding: Encoding, oracle: &CoreBPE, text: &str| {
        let (counted, exact) = (encoding.count(text), oracle.encode_ordinary(text).len() as u64);
        checked.fetch_add(text.len(), Relaxed);
        if counted != exact && wrong.fetch_add(1, Relaxed) < 20 {
            let start: String = text.chars().take(60).collect();
            println!("{encoding:?}: {counted} instead of {exact}: {start:?}… ({} bytes)", text.len());
        }
    };
    let encodings = [
        (Encoding::O200kBase, tiktoken_rs::o200k_base_singleton(), 199_998),
        (Encoding::Cl100kBase, tiktoken_rs::cl100k_base_singleton(), 100_256),
    ];
    for file in files {
        let text = String::from_utf8_lossy(&std::fs::read(file)?).into_owned();
        for (encoding, oracle, _) in encodings {
            let mut rest = text.as_str();
            while !rest.is_empty() {
                let (part, after) = rest.split_at(rest.floor_char_boundary(MAX_LENGTH));
                check(encoding, oracle, part);
                rest = after;
            }
        }
    }
    let workers = thread::available_parallelism()?.get() as u64;
    thread::scope(|scope| {
        for worker in 0..workers {
            let (check, checked) = (&check, &checked);
            scope.spawn(move || {
                for turn in (worker..).step_by(workers as usize) {
                    if checked.load(Relaxed) >= megabytes * 1_000_000 {
                        return;
                    }
                    for (encoding, oracle, size) in encodings {
                        let token = |number: usize| {
                            oracle.decode_bytes(&[(number % size) as u32]).unwrap_or_default()
                        };
                        // Many short texts, some long ones.
                        let length = if turn % 50 == 0 { 20_000 } else { 1 + (turn % 997) as usize };
                        check(encoding, oracle, &samples::text(seed << 40 | turn, length, &token));
                    }
                }
            });
        }
    });
    let (checked, wrong) = (checked.into_inner(), wrong.into_inner());
    println!("{:.1} MB checked, {wrong} texts counted wrong", checked as f64 / 1e6);
    if wrong > 0 { Err("the counts differ".into()) } else { Ok(()) }
}
