//! What `check` warns of, one case each.
use super::limits::one_limit;
use super::*;

fn all_warnings(policy: &str) -> Vec<String> {
    Policy::parse("p", policy).unwrap().warnings().iter().map(ToString::to_string).collect()
}

/// Without that requests without an output limit can pass it, which is true of most policies here.
fn warnings(policy: &str) -> Vec<String> {
    all_warnings(policy).into_iter().filter(|warning| !warning.contains("can pass")).collect()
}

/// One warning, which begins with a place and has these words.
#[track_caller]
fn warns(policy: &str, words: &[&str]) {
    let warnings = warnings(policy);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    for word in words {
        assert!(warnings[0].contains(word), "{warnings:?}");
    }
}

const FINE: &str = "per: [tenant], count: tokens, algorithm: fixed_window, every: 1m, limit: 100000";

#[test]
fn the_repositorys_policies_are_fine() {
    assert!(Policy::load(&folder("../policy.yaml")).unwrap().warnings().is_empty());
    assert_eq!(warnings(&one_limit(FINE)), [""; 0]);
    // The example of the design, in which one open limit stands among closed ones.
    let full = std::fs::read_to_string(folder("examples/full.yaml")).unwrap();
    warns(
        &full.replace("capacity: 200000", "capacity: 200000, on_store_failure: open"),
        &["limit `user-tpm`", "in vain"],
    );
}

#[test]
fn a_model_that_nobody_may_use() {
    let policy = one_limit(FINE).replace("plans:\n", "  - {name: lonely, match: [lonely]}\nplans:\n");
    let policy = policy.replace("models: [\"*\"]", "models: [m]");
    warns(&policy, &["model `lonely` is in no plan"]);
}

#[test]
fn a_limit_below_what_a_request_holds_at_least() {
    let tight = |limit: &str| format!("per: [tenant], {limit}");
    for (limit, words) in [
        (
            "count: tokens, algorithm: fixed_window, every: 1m, limit: {a: 1023, b: 100000}",
            ["1023 tokens for plan `a`", "`m`"],
        ),
        (
            "count: output_tokens, algorithm: sliding_window, every: 1h, limit: {a: 1023, b: 100000}",
            ["1023 output tokens", "1024"],
        ),
        (
            "count: tokens, algorithm: token_bucket, refill: {amount: 100, every: 1s}, capacity: {a: 1023, b: 100000}",
            ["1023", "holds 1024 tokens"],
        ),
        (
            "count: tokens, weights: {output: 100}, algorithm: fixed_window, every: 1m, limit: {a: 100000, b: 1000000}",
            ["100000", "holds 102400 tokens"],
        ),
        (
            "count: cost, algorithm: fixed_window, every: 24h, limit: {a: {usd: \"0.008\"}, b: {usd: \"1\"}}",
            ["$0.008", "holds $0.008192"],
        ),
    ] {
        let policy = one_limit(&tight(limit));
        warns(&policy, &words);
        warns(&policy, &["12:5: limit `l`", "never admits"]);
    }
    let policy = one_limit(FINE);
    warns(&format!("{policy}tenants:\n  t: {{limits: {{l: 1000}}}}\n"), &["tenant `t`", "never admits"]);
    warns(&format!("{policy}tenants:\n  t: {{limits: {{l: 0}}}}\n"), &["admits nothing of the tenant `t`"]);
    // A model that refuses such requests holds nothing for them, and one that holds its maximum a lot.
    let with = |missing: &str| {
        one_limit(&tight("count: tokens, algorithm: fixed_window, every: 24h, limit: 1000")).replace(
            "max_output_tokens: 100000",
            &format!("max_output_tokens: 1001, output_limit: {{missing: {missing}}}"),
        )
    };
    assert_eq!(warnings(&with("refuse")), [""; 0]);
    assert_eq!(warnings(&with("hold_max")).len(), 2);
    assert_eq!(warnings(&with("hold_default")).len(), 2);
}

#[test]
fn a_minute_that_can_hardly_be_used() {
    // Holds 100,000, uses a quarter in 500 s: what it gives back comes too late.
    let policy = one_limit(
        "per: [tenant], count: tokens, algorithm: fixed_window, every: 1m, limit: {a: 1000000, b: unlimited}",
    )
    .replace("max_output_tokens: 100000", "max_output_tokens: 100000, output_limit: {missing: hold_max}");
    let warnings_of =
        |policy: &str| warnings(policy).into_iter().filter(|w| w.contains("can be used")).collect::<Vec<_>>();
    let found = warnings_of(&policy);
    assert!(
        found.len() == 1 && found[0].starts_with("12:5: limit `l`") && found[0].contains("25 %"),
        "{found:?}"
    );
    assert_eq!(warnings_of(&policy.replace("every: 1m", "every: 24h")), [""; 0]);
    assert_eq!(warnings_of(&policy.replace("hold_max", "hold_default")), [""; 0]);
    assert_eq!(warnings_of(&policy.replace("count: tokens", "count: requests")), [""; 0]);
}

/// What a request may produce beyond its hold is debt: where, by which models, and what rules it out.
#[test]
fn limits_that_can_be_passed() {
    let policy = |count: &str, output_limit: &str, more: &str| {
        one_limit(&format!("per: [tenant], {count}, algorithm: fixed_window, every: 24h, limit: {more}"))
            .replace("max_output_tokens: 100000,", &format!("{output_limit},"))
    };
    let found = |policy: &str| -> Vec<String> {
        all_warnings(policy).into_iter().filter(|warning| warning.contains("can pass")).collect()
    };
    let bounded = "max_output_tokens: 100000, default_output_tokens: 500";
    let two = "{a: 200000, b: 200000}";
    let warned = found(&policy("count: tokens", bounded, two));
    assert_eq!(warned.len(), 2, "{warned:?}");
    for words in
        ["6:3: plan `a` can pass `l`", "`m`", "holds 500 output tokens", "produce 100000", "write_default"]
    {
        assert!(warned[0].contains(words), "{words}: {warned:?}");
    }
    assert!(
        found(&policy("count: output_tokens", "default_output_tokens: 5", two))[1].contains("any number")
    );
    let money = "{a: {usd: \"5\"}, default: unlimited}";
    assert_eq!(found(&policy("count: cost", bounded, money)).len(), 1);
    for (count, output_limit, more) in [
        ("count: tokens", "default_output_tokens: 5, output_limit: {missing: write_default}", two),
        ("count: tokens", "max_output_tokens: 500, output_limit: {missing: hold_max}", two),
        ("count: tokens", "output_limit: {missing: refuse}", two),
        // The most that can be produced is what is held.
        ("count: tokens", "max_output_tokens: 500, default_output_tokens: 500", two),
        ("count: tokens", "max_output_tokens: 1024", two),
        // Does not grow with the output, or never refuses.
        ("count: requests", bounded, two),
        ("count: input_tokens", bounded, two),
        ("count: tokens, weights: {output: 0, reasoning: 0}", bounded, two),
        ("count: tokens, mode: shadow", bounded, two),
    ] {
        assert_eq!(found(&policy(count, output_limit, more)), [""; 0], "{count} {output_limit}");
    }
    // What fits whole is not lowered in a plan that clamps.
    let clamps = policy("count: tokens", bounded, two)
        .replace("a: {models: [\"*\"]}", "a: {models: [\"*\"], output: {when_tight: clamp}}");
    assert_eq!(found(&clamps).len(), 2);
    // One tenant's own limit, and several models.
    let of_tenant =
        policy("count: tokens", bounded, "{a: unlimited, b: 100}") + "tenants: {t: {limits: {l: 200000}}}\n";
    let of_tenant =
        of_tenant.replace("plans:\n", "  - {name: n, match: [n]}\n  - {name: o, match: [o]}\nplans:\n");
    let warned = found(&of_tenant);
    assert_eq!(warned.len(), 2, "{warned:?}");
    assert!(warned[0].contains("plan `a`") && warned[0].contains("and 2 other models"), "{warned:?}");
}

#[test]
fn an_open_limit_beside_a_closed_one() {
    let open =
        FINE.replace("limit: 100000", "limit: {a: 100000, default: unlimited}, on_store_failure: open");
    let policy = |second: &str| {
        format!(
            "{}  - {{name: other, per: [tenant], count: requests, algorithm: fixed_window, every: 1m, {second}}}\n",
            one_limit(&open)
        )
    };
    warns(&policy("limit: 5"), &["limit `l` is `on_store_failure: open` in vain"]);
    // Not where the closed one does not apply, nor beside a shadow.
    assert_eq!(warnings(&policy("limit: {b: 5, default: unlimited}")), [""; 0]);
    // Nor where only the open one applies: endpoints without a model, tenants that the closed one leaves out.
    let closed = |limit: &str| {
        one_limit(&FINE.replace("count: tokens", "count: requests, on_store_failure: open"))
            .replace("limits:", limit)
    };
    let tokens = "limits:\n  - {name: tpm, per: [tenant], count: tokens, algorithm: fixed_window, every: 1h, limit: 100000}";
    assert_eq!(warnings(&closed(tokens)), [""; 0]);
    let requests = tokens.replace("count: tokens", "count: requests");
    warns(&closed(&requests), &["limit `l`", "in vain"]);
    let without_t = format!("{}tenants: {{t: {{limits: {{tpm: unlimited}}}}}}\n", closed(&requests));
    assert_eq!(warnings(&without_t), [""; 0]);
    let shadow = warnings(&policy("limit: {a: 5, b: 5}, mode: shadow"));
    assert!(shadow.iter().all(|warning| warning.contains("`b`: it is not limited")), "{shadow:?}");
}

#[test]
fn a_plan_that_nothing_limits() {
    let policy = one_limit(&FINE.replace("limit: 100000", "limit: {a: 100000, b: unlimited}"));
    warns(&policy, &["7:3: no enforcing limit applies to the plan `b`"]);
    let shadow = warnings(&one_limit(&format!("{FINE}, mode: shadow")));
    assert_eq!(shadow.len(), 2, "{shadow:?}");
}

#[test]
fn a_clamp_that_can_never_be() {
    let policy = one_limit(FINE).replace(
        "a: {models: [\"*\"]}",
        "a: {models: [\"*\"], output: {when_tight: clamp, min_tokens: 100001}}",
    );
    warns(&policy, &["plan `a` never lowers an output limit of `m`"]);
    assert_eq!(warnings(&policy.replace("100001", "100000")), [""; 0]);
}

#[test]
fn a_price_of_nothing() {
    let policy = one_limit("per: [tenant], count: cost, algorithm: fixed_window, every: 1m, limit: {a: {usd: \"5\"}, b: unlimited}")
        .replace("{input: \"2.00\", cache_read: \"0.50\", output: \"8.00\"}", "{input: \"0\", output: \"0.0\"}");
    let found = warnings(&policy);
    assert!(found.iter().any(|w| w.contains("never limits `m`, whose price is 0")), "{found:?}");
}
