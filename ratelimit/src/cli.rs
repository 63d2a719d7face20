//! The command line. What cannot start says so in one line on stderr and exits with 1.

mod args;
mod check;
mod config_file;
mod events;
mod host_names;
mod secret;
mod serve;
#[cfg(test)]
mod tests;

use std::fmt::Display;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use args::ServeArgs;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use config_file::ArgumentsError;

const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("TOKENGATE_GIT_HASH"), ")");

/// The quota service of tokengate: holds a token budget before each LLM request and settles it afterwards.
#[derive(Debug, Parser)]
#[command(name = "tokengate-ratelimit", version = VERSION)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const START: &str = "\
To try it:             tokengate-ratelimit serve --policy policy.yaml
Several instances:     … --store redis --redis-url redis://redis.internal:6379
How a tenant stands:   curl 'http://127.0.0.1:8091/v1/explain?tenant=tenant-a&model=gpt-4o'
docs/service.md has all of this with its reasons.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Answer filters and operators until stopped by SIGTERM or SIGINT.
    #[command(after_help = START)]
    Serve(Box<ServeArgs>),
    /// Print the HTTP interface as an OpenAPI 3.1 document, JSON.
    Openapi,
    /// Read a policy and say what it contains, or what is wrong with it (exit code 1).
    Check(check::CheckArgs),
}

/// Runs the program with the arguments of this process.
pub fn run() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    let parsed =
        config_file::matches(Cli::command(), &arguments).and_then(|m| Ok(Cli::from_arg_matches(&m)?.command));
    let outcome = match parsed {
        Ok(Command::Openapi) => print(format_args!("{:#}", *crate::openapi::DOCUMENT)),
        Ok(Command::Check(args)) => check::check(&args),
        Ok(Command::Serve(args)) => serve::serve(*args).map_err(|error| error.to_string()),
        Err(ArgumentsError::Clap(error)) => error.exit(),
        Err(ArgumentsError::File(message)) => Err(message),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            complain(format_args!("tokengate-ratelimit: {message}"));
            ExitCode::FAILURE
        }
    }
}

/// One piece of what was asked for. A reader who has seen enough may leave; half of it on a full disk is a failure.
fn print(text: impl Display) -> Result<(), String> {
    match writeln!(std::io::stdout(), "{text}") {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(format!("standard output: {error}")),
        _ => Ok(()),
    }
}

/// One line on stderr. Where that cannot be written, nobody can be told.
fn complain(line: impl Display) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
