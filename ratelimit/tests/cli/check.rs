//! What `check` says of a policy.

use super::*;

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

/// `check --explain | head` is no failure, and a full disk is one that is told.
#[test]
fn a_reader_may_leave_and_a_disk_may_be_full() {
    let policy = example().display().to_string();
    for arguments in [vec!["check", &policy, "--explain"], vec!["openapi"]] {
        let mut child =
            program().args(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let left = child.wait_with_output().unwrap();
        assert!(left.status.success() && left.stderr.is_empty(), "{left:?}");
        let disk = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let full = program().args(&arguments).stdout(disk).output().unwrap();
        let message = String::from_utf8(full.stderr).unwrap();
        assert_eq!(full.status.code(), Some(1), "{message}");
        assert!(message.starts_with("tokengate-ratelimit: standard output: "), "{message}");
    }
}
