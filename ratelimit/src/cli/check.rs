use std::path::PathBuf;

use clap::Args;

use super::{complain, print};
use crate::policy::{Assumed, Policy};

/// What `check` is told.
#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// The policy, YAML.
    file: PathBuf,

    /// Refuse what is only warned of.
    #[arg(long)]
    strict: bool,

    /// Print for each plan and model which limits apply, what a request without an output limit holds, how many
    /// of them fit, and how much of each limit can be used. An estimate: docs/policy.md has the formulas.
    #[arg(long)]
    explain: bool,

    /// Prompt tokens of the request that --explain reckons with.
    #[arg(long, value_name = "N", default_value_t = Assumed::default().prompt_tokens)]
    prompt_tokens: u64,

    /// Output tokens it produces; a quarter of what it holds when left out.
    #[arg(long, value_name = "N")]
    output_tokens: Option<u64>,

    /// How fast its output comes.
    #[arg(long, value_name = "N", default_value_t = Assumed::default().tokens_per_second)]
    tokens_per_second: u64,
}

/// Warnings go to stderr, one line each; the explanation and `ok: …` to stdout.
pub(super) fn check(args: &CheckArgs) -> Result<(), String> {
    let policy = Policy::load(&args.file).map_err(|error| error.to_string())?;
    let file = args.file.display();
    let warnings = policy.warnings();
    for warning in &warnings {
        complain(format_args!("warning: {file}:{warning}"));
    }
    if args.strict && !warnings.is_empty() {
        let noun = if warnings.len() == 1 { "warning" } else { "warnings" };
        return Err(format!("{file}: {} {noun}, and --strict", warnings.len()));
    }
    if args.explain {
        let assumed = Assumed {
            prompt_tokens: args.prompt_tokens,
            output_tokens: args.output_tokens,
            tokens_per_second: args.tokens_per_second,
        };
        print(policy.explain(assumed))?;
    }
    print(format_args!("ok: {}", policy.summary()))
}
