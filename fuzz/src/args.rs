//! The command line.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::target::TARGETS;

const USAGE: &str =
    "usage: tokengate-fuzz [--target NAME] [--seconds N] [--iterations N] [--seed N] [--replay FILE]
       tokengate-fuzz --list";

pub struct Args {
    /// Only name the targets.
    pub list: bool,
    /// None: all, one after the other.
    target: Option<String>,
    /// For each target.
    pub time: Duration,
    pub iterations: usize,
    pub seed: u64,
    pub replay: Option<PathBuf>,
}

impl Args {
    pub fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let time = Duration::from_secs(60);
        let mut args =
            Self { list: false, target: None, time, iterations: usize::MAX, seed: now, replay: None };
        while let Some(word) = words.next() {
            if word == "--list" {
                args.list = true;
                continue;
            }
            let value = words.next().ok_or_else(|| format!("{word} needs a value\n{USAGE}"))?;
            let number = || value.parse::<u64>().map_err(|error| format!("{word} {value}: {error}\n{USAGE}"));
            match word.as_str() {
                "--target" if TARGETS.iter().any(|(name, _)| *name == value) => args.target = Some(value),
                "--seconds" => args.time = Duration::from_secs(number()?),
                "--iterations" => args.iterations = usize::try_from(number()?).unwrap_or(usize::MAX),
                "--seed" => args.seed = number()?,
                "--replay" => args.replay = Some(value.into()),
                _ => {
                    let names = TARGETS.map(|(name, _)| name).join(", ");
                    return Err(format!("{word} {value} is nothing known; targets: {names}\n{USAGE}"));
                }
            }
        }
        if args.replay.is_some() && args.target.is_none() {
            return Err(format!("--replay needs --target\n{USAGE}"));
        }
        Ok(args)
    }

    pub fn wants(&self, name: &str) -> bool {
        self.target.as_deref().is_none_or(|target| target == name)
    }
}
