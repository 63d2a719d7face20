//! Requests that name more than one model.

use super::*;
use crate::limits::Rates;

fn named(key: char, models: &[&str]) -> ReserveRequest {
    let models: Vec<_> = models.iter().map(|name| (*name).to_owned()).collect();
    ReserveRequest {
        model: models.first().cloned(),
        models: models.into_iter().skip(1).collect(),
        ..request(key, None)
    }
}

fn denied(request: &ReserveRequest) -> (Reason, Option<String>) {
    let denied = plan_request(&Policy::parse("p", POLICY).unwrap(), &Overrides::default(), request, 0);
    let Denied { reason, model } = denied.unwrap_err();
    (reason, model)
}

#[test]
fn every_model_that_is_named_must_be_in_the_plan() {
    let name = |text: &str| Some(text.to_owned());
    assert_eq!(denied(&named('a', &["big", "dear"])), (Reason::ModelNotAllowed, name("dear")));
    assert_eq!(denied(&named('a', &["big", "bare", "small"])), (Reason::ModelNotFound, name("small")));
    assert_eq!(denied(&named('a', &["big", ""])), (Reason::ModelNotFound, name("")));
    assert_eq!(denied(&named('a', &["dear", "big"])), (Reason::ModelNotAllowed, None));
    assert_eq!(denied(&named('f', &["big", "small"])), (Reason::UnknownKey, None));
    assert!(plan(&named('a', &["big", "bare"])).is_ok());
    assert!(plan(&named('c', &["big", "bare", "dear"])).is_ok());
}

/// What was let through is charged, with as many of its models as anybody knows.
#[test]
fn a_booking_passes_over_what_nobody_knows() {
    let policy = Policy::parse("p", POLICY).unwrap();
    let book = |models: &[&str]| plan_booking(&policy, &Overrides::default(), &named('a', models), 0);
    let hold = book(&["big", "small", "dear"]).unwrap().hold;
    assert_eq!(hold.alternatives.models, [Tag::model(Some("big")), Tag::model(Some("dear"))]);
    assert_eq!(book(&["small", "big"]).unwrap_err().reason, Reason::ModelNotFound);
}

#[test]
fn one_model_by_several_names_is_one() {
    let alone = plan(&named('a', &["big"])).unwrap().hold;
    let twice = plan(&named('a', &["big", "openai/BIG-2", "big"])).unwrap().hold;
    assert_eq!(twice, alone);
    assert!(alone.alternatives.is_empty());
}

/// The most that any of them can produce.
#[test]
fn the_output_is_the_longest() {
    for (models, limit, output) in [
        (["big", "bare"], None, 1_024),
        (["bare", "big"], None, 1_024),
        (["big", "bare"], Some(5_000), 5_000),
        (["big", "bare"], Some(50), 50),
    ] {
        let hold = plan(&ReserveRequest { max_output_tokens: limit, ..named('a', &models) }).unwrap().hold;
        assert_eq!((hold.output_tokens, hold.grant), (output, limit), "{models:?} {limit:?}");
    }
}

/// 16 limits are the most that a request can have, whatever it names.
#[test]
fn too_many_limits_are_refused() {
    let policy = |limits: usize| {
        let models: String = (0..9).map(|n| format!("  - {{name: m{n}, match: [m{n}]}}\n")).collect();
        let limits: String = (0..limits)
            .map(|n| {
                format!(
                    "  - {{name: l{n}, per: [tenant, model], count: requests, algorithm: fixed_window, every: 1m, \
                     limit: 5}}\n"
                )
            })
            .collect();
        let text = format!(
            "version: \"1\"\nmodels:\n{models}plans: {{basic: {{models: [\"*\"]}}}}\nkeys: [{{sha256: \"{:0>64}\", \
             tenant: t, plan: basic}}]\nlimits:\n{limits}",
            'a'
        );
        Policy::parse("p", &text).unwrap()
    };
    let ask = |limits, models: usize| {
        let names: Vec<_> = (0..models).map(|n| format!("m{n}")).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        plan_request(&policy(limits), &Overrides::default(), &named('a', &names), 0)
            .map(|plan| plan.hold.charges.len())
            .map_err(|denied| denied.reason)
    };
    assert_eq!(ask(1, 9), Ok(9));
    assert_eq!(ask(4, 4), Ok(16));
    assert_eq!(ask(16, 1), Ok(16));
    assert_eq!(ask(2, 9), Err(Reason::TooManyModels));
    assert_eq!(ask(4, 5), Err(Reason::TooManyModels));
}

/// With less output than was asked for, another model may be the dearest: what is granted covers each of them.
#[test]
fn a_hold_that_may_be_lowered_covers_every_model() {
    let text = r#"
version: "1"
models:
  - {name: wordy, match: [wordy], max_output_tokens: 500, price_usd_per_million: {input: "1.00", output: "8.00"}}
  - {name: careful, match: [careful], max_output_tokens: 500, price_usd_per_million: {input: "4.00", output: "2.00"}}
plans:
  tight: {models: ["*"], output: {when_tight: clamp}}
  plain: {models: ["*"]}
keys:
  - {sha256: "000000000000000000000000000000000000000000000000000000000000000a", tenant: t, plan: tight}
  - {sha256: "000000000000000000000000000000000000000000000000000000000000000b", tenant: t, plan: plain}
limits: [{name: spend, per: [tenant], count: cost, algorithm: fixed_window, every: 1h, limit: {usd: "1.00"}}]
"#;
    let policy = Policy::parse("p", text).unwrap();
    let rates = |key, output| {
        let request = ReserveRequest {
            prompt_tokens: 100,
            max_output_tokens: Some(output),
            ..named(key, &["wordy", "careful"])
        };
        plan_request(&policy, &Overrides::default(), &request, 0).unwrap().hold.charges[0].rates
    };
    let of = |input: u64, output: u64| Rates {
        input: input * 1_000_000,
        cache_read: input * 1_000_000,
        cache_write: input * 1_000_000,
        output: output * 1_000_000,
        reasoning: output * 1_000_000,
        request: 0,
        per: 1_000,
    };
    assert_eq!(rates('b', 500), of(1, 8));
    assert_eq!(rates('b', 10), of(4, 2));
    assert_eq!(rates('a', 500), of(4, 8));
    assert_eq!(rates('a', 10), of(4, 2));
}
