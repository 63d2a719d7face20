//! What is counted of a request, and how.

use super::*;
use crate::limits::Algorithm;
use crate::store::OnStoreFailure;

const COUNTS: &str = r#"
version: "1"
models:
  - {name: big, match: ["big*"], max_output_tokens: 1000, price_usd_per_million: {input: "2.00", cache_read: "3.00", output: "8.00", reasoning: "9.00"}}
plans:
  basic: {models: ["*"]}
  tight: {models: ["*"], output: {when_tight: clamp, min_tokens: 5}}
keys:
  - {sha256: "000000000000000000000000000000000000000000000000000000000000000a", tenant: t, plan: basic}
  - {sha256: "000000000000000000000000000000000000000000000000000000000000000b", tenant: t, plan: tight}
limits:
  - {name: requests, per: [tenant], count: requests, algorithm: fixed_window, every: 1m, limit: 5}
  - {name: attempts, per: [tenant], count: attempts, algorithm: fixed_window, every: 1m, limit: 5}
  - {name: tokens, per: [tenant], count: tokens, algorithm: sliding_window, every: 1m, limit: 5}
  - {name: weighted, per: [tenant], count: tokens, weights: {input: "0.5", cache_read: "0.1", output: 4}, algorithm: sliding_window, every: 1m, limit: 5}
  - {name: input, per: [tenant], count: input_tokens, algorithm: fixed_window, every: 1m, limit: 5}
  - {name: output, per: [tenant], count: output_tokens, algorithm: fixed_window, every: 1m, limit: 5, mode: shadow}
  - {name: cost, per: [tenant], count: cost, algorithm: fixed_window, calendar: month, limit: {usd: "1.00"}}
  - {name: bucket, per: [tenant], count: tokens, algorithm: token_bucket, refill: {amount: 1, every: 1s}, capacity: 5, on_store_failure: open}
  - {name: slots, per: [tenant], algorithm: concurrency, lease: 1m, limit: 5}
  - {name: prepaid, per: [tenant], count: cost, algorithm: balance}
"#;

fn asked(request: &ReserveRequest) -> RequestPlan {
    plan_request(&Policy::parse("p", COUNTS).unwrap(), &Overrides::default(), request, 0).unwrap()
}

/// 11 prompt tokens, 20 of output in each of two choices.
fn wanting(digit: char, can_clamp: bool) -> ReserveRequest {
    ReserveRequest {
        prompt_tokens: 11,
        max_output_tokens: Some(20),
        choices: 2,
        can_clamp,
        ..request(digit, Some("big"))
    }
}

#[test]
fn every_count_takes_its_amount() {
    let plan = asked(&wanting('a', true));
    let rows: Vec<_> = plan
        .labels
        .iter()
        .zip(&plan.hold.charges)
        .map(|(label, charge)| {
            let amount = plan.hold.amount(charge, plan.hold.output_tokens);
            (label.name.as_str(), label.metric, amount, charge.attempts, charge.priced, charge.shadow)
        })
        .collect();
    // The dearest class that prompt and output can turn out to be.
    let cost = 11 * 3_000 + 40 * 9_000;
    assert_eq!(
        rows,
        [
            ("requests", Metric::Requests, 1, false, false, false),
            ("attempts", Metric::Requests, 1, true, false, false),
            ("tokens", Metric::Tokens, 51, false, false, false),
            // 5.5 and 160, rounded up once.
            ("weighted", Metric::Tokens, 166, false, false, false),
            ("input", Metric::Tokens, 11, false, false, false),
            ("output", Metric::Tokens, 40, false, false, true),
            ("cost", Metric::Cost, cost, false, true, false),
            ("bucket", Metric::Tokens, 51, false, false, false),
            ("slots", Metric::Concurrency, 1, false, false, false),
            ("prepaid", Metric::Cost, cost, false, true, false),
        ]
    );
    let windows: Vec<_> = plan.labels.iter().map(|label| label.window_ms).collect();
    let (minute, month) = (60_000, 31 * 86_400_000);
    assert_eq!(windows, [minute, minute, minute, minute, minute, minute, month, 0, 0, 0]);
    let open: Vec<_> =
        plan.hold.charges.iter().map(|charge| charge.on_store_failure == OnStoreFailure::Open).collect();
    assert_eq!(open.iter().filter(|open| **open).count(), 1);
    assert!(open[7]);
    assert_eq!(plan.hold.charges[8].meter.algorithm, Algorithm::Concurrency { lease_ms: 60_000 });
}

/// Less may be held only where the plan says so and the filter can still write it into the request.
#[test]
fn a_clamp_needs_the_plan_and_the_filter() {
    for (digit, can_clamp, clamp) in [
        ('b', true, Some(Clamp { min_output_tokens: 5 })),
        ('b', false, None),
        ('a', true, None),
        ('a', false, None),
    ] {
        let hold = asked(&wanting(digit, can_clamp)).hold;
        assert_eq!((hold.clamp, hold.choices), (clamp, 2), "{digit} {can_clamp}");
    }
    let without_model = ReserveRequest { prompt_tokens: 0, ..request('b', None) };
    assert_eq!(asked(&without_model).hold.clamp, None);
}

/// Endpoints without a model are requests, attempts and slots, and no tokens or money.
#[test]
fn without_a_model_there_is_no_usage() {
    let plan = asked(&ReserveRequest { prompt_tokens: 0, ..request('a', None) });
    let names: Vec<_> = plan.labels.iter().map(|label| label.name.as_str()).collect();
    assert_eq!(names, ["requests", "attempts", "slots"]);
}
