#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::*;

mod callers;
mod changes;
mod examples;
mod hostile;
mod limits;
mod prices;
mod warnings;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// One file per error; what it says is in `expected.txt`, one line each.
#[test]
fn every_bad_policy_says_what_is_wrong_and_where() {
    golden("bad", |name, text| match Policy::parse_with(name, text, &environment) {
        Ok(_) => vec![format!("{name}: accepted")],
        Err(error) => vec![error.to_string()],
    });
}

/// One file per warning, which is all that it is warned of.
#[test]
fn every_doubtful_policy_says_what_is_doubtful_and_where() {
    golden("warned", |name, text| {
        let policy = Policy::parse_with(name, text, &environment).unwrap();
        policy.warnings().iter().map(|warning| format!("{name}:{warning}")).collect()
    });
}

/// What the files of a folder say, one line each, is what stands in its `expected.txt`.
fn golden(directory: &str, says: impl Fn(&str, &str) -> Vec<String>) {
    let directory = folder("src/policy/testdata").join(directory);
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(&directory).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let messages = says(&name, &text);
        let [message] = messages.as_slice() else { panic!("{name}: {messages:?}") };
        assert!(!message.contains('\n') && message.starts_with(&name), "{message}");
        assert!(!message.contains("sk-secret"), "{message}");
        found.insert(name, message.clone());
    }
    let found: Vec<_> = found.into_values().collect();
    let expected = directory.join("expected.txt");
    if std::env::var_os("TOKENGATE_BLESS").is_some() {
        std::fs::write(&expected, found.join("\n") + "\n").unwrap();
    }
    let expected = std::fs::read_to_string(expected).unwrap();
    let expected: Vec<_> = expected.lines().collect();
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found, expected);
    }
    assert_eq!(found.len(), expected.len());
}

fn environment(name: &str) -> Option<String> {
    match name {
        "SECRET" => Some("correct horse battery staple".to_owned()),
        "SHORT" => Some("battery".to_owned()),
        _ => None,
    }
}

#[test]
fn the_repositorys_example_is_accepted() {
    let policy = Policy::load(&folder("../policy.yaml")).unwrap();
    assert_eq!(policy.key_prefix, "tg1");
    assert_eq!(policy.limits.len(), 2);
    assert!(policy.version.starts_with("2026-12-01.1+"));
    let demo = "tg-demo-key";
    let hash: String = {
        use sha2::{Digest, Sha256};
        Sha256::digest(demo).iter().map(|byte| format!("{byte:02x}")).collect()
    };
    let caller = policy.keys.get(&hash).unwrap();
    assert_eq!((caller.tenant.as_str(), caller.plan.as_str(), &caller.key), ("tenant-a", "standard", &hash));
    for (raw, name) in [
        ("gpt-4.1", "gpt-4.1"),
        ("openai/gpt-4.1-2025-04-14", "gpt-4.1"),
        ("gpt-4.1-mini", "gpt-4.1-mini"),
        ("gpt-4o-2024-08-06", "gpt-4o"),
        ("GPT-4o-mini", "gpt-4o-mini"),
        ("gpt-3.5-turbo-0125", "gpt-3.5-turbo"),
    ] {
        assert_eq!(policy.model(raw).unwrap().1.name, name);
    }
    assert!(policy.model("gpt-5").is_none());
    assert_eq!(policy.model("ft:gpt-4o-mini-2024-07-18:org::id").unwrap().1.name, "gpt-4o-mini");
    assert!(policy.model(&format!("gpt-4o-mini{}", "x".repeat(300))).is_none());
}

const GOOD: &str = r#"
version: "1"
key_prefix: x_1
unknown_model: deny
defaults: {on_store_failure: closed, mode: enforce}
models:
  - {name: a, match: ["a", "a-*"], tokenizer: o200k_base, output_limit: {missing: hold_default}, reasoning: true}
  - {name: ab, match: ["b"]}
  - {name: c, match: ["*"]}
plans:
  one: {models: [a]}
  two: {models: ["a*", ab]}
  three: {models: ["*"]}
keys:
  - {sha256: "0000000000000000000000000000000000000000000000000000000000000001", tenant: t, plan: one}
  - {sha256: "0000000000000000000000000000000000000000000000000000000000000002", tenant: t, plan: two}
  - {sha256: "0000000000000000000000000000000000000000000000000000000000000003", tenant: "{u}", plan: three}
limits:
  - {name: day, per: [model, tenant], count: tokens, algorithm: fixed_window, every: 24h, limit: 4503599627370496}
  - {name: key, per: [key], count: requests, algorithm: fixed_window, every: 1s, limit: {one: 0, default: unlimited}, allow_zero: true}
  - {name: plan, per: [tenant, plan], count: requests, algorithm: fixed_window, every: 7d, limit: {default: 5, two: 6}, mode: enforce, on_store_failure: closed}
"#;

#[test]
fn a_good_policy_means_what_it_says() {
    let policy = Policy::parse("good", GOOD).unwrap();
    assert_eq!(policy.plans["one"].models, [0]);
    assert_eq!(policy.plans["two"].models, [0, 1]);
    assert_eq!(policy.plans["three"].models, [0, 1, 2]);
    let [day, key, plan] = policy.limits.as_slice() else { panic!() };
    assert_eq!(day.per, [Dimension::Tenant, Dimension::Model]);
    let windows = [day, key, plan].map(|limit| limit.shape.window_ms().unwrap());
    assert_eq!(windows, [86_400_000, 1_000, 604_800_000]);
    let of = |limit: &Limit| ["one", "two", "three"].map(|plan| limit.amount_for(plan, "t"));
    assert_eq!(of(day), [Some(1 << 52); 3]);
    assert_eq!(of(key), [Some(0), None, None]);
    assert_eq!(of(plan), [Some(5), Some(6), Some(5)]);
    assert_eq!(policy.summary(), format!("3 models, 3 plans, 3 keys, 3 limits, version {}", policy.version));
}

#[test]
fn two_files_are_never_the_same_version() {
    let version = |text: &str| Policy::parse("p", text).unwrap().version;
    assert_eq!(version(GOOD), version(GOOD));
    assert_ne!(version(GOOD), version(&format!("{GOOD}\n# changed\n")));
}

#[test]
fn a_missing_file_is_named() {
    let error = Policy::load(Path::new("no/such/policy.yaml")).unwrap_err().to_string();
    assert!(error.starts_with("no/such/policy.yaml: "), "{error}");
}
