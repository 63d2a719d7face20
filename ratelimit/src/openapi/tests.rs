#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]
use axum::http::{Method, StatusCode};
use jsonschema::Validator;

use super::*;
use crate::http::tests::{ID, KEY, Server, get, in_memory, post, request, reserve_body, send, with};

/// A validator for a part of the document.
fn validator(part: &Value) -> Validator {
    let mut schema = part.clone();
    schema["components"] = DOCUMENT["components"].clone();
    jsonschema::validator_for(&schema).unwrap()
}

fn body_of(path: &str) -> Validator {
    validator(&DOCUMENT["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"])
}

fn answer_of(method: &str, path: &str, status: &str) -> Validator {
    let answer = &DOCUMENT["paths"][path][method]["responses"][status];
    validator(&answer["content"]["application/json"]["schema"])
}

fn valid(validator: &Validator, value: &Value) {
    let errors: Vec<_> = validator.iter_errors(value).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{value}: {errors:?}");
}

#[tokio::test]
async fn every_endpoint_is_described_and_every_description_is_served() {
    let described: Vec<_> = DOCUMENT["paths"]
        .as_object()
        .unwrap()
        .iter()
        .flat_map(|(path, item)| {
            let methods = item.as_object().unwrap().keys().filter(|key| *key != "servers");
            methods.map(move |method| format!("{method} {path}"))
        })
        .collect();
    let served = [
        "get /healthz",
        "get /metrics",
        "get /openapi.json",
        "get /readyz",
        "post /v1/balances/top-up",
        "post /v1/buckets/reset",
        "post /v1/corrections",
        "get /v1/explain",
        "post /v1/extend",
        "get /v1/holds",
        "post /v1/identify",
        "get /v1/models",
        "delete /v1/overrides",
        "get /v1/overrides",
        "post /v1/overrides",
        "post /v1/reserve",
        "post /v1/settle",
        "get /v1/version",
    ];
    assert_eq!(described, served);
    let server = in_memory().await;
    for endpoint in described {
        let (method, path) = endpoint.split_once(' ').unwrap();
        let to = match path {
            "/v1/models" | "/v1/identify" | "/v1/reserve" | "/v1/settle" | "/v1/extend" => server.api,
            _ => server.admin,
        };
        let method: Method = method.to_uppercase().parse().unwrap();
        let (status, _) = send(to, false, request(method, path, "")).await;
        assert!(
            !matches!(status, StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED),
            "{endpoint}: {status}"
        );
    }
}

#[tokio::test]
async fn bodies_and_answers_are_as_described() {
    let server = in_memory().await;
    let error = |method: &str, path: &str| answer_of(method, path, "default");
    let Server { api, admin, .. } = server;

    valid(&body_of("/v1/reserve"), &reserve_body());
    let (_, held) = post(api, "/v1/reserve", &reserve_body()).await;
    valid(&answer_of("post", "/v1/reserve", "200"), &held);
    let refused = post(api, "/v1/reserve", &with(reserve_body(), "model", json!("other"))).await.1;
    valid(&answer_of("post", "/v1/reserve", "200"), &refused);
    let bad = with(reserve_body(), "id", json!("0"));
    let (status, answer) = post(api, "/v1/reserve", &bad).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    valid(&error("post", "/v1/reserve"), &answer);

    for caller in [json!({"key_hash": KEY}), json!({"identity": {"tenant": "t"}})] {
        valid(&body_of("/v1/identify"), &caller);
        let (status, known) = post(api, "/v1/identify", &caller).await;
        assert_eq!(status, StatusCode::OK);
        valid(&answer_of("post", "/v1/identify", "200"), &known);
    }

    let items = json!([{"id": ID, "account": held["account"], "hold_output_tokens": 45, "lease": true}]);
    valid(&body_of("/v1/extend"), &items);
    let (status, extended) = post(api, "/v1/extend", &items).await;
    assert_eq!(status, StatusCode::OK);
    valid(&answer_of("post", "/v1/extend", "200"), &extended);

    let items = json!([
        {"id": ID, "account": held["account"], "outcome": "used", "sent": true, "usage": {"input": 1},
         "age_ms": 0, "queued_ms": 0},
        {"id": "f".repeat(32), "outcome": "released", "sent": false, "age_ms": 0, "queued_ms": 0,
         "reserve": with(reserve_body(), "id", json!("f".repeat(32)))},
    ]);
    valid(&body_of("/v1/settle"), &items);
    let (status, settled) = post(api, "/v1/settle", &items).await;
    assert_eq!(status, StatusCode::OK);
    valid(&answer_of("post", "/v1/settle", "200"), &settled);

    valid(&answer_of("get", "/v1/models", "200"), &get(api, "/v1/models").await.1);
    for path in ["/healthz", "/readyz", "/v1/version"] {
        valid(&answer_of("get", path, "200"), &get(admin, path).await.1);
    }
    // All that a query may have is described.
    let parameters = DOCUMENT["paths"]["/v1/explain"]["get"]["parameters"].as_array().unwrap();
    let names: Vec<_> = parameters.iter().map(|parameter| parameter["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["tenant", "model", "plan", "user", "endpoint", "ip"]);
    let everything = "tenant=t&model=gpt&plan=basic&user=ann&endpoint=embeddings&ip=192.0.2.1";
    assert_eq!(get(admin, &format!("/v1/explain?{everything}")).await.0, StatusCode::OK);
    let (status, explained) = get(admin, "/v1/explain?tenant=t&model=gpt").await;
    assert_eq!(status, StatusCode::OK);
    valid(&answer_of("get", "/v1/explain", "200"), &explained);
    let bucket = json!({"tenant": "t", "limit": "tpd", "model": "gpt"});
    for (path, body) in [
        ("/v1/buckets/reset", json!({"bucket": bucket})),
        ("/v1/corrections", json!({"bucket": bucket, "id": "x", "change": "charge", "amount": 1})),
        ("/v1/overrides", json!({"tenant": "t", "limit": "tpd", "amount": 5, "for_ms": 60_000})),
    ] {
        valid(&body_of(path), &body);
        let (status, answer) = post(admin, path, &body).await;
        assert_eq!(status, StatusCode::OK, "{path}: {answer}");
        valid(&answer_of("post", path, "200"), &answer);
    }
    for (path, query) in [("/v1/holds", "?tenant=t"), ("/v1/overrides", "")] {
        let (status, answer) = get(admin, &format!("{path}{query}")).await;
        assert_eq!(status, StatusCode::OK, "{path}: {answer}");
        valid(&answer_of("get", path, "200"), &answer);
    }
    let top_up = json!({"bucket": bucket, "grant_id": "g", "usd": "1.00"});
    valid(&body_of("/v1/balances/top-up"), &top_up);
    let (status, document) = get(admin, "/openapi.json").await;
    assert_eq!((status, &document), (StatusCode::OK, &*DOCUMENT));
}

/// The schemas say no where the service does.
#[test]
fn what_the_service_refuses_is_not_described() {
    let reserve = body_of("/v1/reserve");
    for (field, value) in [
        ("id", json!("A".repeat(32))),
        ("id", Value::Null),
        ("prompt_tokens", json!(-1)),
        ("prompt_tokens", json!(1.5)),
        ("deadline_ms", json!("100")),
        ("choices", json!(-1)),
        ("choices", json!(0)),
        ("choices", json!(1_u64 << 32)),
        ("attempt", json!(3)),
        ("attempt", json!(0)),
        ("deadline_ms", json!(1_u64 << 32)),
        ("key_hash", json!("A".repeat(64))),
        ("key_hash", json!("")),
        ("identity", json!({"tenant": "t"})),
        ("endpoint", json!("a b")),
        ("dialect", json!("x".repeat(65))),
        ("models", json!(["a", "b", "c", "d", "e", "f", "g", "h", "i"])),
        ("model", Value::Null),
    ] {
        assert!(!reserve.is_valid(&with(reserve_body(), field, value.clone())), "{field} {value}");
    }
    for field in ["id", "deadline_ms", "endpoint", "dialect", "prompt_tokens"] {
        let mut body = reserve_body();
        body.as_object_mut().unwrap().remove(field);
        assert!(!reserve.is_valid(&body), "without {field}");
    }
    let settle = body_of("/v1/settle");
    let item = json!({"id": ID, "outcome": "used", "sent": true, "age_ms": 0, "queued_ms": 0, "usage": {"output": 1}});
    assert!(settle.is_valid(&json!([item])));
    assert!(!settle.is_valid(&json!([with(item.clone(), "usage", Value::Null)])));
    assert!(settle.is_valid(&json!(vec![item.clone(); 256])));
    assert!(!settle.is_valid(&json!(vec![item.clone(); 257])));
    assert!(!settle.is_valid(&json!([with(item.clone(), "outcome", json!("spent"))])));
    assert!(!settle.is_valid(&item));
}

/// A rule that speaks of a field which is not there says nothing.
#[test]
fn every_rule_finds_what_it_speaks_of() {
    let mut schemas = DOCUMENT["components"]["schemas"].as_object().unwrap().clone();
    assert_eq!(strict::tighten(&mut schemas), [""; 0]);
    assert_eq!(Value::Object(schemas), DOCUMENT["components"]["schemas"]);
}

#[test]
fn nothing_is_referred_to_that_is_not_there() {
    fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(members) => {
                for (key, member) in members {
                    match member {
                        Value::String(text) if key == "$ref" => found.push(text),
                        _ => references(member, found),
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    references(&DOCUMENT, &mut found);
    assert!(found.len() > 10);
    for reference in found {
        assert!(DOCUMENT.pointer(reference.strip_prefix('#').unwrap()).is_some(), "{reference}");
    }
    assert!(DOCUMENT.pointer("/components/schemas/UsageEvent/properties/reserved_at").is_some());
}
