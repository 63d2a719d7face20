//! Every policy that a reader is shown.
use super::*;

fn examples_environment(name: &str) -> Option<String> {
    (name == "TOKENGATE_KEY_SECRET").then(|| "0123456789abcdef0123456789abcdef".to_owned())
}

#[test]
fn every_example_file_is_accepted_without_a_warning() {
    let mut files = vec![folder("../policy.yaml")];
    for entry in std::fs::read_dir(folder("examples")).unwrap() {
        files.push(entry.unwrap().path());
    }
    assert!(files.len() >= 4, "{files:?}");
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let name = file.display().to_string();
        let policy = Policy::parse_with(&name, &text, &examples_environment).unwrap();
        assert_eq!(policy.warnings(), [], "{name}");
        assert!(policy.explain(Assumed::default()).contains("plan `"), "{name}");
    }
}

/// A whole policy, or sections of one: what is missing is taken from here.
const SECTIONS: [(&str, &str); 5] = [
    ("version", "\"1\""),
    (
        "models",
        "[{name: gpt-4o, match: [gpt-4o], price_usd_per_million: {input: \"2.50\", output: \"10.00\"}}]",
    ),
    ("plans", "{standard: {models: [\"*\"]}, enterprise: {models: [\"*\"]}}"),
    (
        "keys",
        "[{sha256: \"000000000000000000000000000000000000000000000000000000000000000a\", tenant: tenant-a, plan: standard}, \
         {sha256: \"000000000000000000000000000000000000000000000000000000000000000b\", tenant: tenant-b, plan: enterprise}]",
    ),
    ("limits", "[{name: rpm, per: [tenant], count: requests, algorithm: fixed_window, every: 1m, limit: 5}]"),
];

#[test]
fn every_policy_in_the_documentation_is_accepted() {
    for (file, at_least) in [("../README.md", 1), ("../docs/policy.md", 10)] {
        let text = std::fs::read_to_string(folder(file)).unwrap();
        let mut blocks = 0;
        for block in text.split("```yaml\n").skip(1) {
            let block = block.split("```").next().unwrap();
            let has = |section: &str| block.lines().any(|line| line.starts_with(&format!("{section}:")));
            if !SECTIONS.iter().any(|(section, _)| has(section)) && !has("unknown_model") && !has("tenants") {
                // Of another file.
                continue;
            }
            blocks += 1;
            let missing: String = SECTIONS
                .iter()
                .filter(|(section, _)| !has(section))
                .map(|(section, value)| format!("{section}: {value}\n"))
                .collect();
            let policy = format!("{block}{missing}");
            if let Err(error) = Policy::parse_with(file, &policy, &examples_environment) {
                panic!("{error}\n{policy}");
            }
        }
        assert!(blocks >= at_least, "{file}: {blocks}");
    }
}

#[test]
fn the_explanation_names_what_binds() {
    let text = std::fs::read_to_string(folder("examples/full.yaml")).unwrap();
    let text = Policy::parse("full", &text).unwrap().explain(Assumed::default());
    let of = |plan: &str, model: &str| {
        let head = format!("plan `{plan}`, model `{model}`\n");
        text.split_once(&head).unwrap().1.split("plan `").next().unwrap().to_owned()
    };
    let standard = of("standard", "gpt-4o-mini");
    for line in [
        "holds its prompt and 1024 output tokens, which is written into the request; taken to be 500 + 256 used in 5 s",
        "tenant-rpm: 60 requests; requests per tenant, model, fixed_window every 1m\n      about 60 requests a minute",
        "tenant-tpm: 100000 tokens; tokens per tenant, model, sliding_window every 1m in 60 parts\n      \
         holds 1524 tokens, 65 fit at once, 91 % of it can be used, about 121 requests a minute\n      \
         tenant `tenant-a`: 150000 tokens",
        "* month-spend: $500.00;",
        "try-out (shadow): 5000 output tokens;",
    ] {
        assert!(standard.contains(line), "{line}\n{standard}");
    }
    assert_eq!(standard.matches("\n  * ").count(), 1, "{standard}");
    assert!(of("enterprise", "gpt-4.1").contains("tenant-rpm: 1000 requests"));
    assert!(!of("enterprise", "gpt-4.1").contains("tenant `tenant-a`"));
}

#[test]
fn an_explanation_can_assume_other_requests() {
    let policy = Policy::load(&folder("../policy.yaml")).unwrap();
    let slow = Assumed { prompt_tokens: 100, output_tokens: Some(1000), tokens_per_second: 10 };
    let text = policy.explain(slow);
    assert!(text.contains("taken to be 100 + 1000 used in 100 s"), "{text}");
    let huge = Assumed { prompt_tokens: u64::MAX, output_tokens: None, tokens_per_second: 0 };
    assert!(policy.explain(huge).contains("never fits"));
}
