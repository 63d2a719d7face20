//! `tokengate-ratelimit serve` and `tokengate-ratelimit check`.

use std::process::ExitCode;

fn main() -> ExitCode {
    tokengate_ratelimit::cli::run()
}
