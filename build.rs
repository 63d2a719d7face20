//! Puts the git hash into the module, for the line it logs when a VM starts.

use std::process::Command;

fn main() {
    let hash = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output();
    let hash = match hash {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        _ => "unknown".to_owned(),
    };
    println!("cargo:rustc-env=TOKENGATE_GIT_HASH={hash}");
    println!("cargo:rerun-if-changed=.git/HEAD");
    println!("cargo:rerun-if-changed=.git/logs/HEAD");
}
