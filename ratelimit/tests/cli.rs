//! The program as an operator meets it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

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
fn check_says_what_is_there_or_what_is_wrong() {
    let output = run(&["check", example().to_str().unwrap()]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    assert!(text.starts_with("ok: 6 models, 2 plans, 2 keys, 2 limits, version "), "{text}");

    refuses(&["check", "no/such.yaml"], &["no/such.yaml"]);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("policy.yaml");
    std::fs::write(&file, "version: 1\n").unwrap();
    let name = file.to_str().unwrap();
    refuses(&["check", name], &[&format!("{name}:1:10: version: must be a string")]);
    refuses(&["serve", "--policy", name], &[":1:10: version"]);
}

#[test]
fn check_warns_and_can_be_strict() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("policy.yaml");
    let name = file.to_str().unwrap();
    let text = std::fs::read_to_string(example()).unwrap();
    std::fs::write(&file, text.replace("standard: 10000,", "standard: 1000,")).unwrap();
    let output = run(&["check", name]);
    let warning = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && output.stdout.starts_with(b"ok: "), "{warning}");
    let line = 1 + text.lines().position(|line| line.contains("name: tenant-tpm")).unwrap();
    assert!(warning.starts_with(&format!("warning: {name}:{line}:5: limit `tenant-tpm`")), "{warning}");
    assert_eq!(warning.lines().count(), 1, "{warning}");

    let output = run(&["check", name, "--strict"]);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    assert!(message.starts_with(&warning) && message.ends_with("1 warning, and --strict\n"), "{message}");
    assert!(run(&["check", example().to_str().unwrap(), "--strict"]).status.success());
}

#[test]
fn check_explains_each_plan_and_model() {
    let example = example();
    let arguments = ["check", example.to_str().unwrap(), "--explain", "--strict"];
    let explain = |more: &[&str]| {
        let output = run(&[arguments.as_slice(), more].concat());
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    let text = explain(&[]);
    for (plan, models) in [("standard", 5), ("enterprise", 6)] {
        assert_eq!(text.matches(&format!("plan `{plan}`, model ")).count(), models, "{text}");
    }
    assert!(text.contains("\nok: 6 models"), "{text}");
    let slow = explain(&["--prompt-tokens", "1000", "--output-tokens", "100", "--tokens-per-second", "10"]);
    assert!(slow.contains("taken to be 1000 + 100 used in 10 s"), "{slow}");
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
    refuses(&with(&["--events", "file:/no/such/file", "--events-key", "hunter2"]), &["/no/such/file"]);
    let tls = ["--store", "redis", "--redis-url", "rediss://127.0.0.1:1", "--redis-cert"];
    refuses(&with(&[&tls[..], &["/dev/null"]].concat()), &["--redis-key"]);
    refuses(&with(&[&tls[..], &["/no/such", "--redis-key", "/no/such"]].concat()), &["/no/such"]);
    // Operators on an address that others reach: only with a token.
    let open = ["serve", "--policy", policy, "--listen", "127.0.0.1:0", "--admin-listen", "0.0.0.0:0"];
    refuses(&open, &["--admin-listen 0.0.0.0:0", "--admin-token"]);
    refuses(&[&open[..], &["--admin-token", ""]].concat(), &["--admin-token"]);
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

struct Running {
    child: Child,
    log: BufReader<std::process::ChildStderr>,
    api: String,
    admin: String,
}

impl Running {
    fn start(mut command: Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("ready") {
            line.clear();
            assert!(log.read_line(&mut line).unwrap() > 0, "it ended before it was ready");
        }
        let address = |name: &str| {
            let (_, after) = line.split_once(name).unwrap();
            after.split_whitespace().next().unwrap().to_owned()
        };
        Self { api: address(" listen="), admin: address(" admin_listen="), child, log }
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    /// Reads its log up to a line that contains `part`.
    fn says(&mut self, part: &str) {
        let mut line = String::new();
        while !line.contains(part) {
            line.clear();
            assert!(self.log.read_line(&mut line).unwrap() > 0, "it ended and did not say {part}");
        }
    }

    /// Ends it and gives back what it logged since it was ready.
    fn stop(mut self, signal: &str) -> (Option<i32>, String) {
        self.signal(signal);
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "it does not stop");
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut rest = String::new();
        self.log.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap().code(), rest)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
    }
}

fn http(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn serves_by_environment_and_stops_when_told() {
    for signal in ["-TERM", "-INT"] {
        let mut command = program();
        command
            .arg("serve")
            .env("TOKENGATE_POLICY", example())
            .env("TOKENGATE_LISTEN", "127.0.0.1:0")
            .env("TOKENGATE_ADMIN_LISTEN", "127.0.0.1:0")
            .env("TOKENGATE_TOKEN", "hunter2")
            .env("TOKENGATE_LOG", "debug");
        let running = Running::start(command);
        let get =
            |token: &str| format!("GET /v1/models HTTP/1.1\r\nhost: q\r\nconnection: close\r\n{token}\r\n");
        assert!(http(&running.api, &get("")).starts_with("HTTP/1.1 401"));
        let answer = http(&running.api, &get("authorization: Bearer hunter2\r\n"));
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("gpt-4o-mini"), "{answer}");
        let health = "GET /healthz HTTP/1.1\r\nhost: q\r\nconnection: close\r\n\r\n";
        assert!(http(&running.admin, health).contains("git_hash"));
        // A connection that is left open does not keep it alive.
        let _idle = TcpStream::connect(&running.api).unwrap();
        let (code, log) = running.stop(signal);
        assert_eq!(code, Some(0), "{log}");
        assert!(log.contains("stopping") && !log.contains("hunter2"), "{log}");
    }
}

const SERVICE: &str = "listen: 127.0.0.1:0\nadmin-listen: 127.0.0.1:0\nadmin-token: 0perator\n";
const POLICY: &str = r#"
models: [{name: gpt, match: ["gpt*"], max_output_tokens: 500}]
plans: {basic: {models: ["*"]}}
keys: [{sha256: "000000000000000000000000000000000000000000000000000000000000000a", tenant: t, plan: basic}]
limits: [{name: rpm, per: [tenant], count: requests, algorithm: fixed_window, every: 1m, limit: 9}]
"#;

fn call(method: &str, path: &str, token: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nhost: q\r\nconnection: close\r\nauthorization: Bearer {token}\r\n\
         content-length: {length}\r\n\r\n{body}"
    )
}

/// By a file of settings: the policy follows SIGHUP, so does the file of usage events, and what is left is
/// written before the end.
#[test]
fn follows_sighup_and_writes_usage_events() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let shown = |name: &str| path(name).display().to_string();
    let policy = |version: &str| std::fs::write(path("policy.yaml"), format!("version: {version}{POLICY}"));
    policy("\"1\"").unwrap();
    let settings = format!(
        "{SERVICE}policy: {}\npolicy-poll-ms: 0\nevents: file:{}\nevents-key: hunter2\n",
        shown("policy.yaml"),
        shown("usage.jsonl")
    );
    std::fs::write(path("service.yaml"), settings).unwrap();
    let mut command = program();
    command.args(["serve", "--config", &shown("service.yaml"), "--log", "info"]);
    let mut running = Running::start(command);
    let admin = |running: &Running, path: &str| http(&running.admin, &call("GET", path, "0perator", ""));
    let version = |running: &Running| admin(running, "/v1/version");
    assert!(version(&running).contains("\"policy_version\":\"1+"));
    assert!(http(&running.admin, &call("GET", "/metrics", "wrong", "")).starts_with("HTTP/1.1 401"));

    let settle = |running: &Running, id: char| {
        let id = String::from(id).repeat(32);
        let key = format!("{:0>64}", "a");
        let reserve = format!(
            r#"{{"id":"{id}","deadline_ms":1000,"key_hash":"{key}","model":"gpt-1","dialect":"openai",
               "endpoint":"chat.completions","prompt_tokens":10}}"#
        );
        let item = format!(
            r#"[{{"id":"{id}","outcome":"used","sent":true,"usage":{{"output":3}},"age_ms":1,"queued_ms":0,
               "reserve":{reserve}}}]"#
        );
        let answer = http(&running.api, &call("POST", "/v1/settle", "", &item));
        assert!(answer.contains("\"booked\""), "{answer}");
    };
    let written = |name: &str, lines: usize| {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let text = std::fs::read_to_string(path(name)).unwrap_or_default();
            if text.lines().count() == lines {
                return text;
            }
            assert!(Instant::now() < deadline, "{name}: {text}");
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    settle(&running, 'a');
    let first = written("usage.jsonl", 1);
    assert!(first.contains(r#""status":"booked""#) && first.contains(r#""plan":"basic""#), "{first}");
    std::fs::rename(path("usage.jsonl"), path("usage.1")).unwrap();

    policy("\"2\"").unwrap();
    running.signal("-HUP");
    running.says("policy loaded");
    assert!(version(&running).contains("\"policy_version\":\"2+"));
    policy("3").unwrap();
    running.signal("-HUP");
    running.says("the policy was not loaded");
    assert!(version(&running).contains("\"policy_version\":\"2+"));
    assert!(admin(&running, "/readyz").starts_with("HTTP/1.1 200"));
    // Counted just after it was written.
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut metrics = String::new();
    while !metrics.contains("usage_events_total{outcome=\"written\"} 1\n") {
        assert!(Instant::now() < deadline, "{metrics}");
        metrics = admin(&running, "/metrics");
    }
    for line in [
        "policy_reloads_total{outcome=\"loaded\"} 1",
        "policy_reloads_total{outcome=\"refused\"} 1",
        "policy_info{version=\"2+",
        "settles_total{outcome=\"used\",status=\"booked\"} 1",
        "tokens_total{model=\"gpt\",class=\"output\"} 3",
        "store_call_seconds_count{call=\"settle\",outcome=\"ok\"} 1",
    ] {
        assert!(metrics.contains(&format!("tokengate_ratelimit_{line}")), "{line}: {metrics}");
    }

    settle(&running, 'b');
    let (code, log) = running.stop("-TERM");
    assert_eq!(code, Some(0), "{log}");
    assert!(written("usage.jsonl", 1).contains("\"id\":\"bbbb"));
    assert_eq!(written("usage.1", 1), first);
    assert!(!log.contains("hunter2") && !log.contains("0perator"), "{log}");
}

/// What operators change is in the log, and nothing secret is.
#[test]
fn changes_by_hand_are_logged() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let more = r#"
  - {name: credit, per: [tenant], count: tokens, algorithm: balance}"#;
    let limits = POLICY.trim_end().replace("limits: [", "limits:\n  - ").replace("limit: 9}]", "limit: 9}");
    std::fs::write(path("policy.yaml"), format!("version: \"1\"{limits}{more}\n")).unwrap();
    let settings = format!("{SERVICE}policy: {}\n", path("policy.yaml").display());
    std::fs::write(path("service.yaml"), settings).unwrap();
    let mut command = program();
    command.args(["serve", "--config", path("service.yaml").to_str().unwrap()]);
    let running = Running::start(command);
    let bucket = |limit: &str| format!(r#""bucket":{{"tenant":"t","limit":"{limit}"}}"#);
    for (method, to, body) in [
        ("POST", "/v1/balances/top-up", format!("{{{},\"grant_id\":\"g7\",\"amount\":5}}", bucket("credit"))),
        ("POST", "/v1/buckets/reset", format!("{{{}}}", bucket("rpm"))),
        (
            "POST",
            "/v1/corrections",
            format!("{{{},\"id\":\"c7\",\"change\":\"charge\",\"amount\":2}}", bucket("rpm")),
        ),
        ("POST", "/v1/overrides", r#"{"tenant":"t","limit":"rpm","amount":3,"for_ms":60000}"#.to_owned()),
        ("DELETE", "/v1/overrides?tenant=t&limit=rpm", String::new()),
    ] {
        let answer = http(&running.admin, &call(method, to, "0perator", &body));
        assert!(answer.starts_with("HTTP/1.1 200"), "{to}: {answer}");
        let refused = http(&running.admin, &call(method, to, "wrong", &body));
        assert!(refused.starts_with("HTTP/1.1 401"), "{to}: {refused}");
    }
    let (_, log) = running.stop("-TERM");
    let lines: Vec<_> = log.lines().filter(|line| line.contains(" audit: ")).collect();
    assert_eq!(lines.len(), 5, "{log}");
    for (line, parts) in lines.iter().zip([
        ["balance topped up", "limit=\"credit\"", "grant_id=\"g7\"", "amount=5"],
        ["bucket reset", "limit=\"rpm\"", "tenant=\"t\"", "existed=false"],
        ["bucket corrected", "id=\"c7\"", "change=Charge", "amount=2"],
        ["override set", "tenant=\"t\"", "limit=\"rpm\"", "amount=3"],
        ["override removed", "tenant=\"t\"", "limit=\"rpm\"", "audit"],
    ]) {
        for part in parts {
            assert!(line.contains(part), "{part} in {line}");
        }
    }
    assert!(!log.contains("0perator"), "{log}");
}

/// The file is looked at without being told, too.
#[test]
fn finds_a_changed_policy_by_itself() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("policy.yaml");
    std::fs::write(&file, format!("version: \"1\"{POLICY}")).unwrap();
    let mut command = program();
    command.args([
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--admin-listen",
        "127.0.0.1:0",
        "--policy-poll-ms",
        "5",
    ]);
    command.arg("--policy").arg(&file);
    let mut running = Running::start(command);
    std::fs::write(directory.path().join("new"), format!("version: \"2\"{POLICY}")).unwrap();
    std::fs::rename(directory.path().join("new"), &file).unwrap();
    running.says("policy loaded");
    assert_eq!(running.stop("-TERM").0, Some(0));
}

#[test]
fn prints_its_interface() {
    let output = run(&["openapi"]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("\"openapi\": \"3.1.0\"") && text.contains("/v1/reserve"), "{text}");
}
