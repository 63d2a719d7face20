#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]
use std::ffi::OsString;
use std::path::Path;

use clap::{Arg, ArgMatches};
use tokengate_api::{Outcome, SettleStatus, Usage};

use super::config_file::matches;
use super::*;
use crate::metrics::{Metrics, StoreCall, StoreOutcome};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/service.md");

/// Reads a command line with a file of settings, without the environment of this process.
fn read(file: &str, arguments: &[&str]) -> Result<ArgMatches, ArgumentsError> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("settings.yaml");
    std::fs::write(&path, file).unwrap();
    let config = path.display().to_string();
    let all =
        ["tokengate-ratelimit", "serve", "--config", &config].into_iter().chain(arguments.iter().copied());
    let all: Vec<OsString> = all.map(OsString::from).collect();
    let command = Cli::command().mut_subcommand("serve", |serve| {
        serve.mut_args(|arg| match arg.get_id().as_str() {
            // The one variable that a test sets: PATH is always there.
            "events_key" => arg.env("PATH"),
            _ => arg.env(None::<&str>),
        })
    });
    matches(command, &all)
}

fn value(matches: &ArgMatches, id: &str) -> String {
    let serve = matches.subcommand_matches("serve").unwrap();
    serve.get_raw(id).unwrap().next().unwrap().to_str().unwrap().to_owned()
}

#[test]
fn flags_win_over_the_environment_over_the_file_over_defaults() {
    let file =
        "policy: p.yaml\nmax-calls: 7\nlisten: 127.0.0.1:1\nevents-key: from-file\nallowed-hosts: a,b\n";
    let seen = read(file, &["--listen", "127.0.0.1:2"]).unwrap();
    assert_eq!(value(&seen, "policy"), "p.yaml");
    assert_eq!(value(&seen, "max_calls"), "7");
    assert_eq!(value(&seen, "allowed_hosts"), "a,b");
    assert_eq!(value(&seen, "listen"), "127.0.0.1:2");
    assert_eq!(value(&seen, "admin_listen"), "127.0.0.1:8091");
    assert_eq!(value(&seen, "events_key"), std::env::var("PATH").unwrap());
    let seen = read(file, &["--events-key", "from-flag"]).unwrap();
    assert_eq!(value(&seen, "events_key"), "from-flag");
    assert_eq!(value(&read("", &["--policy", "q"]).unwrap(), "policy"), "q");
}

#[test]
fn a_file_with_a_mistake_says_where() {
    for (file, says) in [
        ("policy: p\nmax-calls: 0\n", ":2:1: max-calls: is not a value"),
        ("policy: p\nmax-calls: hunter2\n", ":2:1: max-calls: is not a value"),
        ("max_calls: 1\n", ":1:1: max_calls: is not a setting"),
        ("config: other.yaml\n", ":1:1: config: is not a setting"),
        ("help: true\n", ":1:1: help: is not a setting"),
        ("allowed-hosts: http://a\n", ":1:1: allowed-hosts: is not a value"),
        ("listen: [127.0.0.1:1]\n", ":1:1: listen: must be one value, not a list"),
        ("policy: a\npolicy: b\n", "policy"),
        ("- listen\n", "must be a map"),
        ("a: {", ":1:"),
    ] {
        let Err(ArgumentsError::File(message)) = read(file, &[]) else { panic!("{file}") };
        assert!(message.contains("settings.yaml") && message.contains(says), "{message}");
        assert!(!message.contains("hunter2") && !message.contains('\n'), "{message}");
    }
    let none = [OsString::from("x"), "serve".into(), "--config".into(), "/no/such".into()];
    let Err(ArgumentsError::File(message)) = matches(Cli::command(), &none) else { panic!() };
    assert!(message.contains("/no/such"), "{message}");
    // Without the policy something is missing, with a file or without.
    assert!(matches!(read("log: debug\n", &[]), Err(ArgumentsError::Clap(_))));
}

#[test]
fn every_setting_has_a_variable_a_heading_and_a_sentence() {
    let command = Cli::command();
    Cli::command().debug_assert();
    for arg in settings(&command) {
        let flag = arg.get_long().unwrap();
        let variable = format!("TOKENGATE_{}", flag.replace('-', "_").to_uppercase());
        assert_eq!(arg.get_env().unwrap().to_str(), Some(variable.as_str()));
        assert!(arg.get_help_heading().is_some() && arg.get_help().is_some(), "{flag}");
        let secret = arg.is_hide_env_values_set();
        assert_eq!(
            secret,
            ["token", "key", "url"].iter().any(|end| flag.ends_with(end)) && flag != "redis-key"
        );
    }
}

/// What stands in docs/service.md between its marks is what the program says of itself. After a change:
/// `TOKENGATE_BLESS=1 cargo test -p tokengate-ratelimit docs`.
#[test]
fn the_docs_have_every_setting_and_every_metric() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let fresh = filled(&filled(&page, "settings", &settings_table()), "metrics", &metrics_table());
    if std::env::var_os("TOKENGATE_BLESS").is_some() {
        std::fs::write(Path::new(PAGE), &fresh).unwrap();
    }
    assert!(
        page == fresh || std::env::var_os("TOKENGATE_BLESS").is_some(),
        "docs/service.md is not up to date: TOKENGATE_BLESS=1 cargo test -p tokengate-ratelimit docs"
    );
}

/// The page with the text between the marks of `name` replaced.
fn filled(page: &str, name: &str, text: &str) -> String {
    let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
    let (before, rest) = page.split_once(&begin).unwrap();
    let (_, after) = rest.split_once(&end).unwrap();
    format!("{before}{begin}{text}{end}{after}")
}

fn settings(command: &clap::Command) -> Vec<&Arg> {
    let serve = command.find_subcommand("serve").unwrap();
    serve.get_arguments().filter(|arg| arg.get_id() != "help").collect()
}

fn settings_table() -> String {
    let command = Cli::command();
    let mut table =
        "| flag, and name in the file | environment | default | meaning |\n|---|---|---|---|\n".to_owned();
    for arg in settings(&command) {
        let default = match arg.get_default_values() {
            [] if arg.is_required_set() => "needed".to_owned(),
            [] => String::new(),
            values => format!("`{}`", values[0].to_str().unwrap()),
        };
        let name = &arg.get_value_names().unwrap()[0];
        table.push_str(&format!(
            "| `--{} {name}` | `{}` | {default} | {} |\n",
            arg.get_long().unwrap(),
            arg.get_env().unwrap().to_str().unwrap(),
            arg.get_help().unwrap().to_string().replace('|', "\\|").replace('\n', " "),
        ));
    }
    table
}

fn metrics_table() -> String {
    // A family without a sample is not shown.
    let metrics = Metrics::default();
    metrics.settled(
        Outcome::Used,
        SettleStatus::Settled,
        Some(&Usage { input: 1, ..Usage::default() }),
        None,
        None,
    );
    let answer = serde_json::json!({"decision": "allow", "policy_version": "1"});
    metrics.decided(&serde_json::from_value(answer).unwrap());
    metrics.would_deny("limit");
    metrics.identified(true);
    metrics.store_call(StoreCall::Ping, StoreOutcome::Ok, 0.0);
    metrics.policy("1");
    let text = metrics.text().unwrap();
    let mut table = "| metric | kind | meaning |\n|---|---|---|\n".to_owned();
    let mut help = "";
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').unwrap().1;
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            table.push_str(&format!("| `{name}` | {kind} | {help} |\n"));
        }
    }
    table
}
