#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]
mod alternatives;
mod counting;
mod dimensions;

use tokengate_api::ReservationId;

use super::*;

const POLICY: &str = r#"
version: "1"
models:
  - {name: big, match: ["big*"], max_output_tokens: 1000, default_output_tokens: 200}
  - {name: bare, match: ["bare"]}
  - {name: dear, match: ["dear"]}
plans:
  basic: {models: [big, bare]}
  free: {models: ["*"]}
keys:
  - {sha256: "000000000000000000000000000000000000000000000000000000000000000a", tenant: t, plan: basic}
  - {sha256: "000000000000000000000000000000000000000000000000000000000000000b", tenant: t, plan: basic}
  - {sha256: "000000000000000000000000000000000000000000000000000000000000000c", tenant: t, plan: free}
limits:
  - {name: rpm, per: [tenant, model], count: requests, algorithm: fixed_window, every: 1m, limit: 5}
  - {name: tpm, per: [tenant, model], count: tokens, algorithm: fixed_window, every: 1m, limit: {basic: 10, free: 20}}
  - {name: key, per: [key, plan], count: tokens, algorithm: fixed_window, every: 1m, limit: {basic: 30, free: unlimited}}
"#;

fn request(key: char, model: Option<&str>) -> ReserveRequest {
    ReserveRequest {
        id: ReservationId::from_bytes([1; 16]),
        attempt: 1,
        deadline_ms: 100,
        key_hash: format!("{key:0>64}"),
        model: model.map(str::to_owned),
        models: Vec::new(),
        service_tier: None,
        dialect: "openai".to_owned(),
        endpoint: "chat.completions".to_owned(),
        prompt_tokens: 10,
        max_output_tokens: None,
        choices: 1,
        stream: false,
        can_clamp: true,
        request_id: None,
        identity: None,
        asserted: std::collections::BTreeMap::new(),
        ip: None,
    }
}

fn plan(request: &ReserveRequest) -> Result<RequestPlan, Reason> {
    let plan = plan_request(&Policy::parse("p", POLICY).unwrap(), &Overrides::default(), request, 0);
    plan.map_err(|denied| denied.reason)
}

#[test]
fn holds_prompt_and_the_output_of_every_choice() {
    for (model, limit, choices, grant, tokens) in [
        ("big", None, 1, None, 210),
        ("big", Some(50), 1, Some(50), 60),
        ("big", Some(50), 3, Some(50), 160),
        ("big", Some(0), 1, Some(0), 10),
        ("big", Some(5_000), 2, Some(1_000), 2_010),
        ("bare", None, 1, None, 1_034),
        ("bare", Some(5_000), 1, Some(5_000), 5_010),
        ("bare", Some(u64::MAX), u32::MAX, Some(MAX_AMOUNT + 1), MAX_AMOUNT + 11),
    ] {
        let request = ReserveRequest { max_output_tokens: limit, choices, ..request('a', Some(model)) };
        let hold = plan(&request).unwrap().hold;
        assert_eq!((hold.grant, hold.tokens()), (grant, tokens), "{model} {limit:?} {choices}");
        let amounts = hold.charges.iter().map(|charge| hold.amount(charge, hold.output_tokens));
        let counted = tokens.min(MAX_AMOUNT + 1);
        assert_eq!(amounts.collect::<Vec<_>>(), [1, counted, counted]);
    }
}

#[test]
fn denies_with_the_reason() {
    assert_eq!(plan(&request('f', Some("big"))).unwrap_err(), Reason::UnknownKey);
    assert_eq!(plan(&request('a', Some("small"))).unwrap_err(), Reason::ModelNotFound);
    assert_eq!(plan(&request('a', Some(""))).unwrap_err(), Reason::ModelNotFound);
    assert_eq!(plan(&request('a', Some("dear"))).unwrap_err(), Reason::ModelNotAllowed);
    assert!(plan(&request('c', Some("dear"))).is_ok());
}

#[test]
fn each_plan_has_its_own_amounts() {
    let limits = |key| {
        let plan = plan(&request(key, Some("openai/BIG-2"))).unwrap();
        assert_eq!(plan.model.as_deref(), Some("big"));
        plan.labels
            .iter()
            .zip(&plan.hold.charges)
            .map(|(label, charge)| (label.name.clone(), charge.meter.limit))
            .collect::<Vec<_>>()
    };
    let named = |limits: &[(&str, u64)]| {
        limits.iter().map(|(name, limit)| ((*name).to_owned(), *limit)).collect::<Vec<_>>()
    };
    assert_eq!(limits('a'), named(&[("rpm", 5), ("tpm", 10), ("key", 30)]));
    assert_eq!(limits('c'), named(&[("rpm", 5), ("tpm", 20)]));
}

#[test]
fn buckets_are_as_wide_as_their_dimensions() {
    let buckets = |key, model| {
        let hold = plan(&request(key, Some(model))).unwrap().hold;
        hold.charges.iter().map(|charge| charge.meter.bucket).collect::<Vec<_>>()
    };
    let (a, b) = (buckets('a', "big"), buckets('b', "big"));
    assert_eq!(a[..2], b[..2]);
    assert_ne!(a[2], b[2]);
    let other = buckets('a', "bare");
    assert!(a[0] != other[0] && a[1] != other[1] && a[2] == other[2]);
    // The same subject under another limit is another bucket.
    assert_ne!(a[0], a[1]);
}

#[test]
fn without_a_model_only_requests_are_counted() {
    let request = ReserveRequest { prompt_tokens: 0, ..request('a', None) };
    let plan = plan(&request).unwrap();
    assert_eq!((plan.model, plan.hold.tokens(), plan.hold.grant), (None, 0, None));
    assert_eq!(plan.labels.len(), 1);
    assert_eq!(plan.labels[0].name, "rpm");
    assert_eq!(plan.labels[0].scope["model"], "-");
}

#[test]
fn keys_are_shown_by_eight_digits() {
    let plan = plan(&request('a', Some("big"))).unwrap();
    assert_eq!(plan.labels[2].scope["key"], "00000000");
    assert_eq!(plan.labels[2].scope["plan"], "basic");
}
