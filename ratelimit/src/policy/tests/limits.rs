//! What a limit of the file comes to for the stores.
use tokengate_api::Usage;

use super::*;
use crate::limits::{Algorithm, MAX_AMOUNT, Rates};

/// A policy with one limit and what else it needs; `model` is added to the model.
pub fn one_limit(limit: &str) -> String {
    format!(
        r#"
version: "1"
models:
  - {{name: m, match: [m], max_output_tokens: 100000, price_usd_per_million: {{input: "2.00", cache_read: "0.50", output: "8.00"}}}}
plans:
  a: {{models: ["*"]}}
  b: {{models: ["*"]}}
keys:
  - {{sha256: "000000000000000000000000000000000000000000000000000000000000000a", tenant: t, plan: a}}
  - {{sha256: "000000000000000000000000000000000000000000000000000000000000000b", tenant: u, plan: b}}
limits:
  - {{name: l, {limit}}}
"#
    )
}

fn read(limit: &str) -> (Policy, Limit) {
    let policy = Policy::parse("p", &one_limit(limit)).unwrap();
    let limit = policy.limits[0].clone();
    (policy, limit)
}

#[test]
fn every_algorithm_has_its_numbers() {
    for (limit, algorithm) in [
        (
            "per: [tenant], count: tokens, algorithm: fixed_window, every: 1m, limit: 5",
            Algorithm::FixedWindow { length_ms: 60_000 },
        ),
        (
            "per: [tenant], count: tokens, algorithm: sliding_window, every: 1m, limit: 5",
            Algorithm::SlidingWindow { sub_window_ms: 1_000, sub_windows: 60 },
        ),
        (
            "per: [tenant], count: tokens, algorithm: sliding_window, every: 90s, sub_windows: 120, limit: 5",
            Algorithm::SlidingWindow { sub_window_ms: 750, sub_windows: 120 },
        ),
        (
            "per: [tenant], count: tokens, algorithm: token_bucket, refill: {amount: 50000, every: 1m}, capacity: 5",
            Algorithm::TokenBucket { num: 5, den: 6 },
        ),
        (
            "per: [tenant], count: tokens, algorithm: leaky_bucket, leak: {amount: 60000, every: 1s}, capacity: 5",
            Algorithm::TokenBucket { num: 60, den: 1 },
        ),
        (
            "per: [tenant], count: cost, algorithm: token_bucket, refill: {amount: {usd: \"0.50\"}, every: 1h}, capacity: {usd: \"5\"}",
            Algorithm::TokenBucket { num: 1250, den: 9 },
        ),
        (
            "per: [tenant], algorithm: concurrency, lease: 60s, limit: 5",
            Algorithm::Concurrency { lease_ms: 60_000 },
        ),
        ("per: [tenant], count: cost, algorithm: balance", Algorithm::Balance),
    ] {
        assert_eq!(read(limit).1.algorithm_at(1_800_000_000_000), algorithm, "{limit}");
    }
}

#[test]
fn a_calendar_window_is_seen_from_now() {
    let (_, day) = read(
        "per: [tenant], count: tokens, algorithm: fixed_window, calendar: day, time_zone: Europe/Berlin, limit: 5",
    );
    // The 23 hours of 2027-03-28.
    let start = 1_806_188_400_000;
    let day_ms = 86_400_000;
    let end = start + 23 * 3_600_000;
    let around = Algorithm::CalendarWindow { boundaries_ms: [start - day_ms, start, end, end + day_ms] };
    for now in [start, start + 1, end - 1] {
        assert_eq!(day.algorithm_at(now), around);
    }
    assert_ne!(day.algorithm_at(end), around);
    // Without a zone a day is UTC's, without a day a week begins on Monday.
    let (_, week) = read("per: [tenant], count: tokens, algorithm: fixed_window, calendar: week, limit: 5");
    let Algorithm::CalendarWindow { boundaries_ms: [_, monday, ..] } = week.algorithm_at(1_800_000_000_000)
    else {
        panic!()
    };
    // 2027-01-11.
    assert_eq!(monday, 1_799_625_600_000);
}

#[test]
fn every_count_has_its_rates() {
    let window = "algorithm: fixed_window, every: 1m";
    let weighted = Rates {
        request: 0,
        input: 1000,
        cache_read: 100,
        cache_write: 1000,
        output: 4000,
        reasoning: 4000,
        per: 1000,
    };
    let priced = Rates {
        request: 0,
        input: 2_000_000,
        cache_read: 500_000,
        cache_write: 2_000_000,
        output: 8_000_000,
        reasoning: 8_000_000,
        per: 1000,
    };
    for (limit, rates, by_usage) in [
        (format!("count: requests, {window}, limit: 5"), Rates::REQUESTS, false),
        (format!("count: attempts, {window}, limit: 5"), Rates::REQUESTS, false),
        ("algorithm: concurrency, lease: 1m, limit: 5".to_owned(), Rates::REQUESTS, false),
        (format!("count: tokens, {window}, limit: 5"), Rates::TOKENS, true),
        (
            format!("count: tokens, weights: {{input: 1, output: \"1.000\"}}, {window}, limit: 5"),
            Rates::TOKENS,
            true,
        ),
        (format!("count: input_tokens, {window}, limit: 5"), Rates::INPUT_TOKENS, true),
        (format!("count: output_tokens, {window}, limit: 5"), Rates::OUTPUT_TOKENS, true),
        (
            format!("count: tokens, weights: {{cache_read: \"0.1\", output: 4}}, {window}, limit: 5"),
            weighted,
            true,
        ),
        (format!("count: cost, {window}, limit: {{usd: \"5\"}}"), priced, true),
    ] {
        let (policy, limit) = read(&format!("per: [tenant], {limit}"));
        assert_eq!(limit.rates(&policy.models[0]), rates, "{}", limit.describe());
        assert_eq!(limit.applies_without_model(), !by_usage, "{}", limit.describe());
    }
}

#[test]
fn a_model_that_was_never_priced_fits_no_limit() {
    let (policy, limit) =
        read("per: [tenant], count: cost, algorithm: fixed_window, every: 1m, limit: {usd: \"5\"}");
    let mut stranger = policy.models[0].clone();
    "stranger".clone_into(&mut stranger.name);
    let usage = Usage { input: 1, ..Usage::default() };
    assert!(limit.rates(&stranger).of_usage(&usage) > MAX_AMOUNT);
}

#[test]
fn amounts_are_by_plan_and_by_tenant() {
    let amounts = |limit: &str, tenants: &str| {
        let text = one_limit(limit) + tenants;
        let limit = Policy::parse("p", &text).unwrap().limits[0].clone();
        [("a", "t"), ("b", "u"), ("a", "stranger")].map(|(plan, tenant)| limit.amount_for(plan, tenant))
    };
    let window = "per: [tenant], count: tokens, algorithm: fixed_window, every: 1m";
    let own = |value: &str| format!("tenants:\n  t: {{limits: {{l: {value}}}}}\n");
    assert_eq!(amounts(&format!("{window}, limit: 5"), ""), [Some(5); 3]);
    assert_eq!(amounts(&format!("{window}, limit: 5"), &own("7")), [Some(7), Some(5), Some(5)]);
    assert_eq!(amounts(&format!("{window}, limit: 5"), &own("unlimited")), [None, Some(5), Some(5)]);
    assert_eq!(amounts(&format!("{window}, limit: 5"), &own("0")), [Some(0), Some(5), Some(5)]);
    let by_plan = format!("{window}, limit: {{a: unlimited, default: 6}}");
    assert_eq!(amounts(&by_plan, ""), [None, Some(6), None]);
    assert_eq!(amounts(&by_plan, &own("7")), [Some(7), Some(6), None]);
    let cost = "per: [tenant], count: cost, algorithm: fixed_window, calendar: month";
    let money = format!("{cost}, limit: {{a: {{usd: \"0.000000001\"}}, b: {{usd: \"4503599.627370496\"}}}}");
    assert_eq!(amounts(&money, &own("{usd: \"1.5\"}")), [Some(1_500_000_000), Some(MAX_AMOUNT), Some(1)]);
    let balance = "per: [tenant], count: tokens, algorithm: balance";
    assert_eq!(amounts(balance, ""), [Some(MAX_AMOUNT); 3]);
    assert_eq!(amounts(&format!("{balance}, plans: [b]"), ""), [None, Some(MAX_AMOUNT), None]);
}

#[test]
fn user_and_key_imply_their_tenant() {
    let per = |per: &str| {
        let limit =
            read(&format!("per: {per}, count: tokens, algorithm: fixed_window, every: 1m, limit: 5")).1;
        (limit.show_per(), limit.is_shared())
    };
    assert_eq!(per("[user]"), ("tenant, user".to_owned(), false));
    assert_eq!(per("[model, key]"), ("tenant, key, model".to_owned(), false));
    assert_eq!(per("[ip, endpoint, tenant]"), ("tenant, endpoint, ip".to_owned(), false));
    assert_eq!(per("[model, plan], shared: true"), ("plan, model".to_owned(), true));
    assert_eq!(per("[], shared: true"), ("everybody".to_owned(), true));
    assert_eq!(per("[tenant], shared: false"), ("tenant".to_owned(), false));
}

#[test]
fn modes_come_from_the_limit_or_the_defaults() {
    let modes = |defaults: &str, limit: &str| {
        let limit =
            format!("per: [tenant], count: tokens, algorithm: fixed_window, every: 1m, limit: 5{limit}");
        let text = format!("{defaults}{}", one_limit(&limit));
        let limit = Policy::parse("p", &text).unwrap().limits[0].clone();
        (limit.mode, limit.on_store_failure)
    };
    let defaults = "defaults: {mode: shadow, on_store_failure: open}";
    assert_eq!(modes("", ""), (Mode::Enforce, OnStoreFailure::Closed));
    assert_eq!(modes("", ", mode: shadow, on_store_failure: open"), (Mode::Shadow, OnStoreFailure::Open));
    assert_eq!(modes(defaults, ""), (Mode::Shadow, OnStoreFailure::Open));
    assert_eq!(modes(defaults, ", mode: enforce"), (Mode::Enforce, OnStoreFailure::Open));
    assert_eq!(modes(defaults, ", on_store_failure: closed"), (Mode::Shadow, OnStoreFailure::Closed));
}

/// The tag names buckets: it may change with nothing but the shape.
#[test]
fn a_bucket_keeps_its_name_when_only_values_change() {
    let tag = |limit: &str| read(limit).1.tag;
    let window = "per: [tenant], count: tokens, algorithm: fixed_window, every: 1m";
    let sliding = "per: [tenant], count: tokens, algorithm: sliding_window, every: 1m";
    let calendar = "per: [tenant], count: tokens, algorithm: fixed_window, calendar: week";
    let bucket = "per: [tenant], count: tokens, algorithm: token_bucket";
    let slots = "per: [tenant], algorithm: concurrency";
    for (a, b) in [
        (format!("{window}, limit: 5"), format!("{window}, limit: {{a: 6, b: unlimited}}, mode: shadow, on_store_failure: open")),
        (format!("{window}, limit: 5"), format!("{window}, limit: 5, weights: {{input: 1}}")),
        (format!("{window}, limit: 5"), "per: [tenant], count: tokens, algorithm: fixed_window, every: 60s, limit: 5".to_owned()),
        (format!("{sliding}, limit: 5"), format!("{sliding}, sub_windows: 60, limit: 6")),
        (format!("{calendar}, limit: 5"), format!("{calendar}, week_starts: monday, time_zone: utc, limit: 5")),
        (
            format!("{bucket}, refill: {{amount: 1, every: 1m}}, capacity: 5"),
            format!("{bucket}, refill: {{amount: 50000, every: 1h}}, capacity: 6"),
        ),
        (
            format!("{bucket}, refill: {{amount: 1, every: 1m}}, capacity: 5"),
            "per: [tenant], count: tokens, algorithm: leaky_bucket, leak: {amount: 1, every: 1m}, capacity: 5".to_owned(),
        ),
        (format!("{slots}, lease: 1m, limit: 5"), format!("{slots}, lease: 2m, limit: 6")),
    ] {
        assert_eq!(tag(&a), tag(&b), "{a} / {b}");
    }
    let limits = [
        format!("{window}, limit: 5"),
        format!("{window}, limit: 5, weights: {{output: 4}}"),
        format!("{window}, limit: 5, weights: {{output: \"4.5\"}}"),
        "per: [tenant, model], count: tokens, algorithm: fixed_window, every: 1m, limit: 5".to_owned(),
        "per: [tenant], count: input_tokens, algorithm: fixed_window, every: 1m, limit: 5".to_owned(),
        "per: [tenant], count: requests, algorithm: fixed_window, every: 1m, limit: 5".to_owned(),
        "per: [tenant], count: attempts, algorithm: fixed_window, every: 1m, limit: 5".to_owned(),
        "per: [tenant], count: tokens, algorithm: fixed_window, every: 2m, limit: 5".to_owned(),
        "per: [tenant], count: cost, algorithm: fixed_window, every: 1m, limit: {usd: \"5\"}".to_owned(),
        format!("{sliding}, limit: 5"),
        format!("{sliding}, sub_windows: 30, limit: 5"),
        format!("{calendar}, limit: 5"),
        format!("{calendar}, week_starts: sunday, limit: 5"),
        format!("{calendar}, time_zone: Europe/Berlin, limit: 5"),
        "per: [tenant], count: tokens, algorithm: fixed_window, calendar: day, limit: 5".to_owned(),
        "per: [tenant], count: tokens, algorithm: fixed_window, calendar: month, limit: 5".to_owned(),
        format!("{bucket}, refill: {{amount: 1, every: 1m}}, capacity: 5"),
        format!("{slots}, lease: 1m, limit: 5"),
        "per: [tenant], count: tokens, algorithm: balance".to_owned(),
        "per: [tenant], count: cost, algorithm: balance".to_owned(),
    ];
    for (i, a) in limits.iter().enumerate() {
        for b in limits.iter().skip(i + 1) {
            assert_ne!(tag(a), tag(b), "{a} / {b}");
        }
    }
}
