//! What operators may get wrong.

use super::*;

#[tokio::test]
async fn a_mistake_is_named_and_changes_nothing() {
    let store = Arc::new(MemoryStore::new(Arc::new(SystemClock), Lifetimes::default()));
    let setup = Setup { policy: with_everything(), store: store.clone(), ..Setup::default() };
    let server = start(setup).await;
    top_up(&server, "g", "1.00").await;
    reserve(&server, 1).await;
    let before = store.dump();
    let name = |field: &str, value: Value| with(bucket("tpm"), field, value);
    let good = json!({"bucket": bucket("tpm"), "id": "x", "change": "charge", "amount": 1});
    let money = |body: Value, usd: &str| with(with(body, "amount", Value::Null), "usd", json!(usd));
    for (body, status, field) in [
        (with(good.clone(), "bucket", name("tenant", json!("nobody"))), 404, "tenant"),
        (with(good.clone(), "bucket", name("plan", json!("gold"))), 404, "bucket.plan"),
        (with(good.clone(), "bucket", name("plan", json!("wide"))), 404, "bucket.plan"),
        (with(good.clone(), "bucket", name("limit", json!("rpm"))), 404, "limit"),
        (with(good.clone(), "bucket", name("model", Value::Null)), 400, "bucket.model"),
        (with(good.clone(), "bucket", name("model", json!("claude"))), 404, "bucket.model"),
        (with(good.clone(), "bucket", name("model", json!(7))), 400, "bucket.model"),
        (with(good.clone(), "bucket", name("modle", json!("gpt"))), 400, "bucket.modle"),
        (with(good.clone(), "bucket", json!({"tenant": "t", "limit": "bucket"})), 400, "bucket.key"),
        (with(good.clone(), "bucket", with(bucket("bucket"), "key", json!("0000"))), 404, "bucket.key"),
        (with(good.clone(), "bucket", with(bucket("bucket"), "key", json!("f0000000"))), 404, "bucket.key"),
        (with(good.clone(), "bucket", json!({"tenant": "t", "limit": "month"})), 400, "bucket.user"),
        // What the limit does not count per must not be named: it would be another bucket than the one meant.
        (with(good.clone(), "bucket", name("user", json!("ann"))), 400, "bucket.user"),
        (with(good.clone(), "bucket", name("key", json!(&KEY[..8]))), 400, "bucket.key"),
        (with(good.clone(), "bucket", name("ip", json!("192.0.2.1"))), 400, "bucket.ip"),
        (with(good.clone(), "bucket", name("endpoint", json!("embeddings"))), 400, "bucket.endpoint"),
        (with(good.clone(), "bucket", with(bucket("slide"), "model", json!("gpt"))), 400, "bucket.model"),
        (with(good.clone(), "id", json!("")), 400, "id"),
        (with(good.clone(), "id", json!("x".repeat(129))), 400, "id"),
        (with(good.clone(), "id", json!("a\nb")), 400, "id"),
        (with(good.clone(), "change", json!("double")), 400, "change"),
        (with(good.clone(), "amount", json!(0)), 400, "amount"),
        (with(good.clone(), "amount", json!(-1)), 400, "amount"),
        (with(good.clone(), "amount", json!(1.5)), 400, "amount"),
        (with(good.clone(), "amount", json!(u64::MAX)), 400, "amount"),
        (with(good.clone(), "amount", Value::Null), 400, "amount"),
        (with(good.clone(), "usd", json!("1.00")), 400, "usd"),
        (with(with(good.clone(), "usd", json!("1.00")), "amount", Value::Null), 400, "usd"),
        (with(good.clone(), "bucket", bucket("prepaid")), 400, "usd"),
        (with(money(good.clone(), "0"), "bucket", bucket("prepaid")), 400, "usd"),
        (with(money(good.clone(), "-1"), "bucket", bucket("prepaid")), 400, "usd"),
        (with(money(good.clone(), "4503599.627370497"), "bucket", bucket("prepaid")), 400, "usd"),
        (with(good.clone(), "ammount", json!(1)), 400, "ammount"),
    ] {
        let (answered, answer) = post(server.admin, "/v1/corrections", &body).await;
        assert_eq!(answered.as_u16(), status, "{body}: {answer}");
        assert_eq!(answer["error"]["field"], field, "{body}: {answer}");
    }
    for path in ["/v1/corrections", "/v1/buckets/reset", "/v1/balances/top-up"] {
        assert_eq!(post(server.admin, path, &json!([])).await.0, StatusCode::BAD_REQUEST);
        let large = request(Method::POST, path, vec![b' '; 20_000]);
        assert_eq!(send(server.admin, false, large).await.0, StatusCode::PAYLOAD_TOO_LARGE);
        // Not where the filters call.
        assert_eq!(post(server.api, path, &json!({})).await.0, StatusCode::NOT_FOUND);
    }
    assert_eq!(store.dump(), before);
}

#[tokio::test]
async fn a_mistaken_override_is_not_set() {
    let server = start(Setup { policy: with_everything(), ..Setup::default() }).await;
    let good = json!({"tenant": "t", "limit": "tpm", "amount": 5, "for_ms": 1_000});
    for (field, value, status, named) in [
        ("tenant", json!("nobody"), 404, "tenant"),
        ("tenant", json!(""), 404, "tenant"),
        ("limit", json!("other"), 404, "limit"),
        ("limit", json!("prepaid"), 400, "usd"),
        ("amount", json!(1_u64 << 53), 400, "amount"),
        ("amount", json!(-1), 400, "amount"),
        ("amount", Value::Null, 400, "amount"),
        ("usd", json!("1.00"), 400, "usd"),
        ("usd", json!("0"), 400, "usd"),
        ("for_ms", json!(0), 400, "for_ms"),
        ("for_ms", json!(400_u64 * 86_400_000), 400, "for_ms"),
        ("for_ms", Value::Null, 400, "for_ms"),
        ("until", json!(1), 400, "until"),
    ] {
        let (answered, answer) = post(server.admin, "/v1/overrides", &with(good.clone(), field, value)).await;
        assert_eq!(
            (answered.as_u16(), &answer["error"]["field"]),
            (status, &json!(named)),
            "{field}: {answer}"
        );
    }
    let balance = json!({"tenant": "t", "limit": "prepaid", "usd": "5.00", "for_ms": 1_000});
    let (_, answer) = post(server.admin, "/v1/overrides", &balance).await;
    assert_eq!(answer["error"]["field"], "limit");
    // Too large beside 1/86400000 a millisecond.
    let bucket = with(with(good, "limit", json!("bucket")), "amount", json!(100_000_000));
    assert_eq!(post(server.admin, "/v1/overrides", &bucket).await.1["error"]["field"], "amount");
    assert_eq!(get(server.admin, "/v1/overrides").await.1["overrides"], json!([]));
}

/// What a query does not know is a mistake, not left out: the answer would be about something else.
#[tokio::test]
async fn a_mistaken_query_is_answered() {
    let server = start(Setup { policy: with_everything(), ..Setup::default() }).await;
    for (path, status, field) in [
        ("/v1/explain?tenant=t&modle=gpt", 400, ""),
        ("/v1/explain?tenant=t&tenant=two", 400, ""),
        ("/v1/explain?tenant=t&ip=gpt", 400, "ip"),
        ("/v1/explain?tenant=t&ip=192.0.2.1:80", 400, "ip"),
        ("/v1/explain?tenant=nobody", 404, "tenant"),
        ("/v1/explain?tenant=t&plan=wide", 404, "plan"),
        ("/v1/holds?tenant=t&last=5", 400, ""),
    ] {
        let (answered, answer) = get(server.admin, path).await;
        assert_eq!(
            (answered.as_u16(), &answer["error"]["field"]),
            (status, &json!(field)),
            "{path}: {answer}"
        );
    }
    let path = "/v1/overrides?tenant=t&limit=tpm&plan=basic";
    assert_eq!(send(server.admin, false, request(Method::DELETE, path, "")).await.0, StatusCode::BAD_REQUEST);
}

/// Where callers are verified by the proxy, anybody can be a tenant who has a name that one can have.
#[tokio::test]
async fn a_tenant_that_nobody_can_be() {
    let text = "version: \"1\"\nmodels: [{name: gpt, match: [gpt]}]\nplans: {basic: {models: [gpt]}}\n\
        verified_identities: {accept: true}\n\
        limits: [{name: rpm, per: [tenant], count: requests, algorithm: fixed_window, every: 1m, limit: 5}]\n";
    let policy = Policy::parse("p", text).unwrap();
    let server = start(Setup { policy, ..Setup::default() }).await;
    assert_eq!(get(server.admin, "/v1/explain?tenant=anybody").await.0, StatusCode::OK);
    let long = "x".repeat(129);
    for name in ["", "%00", "a%0ab", "%20a", &long] {
        for path in ["/v1/explain", "/v1/holds"] {
            let (status, answer) = get(server.admin, &format!("{path}?tenant={name}")).await;
            assert_eq!(
                (status, &answer["error"]["field"]),
                (StatusCode::NOT_FOUND, &json!("tenant")),
                "{answer}"
            );
        }
    }
    let body = json!({"tenant": " a", "limit": "rpm", "amount": 1, "for_ms": 1_000});
    assert_eq!(post(server.admin, "/v1/overrides", &body).await.1["error"]["field"], "tenant");
}
