//! Who is counted where: one bucket for each combination of what a limit names, and never one for everybody.

use std::collections::BTreeMap;

use tokengate_api::VerifiedIdentity;

use super::*;
use crate::store::BucketId;

/// `more` are further sections.
fn policy(more: &str) -> Policy {
    let text = format!(
        r#"
version: "1"
{more}
models: [{{name: big, match: ["big*"], max_output_tokens: 1000}}]
plans: {{basic: {{models: ["*"]}}, gold: {{models: ["*"]}}}}
keys:
  - {{sha256: "{:0>64}", tenant: t, plan: basic}}
  - {{sha256: "{:0>64}", tenant: t, plan: basic}}
  - {{sha256: "{:0>64}", tenant: t, plan: basic, user: ann}}
  - {{sha256: "{:0>64}", tenant: two, plan: basic, user: ann}}
  - {{sha256: "{:0>64}", tenant: t, plan: basic, user: shop, asserts: {{user: x-user, plan: x-plan}}}}
tenants: {{two: {{limits: {{per-tenant: 7, per-key: unlimited}}}}}}
limits:
  - {{name: per-user, per: [user], count: requests, algorithm: fixed_window, every: 1m, limit: 5}}
  - {{name: per-key, per: [key], count: requests, algorithm: fixed_window, every: 1m, limit: 5}}
  - {{name: per-ip, per: [tenant, ip], count: requests, algorithm: fixed_window, every: 1m, limit: 5}}
  - {{name: per-endpoint, per: [tenant, endpoint], count: requests, algorithm: fixed_window, every: 1m, limit: 5}}
  - {{name: per-plan, per: [tenant, plan], count: requests, algorithm: fixed_window, every: 1m, limit: {{basic: 5, gold: 50}}}}
  - {{name: per-tenant, per: [tenant], count: requests, algorithm: fixed_window, every: 1m, limit: 5}}
  - {{name: everybody, per: [], shared: true, count: requests, algorithm: fixed_window, every: 1m, limit: 5}}
  - {{name: any-ip, per: [ip], shared: true, count: requests, algorithm: fixed_window, every: 1m, limit: 5}}
"#,
        'a', 'b', 'c', 'd', 'e'
    );
    let secret = |name: &str| (name == "SECRET").then(|| "0123456789abcdef".to_owned());
    Policy::parse_with("p", &text, &secret).unwrap()
}

const PSEUDONYMS: &str = "key_hash: {hmac_sha256_env: SECRET}\npseudonymize: true";
const VERIFIED: &str = "verified_identities: {accept: true, default_plan: basic}";

fn asks(policy: &Policy, request: &ReserveRequest) -> RequestPlan {
    plan_request(policy, &Overrides::default(), request, 0).unwrap()
}

/// The bucket of a limit, and how answers name it.
fn at(policy: &Policy, request: &ReserveRequest, name: &str) -> (BucketId, BTreeMap<String, String>) {
    let plan = asks(policy, request);
    let position = plan.labels.iter().position(|label| label.name == name).unwrap();
    (plan.hold.charges[position].meter.bucket, plan.labels[position].scope.clone())
}

fn asserting(headers: &[(&str, &str)]) -> ReserveRequest {
    let asserted = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    ReserveRequest { asserted, ..request('e', Some("big")) }
}

fn verified(tenant: &str, user: Option<&str>, plan: Option<&str>) -> ReserveRequest {
    let identity = VerifiedIdentity {
        tenant: tenant.to_owned(),
        user: user.map(str::to_owned),
        plan: plan.map(str::to_owned),
    };
    ReserveRequest { identity: Some(identity), key_hash: String::new(), ..request('a', Some("big")) }
}

fn scope(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn users_have_a_bucket_each_and_machines_one_per_key() {
    let policy = policy("");
    let of = |digit| at(&policy, &request(digit, Some("big")), "per-user");
    let (a, b, ann, other_ann) = (of('a'), of('b'), of('c'), of('d'));
    assert_eq!(a.1, scope(&[("tenant", "t"), ("user", "key:00000000")]));
    assert_eq!(ann.1, scope(&[("tenant", "t"), ("user", "ann")]));
    let shop = at(&policy, &asserting(&[]), "per-user");
    let said = |user| at(&policy, &asserting(&[("x-user", user)]), "per-user");
    let all = [a.0, b.0, ann.0, other_ann.0, shop.0, said("bob").0, said("key:000000000000000a").0];
    let different: std::collections::BTreeSet<_> = all.iter().collect();
    assert_eq!(different.len(), all.len());
    // Whoever says it: the tenant's ann is one ann.
    assert_eq!(said("ann"), ann);
    // A user that is called like a machine's key is another one, wherever the hash is known.
    let forged = said(&format!("key:{:0>64}", "a"));
    assert_ne!(forged.0, a.0, "a backend's user must not land in another key's bucket");
}

#[test]
fn pseudonyms_hide_users_and_keep_them_apart() {
    let (plain, hidden) = (policy(""), policy(PSEUDONYMS));
    let (ann, shown) = at(&hidden, &request('c', Some("big")), "per-user");
    assert_eq!(shown["user"].len(), 16);
    assert!(shown["user"].bytes().all(|byte| byte.is_ascii_hexdigit()), "{shown:?}");
    assert_ne!(ann, at(&plain, &request('c', Some("big")), "per-user").0);
    assert_eq!(at(&hidden, &asserting(&[("x-user", "ann")]), "per-user"), (ann, shown.clone()));
    assert_ne!(at(&hidden, &asserting(&[("x-user", "bob")]), "per-user").1, shown);
    // The same name with another tenant shows the same and counts apart.
    let (other, other_shown) = at(&hidden, &request('d', Some("big")), "per-user");
    assert!(other != ann && other_shown["user"] == shown["user"]);
    // A machine's key is no user, and is shown by its first digits as ever.
    assert_eq!(at(&hidden, &request('a', Some("big")), "per-user").1["user"], "key:00000000");
}

#[test]
fn only_who_may_assert_is_believed() {
    let policy = policy("");
    let claims = ReserveRequest {
        asserted: asserting(&[("x-user", "root"), ("x-plan", "gold")]).asserted,
        ..request('a', Some("big"))
    };
    let plan = asks(&policy, &claims);
    assert_eq!((plan.identity.user, plan.identity.plan.as_str()), (None, "basic"));
    let plan = asks(&policy, &asserting(&[("x-user", "bob"), ("x-plan", "gold")]));
    assert_eq!((plan.identity.user.as_deref(), plan.identity.plan.as_str()), (Some("bob"), "gold"));
    assert_eq!(plan.hold.plan, Tag::plan("gold"));
    let limit = |plan: &RequestPlan, name: &str| {
        let position = plan.labels.iter().position(|label| label.name == name).unwrap();
        plan.hold.charges[position].meter.limit
    };
    assert_eq!((limit(&plan, "per-plan"), limit(&plan, "per-user")), (50, 5));
    for bad in [("x-plan", "platinum"), ("x-user", ""), ("x-user", "a\nb"), ("x-user", " ann")] {
        let refused = plan_request(&policy, &Overrides::default(), &asserting(&[bad]), 0).unwrap_err();
        assert_eq!(refused, Reason::InvalidIdentity.into(), "{bad:?}");
    }
    let long = "x".repeat(129);
    let refused =
        plan_request(&policy, &Overrides::default(), &asserting(&[("x-user", &long)]), 0).unwrap_err();
    assert_eq!(refused, Reason::InvalidIdentity.into());
}

#[test]
fn a_verified_caller_takes_the_place_of_a_key() {
    let (open, closed) = (policy(VERIFIED), policy(""));
    let asked = |policy, request| plan_request(policy, &Overrides::default(), &request, 0);
    assert_eq!(asked(&closed, verified("t", None, None)).unwrap_err(), Reason::UnknownKey.into());
    let plan = asked(&open, verified("t", Some("ann"), None)).unwrap();
    assert_eq!((plan.identity.tenant.as_str(), plan.identity.plan.as_str()), ("t", "basic"));
    // The same user as by key, and as one identity to whom a reserve is replayed.
    let by_key = request('c', Some("big"));
    assert_eq!(at(&open, &verified("t", Some("ann"), None), "per-user"), at(&open, &by_key, "per-user"));
    assert_ne!(plan.hold.identity, asks(&open, &by_key).hold.identity);
    assert_ne!(plan.hold.identity, asks(&open, &verified("t", Some("bob"), None)).hold.identity);
    assert_eq!(asked(&open, verified("new", None, Some("gold"))).unwrap().identity.plan, "gold");
    for bad in [verified("", None, None), verified("t", Some(""), None), verified("t", None, Some("none"))] {
        assert_eq!(asked(&open, bad).unwrap_err(), Reason::InvalidIdentity.into());
    }
}

#[test]
fn keys_endpoints_and_addresses() {
    let policy = policy("");
    let ask = |digit, endpoint: &str, ip: Option<&str>| ReserveRequest {
        endpoint: endpoint.to_owned(),
        ip: ip.map(str::to_owned),
        ..request(digit, Some("big"))
    };
    let bucket = |request: &ReserveRequest, name| at(&policy, request, name);
    let chat = ask('a', "chat.completions", Some("2001:db8:1:2::1"));
    assert_ne!(bucket(&chat, "per-key").0, bucket(&ask('b', "chat.completions", None), "per-key").0);
    assert_eq!(bucket(&chat, "per-key").1, scope(&[("key", "00000000"), ("tenant", "t")]));

    let other = bucket(&ask('a', "embeddings", None), "per-endpoint");
    assert_ne!(bucket(&chat, "per-endpoint").0, other.0);
    assert_eq!(other.1["endpoint"], "embeddings");
    assert_eq!(bucket(&ask('b', "chat.completions", None), "per-endpoint"), bucket(&chat, "per-endpoint"));

    for name in ["per-ip", "any-ip"] {
        let of = |ip| bucket(&ask('a', "chat.completions", Some(ip)), name);
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff::9"));
        assert_ne!(of("2001:db8:1:2::1").0, of("2001:db8:1:3::1").0);
        assert_ne!(of("192.0.2.1").0, of("192.0.2.2").0);
        assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.1"));
        assert_eq!(of("2001:db8:1:2::1").1["ip"], "2001:db8:1:2::/64");
        assert_eq!(bucket(&ask('a', "chat.completions", None), name).1["ip"], "-");
    }
}

#[test]
fn a_shared_bucket_is_one_for_all_tenants() {
    let policy = policy("");
    let of = |digit, name| at(&policy, &request(digit, Some("big")), name);
    for name in ["everybody", "any-ip"] {
        assert_eq!(of('a', name), of('d', name));
        assert!(of('a', name).0.shared);
        // It lives with none of them.
        let home = |account| of('a', name).0.home(Tag::account(account));
        assert_eq!(home("t"), home("two"));
    }
    assert!(!of('a', "per-tenant").0.shared);
    assert_ne!(of('a', "per-tenant").0, of('d', "per-tenant").0);
}

#[test]
fn a_tenants_own_values_and_an_override_come_before_the_plans() {
    let policy = policy("");
    let limits = |digit, overrides: &Overrides, now_ms| {
        let plan = plan_request(&policy, overrides, &request(digit, Some("big")), now_ms).unwrap();
        let named = plan.labels.iter().map(|label| label.name.clone());
        named.zip(plan.hold.charges.iter().map(|charge| charge.meter.limit)).collect::<BTreeMap<_, _>>()
    };
    let none = Overrides::default();
    assert_eq!((limits('a', &none, 0)["per-tenant"], limits('d', &none, 0)["per-tenant"]), (5, 7));
    assert!(limits('a', &none, 0).contains_key("per-key") && !limits('d', &none, 0).contains_key("per-key"));
    let note = |limit: &str| format!(r#"{{"tenant": "two", "limit": "{limit}", "amount": 9, "until": 100}}"#);
    let set = Overrides::read(&[note("per-tenant"), note("per-key"), "not ours".to_owned()]);
    assert_eq!((limits('a', &set, 0)["per-tenant"], limits('d', &set, 0)["per-tenant"]), (5, 9));
    assert_eq!(limits('d', &set, 100)["per-tenant"], 7);
    // What the policy leaves unlimited stays so.
    assert!(!limits('d', &set, 0).contains_key("per-key"));
}
