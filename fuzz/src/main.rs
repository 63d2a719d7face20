//! Feeds the filter's pure parts with mutations of a corpus, on stable Rust, and checks what must hold.
//!
//! `tokengate-fuzz --target request --seconds 60 [--seed N] [--iterations N] [--replay FILE]`. The same seed
//! and number of iterations give the same inputs. What breaks a target is made smaller, written to
//! `fuzz/crashes/` and named, with the seed; the program then ends with 1.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a broken invariant is to panic, and nothing here ships"
)]

mod args;
mod corpus;
mod mutate;
mod rng;
mod shrink;
mod target;
mod tokens;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use args::Args;
use corpus::Corpus;
use rng::Rng;
use target::Run;

/// An input that takes longer than this is a fault as well, on however busy a machine.
const TOO_LONG: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    let args = match Args::parse(std::env::args().skip(1)) {
        Ok(args) => args,
        Err(usage) => {
            eprintln!("{usage}");
            return ExitCode::from(2);
        }
    };
    if args.list {
        target::TARGETS.iter().for_each(|(name, _)| println!("{name}"));
        return ExitCode::SUCCESS;
    }
    if cfg!(panic = "abort") {
        eprintln!("This build ends at its first panic. Build it with `--profile fuzz`.");
        return ExitCode::from(2);
    }
    shrink::install_hook();
    for (name, run) in target::TARGETS.into_iter().filter(|(name, _)| args.wants(name)) {
        let outcome = match &args.replay {
            Some(file) => replay(file, run),
            None => fuzz(name, run, &args),
        };
        if let Err(fault) = outcome {
            eprintln!("{name}: {fault}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn replay(file: &std::path::Path, run: Run) -> Result<(), String> {
    let input = std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
    shrink::attempt(run, &input).map(|_| ())
}

fn fuzz(name: &str, run: Run, args: &Args) -> Result<(), String> {
    // Said first, for an end that nothing can be said after.
    println!("{name}: seed {}", args.seed);
    let started = Instant::now();
    let mut corpus = Corpus::read(name)?;
    let mut slowest = Duration::ZERO;
    let mut rng = Rng::new(args.seed);
    let mut done = 0;
    while done < args.iterations && started.elapsed() < args.time {
        // First the seeds as they are.
        let input = match corpus.seed(done) {
            Some(seed) => seed.to_vec(),
            None => {
                let (one, other) = (corpus.any(&mut rng), corpus.any(&mut rng));
                mutate::mutate(&mut rng, one, other)
            }
        };
        let began = Instant::now();
        let result = shrink::attempt(run, &input);
        slowest = slowest.max(began.elapsed());
        done += 1;
        let fault = match result {
            Ok(_) if began.elapsed() > TOO_LONG => format!("took {:?}", began.elapsed()),
            Ok(signature) => {
                corpus.learn(signature, input);
                continue;
            }
            Err(fault) => fault,
        };
        let smaller = shrink::shrink(run, input, &fault);
        let file = corpus::save_crash(name, args.seed, &smaller)?;
        return Err(format!("{fault}\n  input: {}\n  seed: {}, iteration {done}", file.display(), args.seed));
    }
    println!("{name}: {done} inputs, {} kinds, {:?}, slowest {slowest:?}", corpus.kinds(), started.elapsed());
    Ok(())
}
