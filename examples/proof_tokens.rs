//! Compares the filter's count with tiktoken-rs's on made-up texts, and on files if any are named; that of the
//! vocabularies which are built in by feature with tiktoken's.
//!
//!     cargo run --release --example proof_tokens [--features llama3,…] -- [megabytes] [seed] [file…]

#[path = "../src/tokenizer/oracles.rs"]
mod oracles;
#[path = "../src/tokenizer/samples.rs"]
mod samples;

use std::{
    ops::Range,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    thread,
};

use oracles::Oracle;
use tokengate::tokenizer::Encoding;

/// Above this tiktoken-rs may panic on runs of white space.
const MAX_LENGTH: usize = 100_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let megabytes: usize = arguments.next().map_or(Ok(200), |text| text.parse())?;
    let seed: u64 = arguments.next().map_or(Ok(1), |text| text.parse())?;
    let files: Vec<String> = arguments.collect();
    let (checked, wrong) = (AtomicUsize::new(0), AtomicU64::new(0));
    let oracles = oracles::oracles();
    let check = |oracle: &Oracle, text: &str| {
        let (counted, exact) = (oracle.encoding.count(text), (oracle.count)(text));
        checked.fetch_add(text.len(), Relaxed);
        if counted != exact && wrong.fetch_add(1, Relaxed) < 20 {
            let start: String = text.chars().take(60).collect();
            println!(
                "{:?}: {counted} instead of {exact}: {start:?}… ({} bytes)",
                oracle.encoding,
                text.len()
            );
        }
    };
    for file in files {
        let text = String::from_utf8_lossy(&std::fs::read(file)?).into_owned();
        for oracle in &oracles {
            let mut rest = text.as_str();
            while !rest.is_empty() {
                let (part, after) = rest.split_at(rest.floor_char_boundary(MAX_LENGTH));
                check(oracle, part);
                rest = after;
            }
        }
    }
    let workers = thread::available_parallelism()?.get() as u64;
    thread::scope(|scope| {
        for worker in 0..workers {
            let (check, checked, oracles) = (&check, &checked, &oracles);
            scope.spawn(move || {
                for turn in (worker..).step_by(workers as usize) {
                    if checked.load(Relaxed) >= megabytes * 1_000_000 {
                        return;
                    }
                    for oracle in oracles {
                        let Range { start, end } = oracle.ranks;
                        let token = |number: usize| (oracle.token)(start + number as u32 % (end - start));
                        // Many short texts, some long ones.
                        let length = if turn % 50 == 0 { 20_000 } else { 1 + (turn % 997) as usize };
                        check(oracle, &samples::text(seed << 40 | turn, length, &token));
                    }
                }
            });
        }
    });
    let (checked, wrong) = (checked.into_inner(), wrong.into_inner());
    println!("{:.1} MB checked, {wrong} texts counted wrong", checked as f64 / 1e6);
    if wrong > 0 { Err("the counts differ".into()) } else { Ok(()) }
}
