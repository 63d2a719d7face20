//! The policies that are measured. No limit is ever reached: a refusal is cheaper than a hold.

use crate::Outcome;
use tokengate_ratelimit::policy::Policy;

/// One limit of a policy, and what tables call it.
pub struct Kind {
    pub name: &'static str,
    yaml: &'static str,
}

const SLIDING: Kind = Kind {
    name: "sliding_window",
    yaml: "per: [tenant, model], count: tokens, algorithm: sliding_window, every: 1m, limit: 1000000000000",
};
const FIXED: Kind = Kind {
    name: "fixed_window",
    yaml: "per: [tenant, model], count: requests, algorithm: fixed_window, every: 1m, limit: 1000000000000",
};
const BUCKET: Kind = Kind {
    name: "token_bucket",
    yaml: "per: [tenant], count: tokens, algorithm: token_bucket, refill: {amount: 1000000000, every: 1m}, capacity: 1000000000",
};
const CONCURRENCY: Kind =
    Kind { name: "concurrency", yaml: "per: [tenant], algorithm: concurrency, lease: 60s, limit: 100000" };
const CALENDAR: Kind = Kind {
    name: "calendar month",
    yaml: "per: [tenant], count: cost, algorithm: fixed_window, calendar: month, time_zone: UTC, limit: {usd: \"1000000.00\"}",
};
const BALANCE: Kind =
    Kind { name: "balance", yaml: "per: [tenant], count: cost, algorithm: balance, plans: [standard]" };

/// In the order in which the rows with several limits take them.
pub const KINDS: [Kind; 6] = [SLIDING, FIXED, BUCKET, CONCURRENCY, CALENDAR, BALANCE];

/// The policy file with the given of [`KINDS`].
pub fn yaml(kinds: &[Kind]) -> String {
    let mut text = r#"version: "bench"
models:
  - name: gpt
    match: ["gpt"]
    max_output_tokens: 32768
    price_usd_per_million: {input: "2.00", output: "8.00"}
plans:
  standard: {models: [gpt]}
verified_identities: {accept: true, default_plan: standard}
limits:
"#
    .to_owned();
    for kind in kinds {
        text += &format!("  - {{name: {}, {}}}\n", kind.name.replace(' ', "-"), kind.yaml);
    }
    text
}

pub fn parse(yaml: &str) -> Outcome<Policy> {
    Ok(Policy::parse("bench.yaml", yaml)?)
}
