//! Who a caller is.
use super::*;

const KEY_HASH: &str = "e7aab4b439baa8c615eb31e352f5b4259085813fbcd95a65a5a346a6bdfb1bb3";

/// A policy whose `keys` and other sections are given; `{H}` stands for the hash of `tg-demo-key`.
fn policy(sections: &str) -> Policy {
    let limits = "{name: l, per: [tenant], count: requests, algorithm: fixed_window, every: 1m, limit: 5}";
    let text = format!(
        "version: \"1\"\nmodels:\n  - {{name: m, match: [m]}}\nplans:\n  free: {{models: [m]}}\n  paid: {{models: [m]}}\n\
         limits:\n  - {limits}\n{}\n",
        sections.replace("{H}", KEY_HASH)
    );
    Policy::parse_with("p", &text, &environment).unwrap()
}

fn identity(policy: &Policy, headers: &[(&str, &'static str)]) -> Result<Identity, IdentityError> {
    let caller = policy.keys.get(KEY_HASH).unwrap();
    caller.identity(&policy.plans, |name| headers.iter().find(|(header, _)| *header == name).map(|(_, v)| *v))
}

fn is(tenant: &str, plan: &str, user: Option<&str>) -> Result<Identity, IdentityError> {
    Ok(Identity { tenant: tenant.to_owned(), plan: plan.to_owned(), user: user.map(str::to_owned) })
}

/// By `printf %s tg-demo-key | sha256sum | cut -c1-64 | tr -d '\n' | openssl dgst -sha256 -hmac …` with the secret
/// of [`environment`].
#[test]
fn a_key_is_found_by_its_hmac() {
    let hmac = "4b666e1a4e37710e545467aba133e7cfa6dd7869bd737ae04104d51b7d4caac5";
    let keys = format!(
        "key_hash: {{hmac_sha256_env: SECRET}}\nkeys:\n  - {{hmac_sha256: \"{hmac}\", tenant: t, plan: free}}\n  \
         - {{sha256: \"{hmac}\", tenant: u, plan: paid}}"
    );
    let policy = policy(&keys);
    assert_eq!(policy.keys.get(KEY_HASH).unwrap().tenant, "t");
    // The HMAC itself is no key of the first caller; as a SHA-256 it is that of the second.
    assert_eq!(policy.keys.get(hmac).unwrap().tenant, "u");
    assert!(policy.keys.get("").is_none());
    assert_eq!(policy.keys_of("t")[0].0, hmac);
    let debug = format!("{policy:?}");
    assert!(!debug.contains("battery"), "{debug}");
}

#[test]
fn a_key_asserts_only_what_it_may() {
    let plain = policy(
        "keys:\n  - {sha256: \"{H}\", tenant: t, plan: free, user: robot}\n  - {sha256: \"000000000000000000000000000000000000000000000000000000000000000a\", tenant: u, plan: paid}",
    );
    let headers = [("x-end-user", "ann"), ("x-end-user-plan", "paid")];
    assert_eq!(identity(&plain, &headers), is("t", "free", Some("robot")));
    assert!(plain.model_list().asserted_headers.is_empty());

    let user = policy(
        "keys:\n  - {sha256: \"{H}\", tenant: t, plan: free, asserts: {user: x-end-user}}\n  - {sha256: \"000000000000000000000000000000000000000000000000000000000000000a\", tenant: u, plan: paid}",
    );
    assert_eq!(identity(&user, &headers), is("t", "free", Some("ann")));
    assert_eq!(identity(&user, &[]), is("t", "free", None));

    // A plan that no key has is reached by assertion.
    let both = policy(
        "keys:\n  - {sha256: \"{H}\", tenant: t, plan: free, user: robot, asserts: {user: x-end-user, plan: x-end-user-plan}}",
    );
    assert_eq!(identity(&both, &headers), is("t", "paid", Some("ann")));
    assert_eq!(identity(&both, &[]), is("t", "free", Some("robot")));
    assert_eq!(both.model_list().asserted_headers, ["x-end-user", "x-end-user-plan"]);
    let long: &'static str = "123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789";
    for (header, value, error) in [
        ("x-end-user", "", IdentityError::BadUser),
        ("x-end-user", long, IdentityError::BadUser),
        ("x-end-user", "a\nb", IdentityError::BadUser),
        ("x-end-user", " ann", IdentityError::BadUser),
        ("x-end-user-plan", "gold", IdentityError::UnknownPlan),
        ("x-end-user-plan", "", IdentityError::UnknownPlan),
    ] {
        assert_eq!(identity(&both, &[(header, value)]), Err(error), "{value}");
    }
    assert_eq!(identity(&both, &[("x-end-user", &long[1..])]).unwrap().user.unwrap().len(), 128);
}

#[test]
fn verified_callers_need_no_key() {
    let policy = policy(
        "verified_identities: {accept: true, default_plan: free}\ntenants:\n  anybody: {limits: {l: 7}}",
    );
    let verified = |tenant, user, plan| policy.keys.verified(&policy.plans, tenant, user, plan);
    assert_eq!(verified("t", Some("ann"), Some("paid")), is("t", "paid", Some("ann")));
    assert_eq!(verified("t", None, None), is("t", "free", None));
    assert_eq!(verified("", None, None), Err(IdentityError::BadTenant));
    assert_eq!(verified("t", Some(""), None), Err(IdentityError::BadUser));
    assert_eq!(verified("t", None, Some("gold")), Err(IdentityError::UnknownPlan));
    assert_eq!(policy.limits[0].amount_for("free", "anybody"), Some(7));
}

#[test]
fn verified_callers_are_accepted_only_when_the_policy_says_so() {
    let keys = "keys:\n  - {sha256: \"{H}\", tenant: t, plan: free}\n  - {sha256: \"000000000000000000000000000000000000000000000000000000000000000a\", tenant: u, plan: paid}";
    for (section, expected) in [
        ("", Err(IdentityError::NotAccepted)),
        ("verified_identities: {accept: false, default_plan: free}\n", Err(IdentityError::NotAccepted)),
        ("verified_identities: {accept: true}\n", Err(IdentityError::NoPlan)),
    ] {
        let policy = policy(&format!("{section}{keys}"));
        assert_eq!(policy.keys.verified(&policy.plans, "t", None, None), expected, "{section}");
    }
}

#[test]
fn users_are_named_by_pseudonyms_when_asked_for() {
    let keys = "keys:\n  - {sha256: \"{H}\", tenant: t, plan: free}\n  - {sha256: \"000000000000000000000000000000000000000000000000000000000000000a\", tenant: u, plan: paid}";
    let open = policy(&format!("key_hash: {{hmac_sha256_env: SECRET}}\n{keys}"));
    assert_eq!(open.user_name("ann@example.org"), "ann@example.org");
    let closed = policy(&format!("key_hash: {{hmac_sha256_env: SECRET}}\npseudonymize: true\n{keys}"));
    let name = closed.user_name("ann@example.org");
    assert!(name.len() == 16 && name.bytes().all(|b| b.is_ascii_hexdigit()), "{name}");
    assert_eq!(name, closed.user_name("ann@example.org"));
    assert_ne!(name, closed.user_name("bob@example.org"));
}

#[test]
fn an_unknown_model_can_be_taken_for_another() {
    let keys = "keys:\n  - {sha256: \"{H}\", tenant: t, plan: free}\n  - {sha256: \"000000000000000000000000000000000000000000000000000000000000000a\", tenant: u, plan: paid}";
    let denied = policy(&format!("unknown_model: deny\n{keys}"));
    assert!(denied.model("gpt-9").is_none() && denied.model_list().unknown_model.is_none());
    let taken = policy(&format!("unknown_model: {{as: m}}\n{keys}"));
    assert_eq!(taken.model("gpt-9").unwrap().1.name, "m");
    assert_eq!(taken.model_list().unknown_model.unwrap(), "m");
    for nothing in ["", "  ", &"x".repeat(257)] {
        assert!(taken.model(nothing).is_none());
    }
}
