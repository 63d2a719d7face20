//! Prices, and what a model says of its provider.

use tokengate_api::UsageChunk;

use super::*;
use crate::limits::Rates;

fn of(model: &str) -> Policy {
    let policy = GOOD.replace("{name: ab, match: [\"b\"]}", model);
    assert_ne!(policy, GOOD);
    Policy::parse("p", &policy).unwrap()
}

fn priced(price: &str) -> Prices {
    of(&format!("{{name: ab, match: [b], price_usd_per_million: {price}}}")).prices["ab"].clone()
}

/// Input, from the cache, into the cache, output and reasoning: dollars per million.
fn classes(rates: &Rates) -> [u64; 5] {
    [rates.input, rates.cache_read, rates.cache_write, rates.output, rates.reasoning]
        .map(|rate| rate / 1_000_000)
}

/// Never nothing: the tier's next more general class, else what the class costs without a tier.
#[test]
fn what_a_tier_leaves_out() {
    for (tier, expected) in [
        (r#"{input: "20"}"#, [20, 20, 20, 8, 9]),
        (r#"{output: "80"}"#, [2, 1, 3, 80, 80]),
        (r#"{reasoning: "90"}"#, [2, 1, 3, 8, 90]),
        (r#"{cache_read: "10", output: "80"}"#, [2, 10, 3, 80, 80]),
        (r#"{input: "20", cache_write: "30", output: "80", reasoning: "90"}"#, [20, 20, 30, 80, 90]),
        (r#"{input: "0"}"#, [0, 0, 0, 8, 9]),
    ] {
        let prices = priced(&format!(
            r#"{{input: "2", cache_read: "1", cache_write: "3", output: "8", reasoning: "9", tiers: {{fast: {tier}}}}}"#
        ));
        assert_eq!(classes(&prices.tiers["fast"]), expected, "{tier}");
        assert_eq!(classes(&prices.standard), [2, 1, 3, 8, 9]);
    }
    assert!(priced(r#"{input: "2", output: "8"}"#).tiers.is_empty());
}

#[test]
fn what_the_provider_does_with_stream_options() {
    for (field, expected) in [
        ("", UsageChunk::Ask),
        (", usage_chunk: ask", UsageChunk::Ask),
        (", usage_chunk: never", UsageChunk::Never),
    ] {
        let policy = of(&format!("{{name: ab, match: [b]{field}}}"));
        assert_eq!(policy.model_list().models[1].usage_chunk, expected);
    }
}

/// What `check --explain` says holds what a request holds that names no tier.
#[test]
fn an_explanation_names_the_tiers() {
    let text = std::fs::read_to_string(folder("examples/full.yaml")).unwrap();
    let tiers = r#"output: "0.60", tiers: {priority: {input: "15.00", output: "60.00"}}}"#;
    let tiered = text.replace(r#"output: "0.60"}"#, tiers);
    assert_ne!(text, tiered);
    let tiered = Policy::parse("p", &tiered).unwrap().explain(Assumed::default());
    let (_, mini) = tiered.split_once("plan `standard`, model `gpt-4o-mini`").unwrap();
    assert!(
        mini.contains("other prices by tier: priority; a request that names none holds by the dearest"),
        "{mini}"
    );
    // 500 prompt tokens at 15 dollars, 1024 at 60.
    assert!(mini.contains("holds $0.06894,"), "{mini}");
}
