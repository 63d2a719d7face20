//! The service while it runs: signals, files that change, and its end.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::*;

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
        let get = |token: &str| {
            format!(
                "GET /v1/models HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\n{token}\r\n"
            )
        };
        assert!(http(&running.api, &get("")).starts_with("HTTP/1.1 401"));
        let answer = http(&running.api, &get("authorization: Bearer hunter2\r\n"));
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("gpt-4o-mini"), "{answer}");
        let health = "GET /healthz HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n";
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
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\nauthorization: Bearer {token}\r\n\
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
        "{SERVICE}policy: {}\npolicy-poll-ms: 0\nevents: file:{}\nevents-key: hunter2-hunter2-hunter2\n",
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

/// Beyond loopback with a token; without one by the names that are given, and never by those of web pages.
#[test]
fn is_called_by_known_names() {
    let with = |arguments: &[&str]| {
        let mut command = program();
        command.args(["serve", "--admin-listen", "127.0.0.1:0"]).arg("--policy").arg(example());
        command.args(arguments);
        Running::start(command)
    };
    let get = |host: &str, more: &str| {
        format!("GET /v1/models HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{more}\r\n")
    };
    let status = |address: &str, request: String| http(address, &request).get(9..12).unwrap().to_owned();
    let named = with(&["--listen", "127.0.0.1:0", "--allowed-hosts", "quota.internal,10.0.0.5"]);
    for (host, expected) in [
        ("127.0.0.1", "200"),
        ("localhost:8090", "200"),
        ("tokengate-ratelimit", "200"),
        ("quota.internal:8090", "200"),
        ("10.0.0.5", "200"),
        ("attacker.example", "403"),
    ] {
        assert_eq!(status(&named.api, get(host, "")), expected, "{host}");
        assert_eq!(status(&named.admin, get(host, "").replace("v1/models", "metrics")), expected, "{host}");
    }
    let everywhere = with(&["--listen", "0.0.0.0:0", "--token", "hunter2"]);
    let api = everywhere.api.replace("0.0.0.0", "127.0.0.1");
    assert_eq!(status(&api, get("quota.example", "")), "401");
    assert_eq!(status(&api, get("quota.example", "authorization: Bearer hunter2\r\n")), "200");
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

/// A log on a full disk, or whose reader is gone: the service goes on without it.
#[test]
fn goes_on_where_nothing_can_be_logged() {
    for full in [true, false] {
        // Between choosing ports and using them another process may take one: then others.
        let mut running = (0..5).find_map(|_| Unheard::start(full)).expect("it ended");
        // Each change is a line of the log.
        let body = r#"{"tenant": "tenant-a", "limit": "tenant-rpm", "amount": 5, "for_ms": 1000}"#;
        for _ in 0..2 {
            let answer = http(&running.admin, &call("POST", "/v1/overrides", "", body));
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        }
        let pid = running.child.id().to_string();
        assert!(Command::new("kill").arg(&pid).status().unwrap().success());
        assert_eq!(running.child.wait().unwrap().code(), Some(0));
    }
}

/// One whose log nobody reads.
struct Unheard {
    child: Child,
    admin: String,
}

impl Unheard {
    /// Nothing when it ends before it answers.
    fn start(full: bool) -> Option<Self> {
        let port = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let (api, admin) = (port(), port());
        let mut command = program();
        command.args(["serve", "--listen", &api, "--admin-listen", &admin]).arg("--policy").arg(example());
        if full {
            command.stderr(std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
        } else {
            command.stderr(Stdio::piped());
        }
        let mut running = Self { child: command.spawn().unwrap(), admin };
        drop(running.child.stderr.take());
        let deadline = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(&running.admin).is_err() {
            if running.child.try_wait().unwrap().is_some() {
                return None;
            }
            assert!(Instant::now() < deadline, "it does not answer");
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(running)
    }
}

impl Drop for Unheard {
    fn drop(&mut self) {
        let _ = self.child.kill();
    }
}
