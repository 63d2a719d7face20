//! The command line. What cannot start says so in one line on stderr and exits with 1.

mod check;
mod serve;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};

const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("TOKENGATE_GIT_HASH"), ")");

/// The quota service of tokengate: holds a token budget before each LLM request and settles it afterwards.
#[derive(Debug, Parser)]
#[command(name = "tokengate-ratelimit", version = VERSION)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Answer filters and operators until stopped by SIGTERM or SIGINT.
    Serve(Box<ServeArgs>),
    /// Read a policy and say what it contains, or what is wrong with it (exit code 1).
    Check(check::CheckArgs),
}

#[derive(Debug, Args)]
struct ServeArgs {
    /// The policy, YAML: models, plans, keys and limits.
    #[arg(long, value_name = "FILE", env = "TOKENGATE_POLICY")]
    policy: PathBuf,

    /// Where filters call: HTTP/1.1 or HTTP/2 without TLS. Meant for a private network.
    #[arg(long, value_name = "ADDRESS:PORT", env = "TOKENGATE_LISTEN", default_value = "127.0.0.1:8090")]
    listen: SocketAddr,

    /// Where operators look: /healthz, /readyz, /v1/explain.
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        env = "TOKENGATE_ADMIN_LISTEN",
        default_value = "127.0.0.1:8091"
    )]
    admin_listen: SocketAddr,

    /// Where the counts live. Memory: in this process, lost when it ends.
    #[arg(long, value_enum, env = "TOKENGATE_STORE", default_value = "memory")]
    store: StoreKind,

    /// Redis 6.2 or newer: redis://[user:password@]host:port[/database].
    #[arg(
        long,
        value_name = "URL",
        env = "TOKENGATE_REDIS_URL",
        hide_env_values = true,
        default_value = "redis://127.0.0.1:6379"
    )]
    redis_url: Secret,

    /// Bearer token that filters must bring; best given by the environment. None: not asked for.
    #[arg(long, value_name = "TOKEN", env = "TOKENGATE_TOKEN", hide_env_values = true)]
    token: Option<Secret>,

    /// What to log: error, warn, info, debug, or a tracing filter.
    #[arg(long, value_name = "FILTER", env = "TOKENGATE_LOG", default_value = "info")]
    log: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum StoreKind {
    Memory,
    Redis,
}

/// A value that must not be printed.
#[derive(Clone)]
struct Secret(String);

impl std::str::FromStr for Secret {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.to_owned()))
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("…")
    }
}

/// Runs the program with the arguments of this process.
pub fn run() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Check(args) => check::check(&args),
        Command::Serve(args) => serve::serve(*args).map_err(|error| error.to_string()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("tokengate-ratelimit: {message}");
            ExitCode::FAILURE
        }
    }
}
