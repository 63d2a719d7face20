#![allow(clippy::unwrap_used)]

use serde_json::json;

use super::*;

fn headers(pairs: &[(&str, &str)]) -> Headers {
    Headers::new(pairs.iter().map(|(k, v)| (k.as_bytes().to_vec(), v.as_bytes().to_vec())).collect())
}

fn hash_of(pairs: &[(&str, &str)]) -> Result<String, IdentityError> {
    identify(&Identity::default(), &headers(pairs), &|_| None).map(|identified| identified.key_hash())
}

#[test]
fn one_credential_has_one_hash() {
    // printf %s key | sha256sum
    let expected = "2c70e12b7a0646f92279f427c7b38e7334d8e5389cff167a1dc30e73f826b683";
    for pairs in [
        vec![("authorization", "Bearer key")],
        vec![("authorization", "bearer key")],
        vec![("authorization", "BEARER   key ")],
        vec![("x-api-key", "key")],
        vec![("api-key", " key")],
        vec![("api-key", "key"), ("authorization", "Bearer key")],
        vec![("authorization", "Basic eA=="), ("x-api-key", "key")],
    ] {
        assert_eq!(hash_of(&pairs).as_deref(), Ok(expected), "{pairs:?}");
    }
}

#[test]
fn no_credential_and_more_than_one() {
    for pairs in [
        vec![],
        vec![("authorization", "")],
        vec![("authorization", "Bearer")],
        vec![("authorization", "Bearer ")],
        vec![("authorization", "Bearerkey")],
        vec![("authorization", "Basic key")],
        vec![("x-api-key", " ")],
        vec![("x-user-id", "victim")],
    ] {
        assert_eq!(hash_of(&pairs), Err(IdentityError::Missing), "{pairs:?}");
    }
    for pairs in [
        vec![("authorization", "Bearer a"), ("x-api-key", "b")],
        vec![("authorization", "Bearer a,Bearer a")],
        vec![("authorization", "Bearer a"), ("authorization", "Bearer a")],
        vec![("x-api-key", "a"), ("x-api-key", "a")],
    ] {
        assert_eq!(hash_of(&pairs), Err(IdentityError::Ambiguous), "{pairs:?}");
    }
}

#[test]
fn credentials_and_what_only_others_may_set_are_removed() {
    let all = headers(&[
        ("authorization", "x"),
        ("x-goog-api-key", "y"),
        ("x-tokengate-degraded", "open"),
        ("x-end-user", "u"),
        ("x-tenant", "t"),
        ("x-request-id", "1"),
    ]);
    let asserted = ["x-end-user".to_owned()];
    let mut identity = identity(json!([{"api_key": {}}, {"trusted_header": {"tenant": "x-tenant"}}]));
    assert_eq!(
        headers_to_remove(&identity, &asserted, &all),
        ["x-tokengate-degraded", "authorization", "x-goog-api-key", "x-tenant", "x-end-user"]
    );
    identity.credential = Credential::Forward;
    assert_eq!(
        headers_to_remove(&identity, &asserted, &all),
        ["x-tokengate-degraded", "x-tenant", "x-end-user"]
    );
}

#[test]
fn what_is_not_for_the_provider_is_removed_unless_it_is_kept() {
    let all: Vec<_> = FOREIGN_HEADERS.into_iter().map(|name| (name, "x")).collect();
    let all = headers(&[all.as_slice(), &[("openai-beta", "x"), ("user-agent", "x")]].concat());
    let mut identity = identity(json!([{"api_key": {}}]));
    assert_eq!(headers_to_remove(&identity, &[], &all), FOREIGN_HEADERS);
    identity.keep_headers = vec!["cookie".to_owned(), "x-original-url".to_owned()];
    let removed = headers_to_remove(&identity, &[], &all);
    assert_eq!(removed.len(), FOREIGN_HEADERS.len() - 2);
    assert!(!removed.contains(&"cookie".to_owned()) && !removed.contains(&"x-original-url".to_owned()));
    // A key that callers bring is theirs, and so is their account; the path and the method are ours to look at.
    identity.credential = Credential::Forward;
    assert_eq!(
        headers_to_remove(&identity, &[], &all),
        OVERRIDE_HEADERS
            .map(str::to_owned)
            .into_iter()
            .filter(|name| name != "x-original-url")
            .collect::<Vec<_>>()
    );
    // Where the key itself stands in one, it is removed.
    let cookie: Identity = serde_json::from_value(
        json!({"sources": [{"api_key": {"headers": ["cookie"]}}], "keep_headers": ["cookie"]}),
    )
    .unwrap();
    assert!(headers_to_remove(&cookie, &[], &all).contains(&"cookie".to_owned()));
}

fn identity(sources: serde_json::Value) -> Identity {
    serde_json::from_value(json!({ "sources": sources })).unwrap()
}

fn verified(tenant: &str, user: Option<&str>, plan: Option<&str>) -> Result<Identified, IdentityError> {
    let text = |text: Option<&str>| text.map(str::to_owned);
    let identity = VerifiedIdentity { tenant: tenant.to_owned(), user: text(user), plan: text(plan) };
    Ok(Identified::Verified(identity))
}

#[test]
fn claims_come_from_the_metadata_alone() {
    let identity = identity(json!([
        {"jwt": {"metadata": ["jwt", "payload"], "tenant": "org", "user": "sub", "plan": ["app", "plan"]}},
        {"api_key": {}}]));
    let of = |claims: &[(&str, &[u8])]| {
        let property = |path: &[&str]| {
            let claim = path.strip_prefix(&["metadata", "filter_metadata", "jwt", "payload"])?.join("/");
            claims.iter().find(|(name, _)| *name == claim).map(|(_, value)| value.to_vec())
        };
        let headers = headers(&[("authorization", "Bearer key"), ("org", "x"), ("sub", "y")]);
        identify(&identity, &headers, &property)
    };
    assert_eq!(of(&[("org", b"acme"), ("sub", b"u1"), ("app/plan", b"gold")]), {
        verified("acme", Some("u1"), Some("gold"))
    });
    assert_eq!(of(&[("org", b"acme")]), verified("acme", None, None));
    // Without a tenant there is no identity: the next source.
    assert!(matches!(of(&[("sub", b"u1")]), Ok(Identified::Key(_))));
    assert!(matches!(of(&[("org", b""), ("sub", b"u1")]), Ok(Identified::Key(_))));
    // A number comes as its eight bytes.
    for bad in [&12.5f64.to_le_bytes()[..], b"a\nb", b"\xff", &[b'x'; 129]] {
        assert_eq!(of(&[("org", bad)]), Err(IdentityError::Invalid), "{bad:?}");
        assert_eq!(of(&[("org", b"acme"), ("sub", bad)]), Err(IdentityError::Invalid), "{bad:?}");
    }
}

#[test]
fn a_certificate_names_the_tenant() {
    let identity = identity(json!([{"mtls": {"tenant": "uri_san"}}]));
    let of = |san: &[u8]| {
        identify(&identity, &headers(&[("authorization", "Bearer key")]), &|path| {
            (path == ["connection", "uri_san_peer_certificate"]).then(|| san.to_vec())
        })
    };
    assert_eq!(of(b"spiffe://td/acme"), verified("spiffe://td/acme", None, None));
    assert_eq!(of(b""), Err(IdentityError::Missing));
}

#[test]
fn a_trusted_header_is_given_once() {
    let identity = identity(json!([{"trusted_header": {"tenant": "x-tenant", "user": "x-user"}}]));
    let of = |pairs: &[(&str, &str)]| identify(&identity, &headers(pairs), &|_| None);
    assert_eq!(of(&[("x-tenant", " acme "), ("x-user", "")]), verified("acme", None, None));
    assert_eq!(of(&[("x-tenant", "acme"), ("x-user", "u")]), verified("acme", Some("u"), None));
    assert_eq!(of(&[("x-user", "u")]), Err(IdentityError::Missing));
    assert_eq!(of(&[("x-tenant", "a"), ("x-tenant", "a")]), Err(IdentityError::Ambiguous));
    assert_eq!(of(&[("x-tenant", "a"), ("x-user", "u"), ("x-user", "v")]), Err(IdentityError::Ambiguous));
    assert_eq!(of(&[("x-tenant", "a\u{7f}")]), Err(IdentityError::Invalid));
}

#[test]
fn what_is_asserted_is_short_text_given_once() {
    let names = ["x-end-user".to_owned(), "x-end-plan".to_owned()];
    let of = |pairs: &[(&str, &str)]| asserted(&names, &headers(pairs));
    let one = of(&[("x-end-user", " ann "), ("x-other", "b")]).unwrap();
    assert_eq!(one.into_iter().collect::<Vec<_>>(), [("x-end-user".to_owned(), "ann".to_owned())]);
    assert_eq!(of(&[("x-end-user", "a"), ("x-end-user", "a")]), Err(IdentityError::Ambiguous));
    assert_eq!(of(&[("x-end-user", &"x".repeat(129))]), Err(IdentityError::Invalid));
    assert!(of(&[("x-end-user", &"x".repeat(128))]).is_ok());
    let bytes = Headers::new(vec![(b"x-end-plan".to_vec(), b"\xff".to_vec())]);
    assert_eq!(asserted(&names, &bytes), Err(IdentityError::Invalid));
}

#[test]
fn the_client_address_has_no_port() {
    let of = |address: &str| client_address(&|_| Some(address.as_bytes().to_vec()));
    assert_eq!(of("192.0.2.7:1234").as_deref(), Some("192.0.2.7"));
    assert_eq!(of("[2001:db8::1]:443").as_deref(), Some("2001:db8::1"));
    assert_eq!(of("/run/envoy.sock"), None);
    assert_eq!(client_address(&|_| None), None);
}
