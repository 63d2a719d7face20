//! The program as an operator meets it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod check;
mod serve;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tokengate-ratelimit"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TOKENGATE_")) {
        command.env_remove(name);
    }
    command
}

fn run(arguments: &[&str]) -> Output {
    program().args(arguments).output().unwrap()
}

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../policy.yaml")
}

/// Exit code 1, nothing on stdout, one line on stderr that contains all of `says`.
fn refuses(arguments: &[&str], says: &[&str]) {
    let output = run(arguments);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {message}");
    assert_eq!(message.trim_end().lines().count(), 1, "{arguments:?}: {message}");
    assert!(output.stdout.is_empty());
    for part in says {
        assert!(message.contains(part), "{arguments:?}: {message}");
    }
    assert!(!message.contains("hunter2") && !message.contains("panicked"), "{message}");
}

#[test]
fn what_cannot_start_says_so_in_one_line() {
    let example = example();
    let policy = example.to_str().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let free = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
    refuses(
        &["serve", "--policy", policy, "--listen", &taken, "--admin-listen", "127.0.0.1:0"],
        &["cannot listen on", &taken, "in use"],
    );
    refuses(
        &["serve", "--policy", policy, "--listen", "127.0.0.1:0", "--admin-listen", &taken],
        &["cannot listen on", &taken],
    );
    let redis = |url| {
        [["serve", "--policy", policy, "--store", "redis", "--redis-url", url].as_slice(), &free].concat()
    };
    refuses(&redis("redis://user:hunter2@127.0.0.1:1/0"), &["Redis at 127.0.0.1:1"]);
    refuses(&redis("hunter2"), &["Redis URL cannot be read"]);
    let with = |more: &[&'static str]| [["serve", "--policy", policy].as_slice(), &free, more].concat();
    refuses(&with(&["--events", "stdout"]), &["--events needs --events-key"]);
    refuses(&with(&["--events", "stdout", "--events-key", "hunter2"]), &["--events-key is too short"]);
    refuses(
        &with(&["--events", "file:/no/such/file", "--events-key", "hunter2-hunter2-"]),
        &["/no/such/file"],
    );
    let tls = ["--store", "redis", "--redis-url", "rediss://127.0.0.1:1", "--redis-cert"];
    refuses(&with(&[&tls[..], &["/dev/null"]].concat()), &["--redis-key"]);
    refuses(&with(&[&tls[..], &["/no/such", "--redis-key", "/no/such"]].concat()), &["/no/such"]);
    // Operators on an address that others reach: only with a token.
    let open = ["serve", "--policy", policy, "--listen", "127.0.0.1:0", "--admin-listen", "0.0.0.0:0"];
    refuses(&open, &["--admin-listen 0.0.0.0:0", "--admin-token"]);
    refuses(&[&open[..], &["--admin-token", ""]].concat(), &["--admin-token"]);
    // The same for filters.
    for everywhere in ["0.0.0.0:0", "[::]:0"] {
        let open = ["serve", "--policy", policy, "--listen", everywhere, "--admin-listen", "127.0.0.1:0"];
        refuses(&open, &[&format!("--listen {everywhere}"), "--token", "127.0.0.1"]);
        refuses(&[&open[..], &["--token", ""]].concat(), &["--token"]);
        refuses(&[&open[..], &["--admin-token", "hunter2"]].concat(), &["--listen"]);
    }
    refuses(&["serve", "--config", "no/such.yaml"], &["no/such.yaml"]);
    refuses(&[["serve", "--policy", policy, "--log", "a=b=c"].as_slice(), &free].concat(), &["log filter"]);
    // A port that never answers as Redis does.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://:hunter2@{}", silent.local_addr().unwrap());
    refuses(&redis(&url), &["Redis at 127.0.0.1:"]);
}

#[test]
fn help_names_every_setting_and_version_the_commit() {
    let help = String::from_utf8(run(&["serve", "--help"]).stdout).unwrap();
    for name in ["POLICY", "LISTEN", "ADMIN_LISTEN", "STORE", "REDIS_URL", "TOKEN", "LOG", "CONFIG"] {
        assert!(help.contains(&format!("TOKENGATE_{name}")), "{name}");
    }
    let version = String::from_utf8(run(&["--version"]).stdout).unwrap();
    assert!(
        version.starts_with(concat!("tokengate-ratelimit ", env!("CARGO_PKG_VERSION"), " (")),
        "{version}"
    );
}

#[test]
fn prints_its_interface() {
    let output = run(&["openapi"]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("\"openapi\": \"3.1.0\"") && text.contains("/v1/reserve"), "{text}");
}
