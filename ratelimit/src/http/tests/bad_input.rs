use super::*;

#[tokio::test]
async fn bad_input_names_the_field_and_never_its_content() {
    let server = in_memory().await;
    let secret = "sk, expected: sk-secret";
    for (field, value) in [
        ("id", json!(secret)),
        ("id", json!("A".repeat(32))),
        ("attempt", json!(3)),
        ("attempt", json!(0)),
        ("attempt", json!(256)),
        ("deadline_ms", json!(-1)),
        ("deadline_ms", Value::Null),
        ("key_hash", json!(secret)),
        ("key_hash", json!({"a": secret})),
        ("model", json!([secret])),
        ("prompt_tokens", json!(1.5)),
        ("prompt_tokens", json!(secret)),
        ("max_output_tokens", json!(secret)),
        ("max_output_tokens", json!(-5)),
        ("choices", json!(0)),
        ("choices", json!(1_u64 << 32)),
        ("stream", json!(secret)),
        ("model", Value::Null),
        ("models", json!(secret)),
        ("models", json!(["a", "b", "c", "d", "e", "f", "g", "h", "i"])),
        ("service_tier", json!([secret])),
    ] {
        let (status, answer) =
            post(server.api, "/v1/reserve", &with(reserve_body(), field, value.clone())).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{field} {value}");
        assert_eq!(answer["error"]["field"], field, "{value}");
        assert!(!answer.to_string().contains("secret"), "{answer}");
    }
    let mut nameless = with(reserve_body(), "models", json!(["gpt"]));
    for field in ["model", "prompt_tokens", "max_output_tokens"] {
        nameless.as_object_mut().unwrap().remove(field);
    }
    let nameless = with(nameless, "prompt_tokens", json!(0));
    let (status, answer) = post(server.api, "/v1/reserve", &nameless).await;
    assert_eq!((status, &answer["error"]["field"]), (StatusCode::BAD_REQUEST, &json!("model")), "{answer}");
    for field in ["id", "deadline_ms", "dialect", "endpoint", "prompt_tokens"] {
        let mut body = reserve_body();
        body.as_object_mut().unwrap().remove(field).unwrap();
        let (status, answer) = post(server.api, "/v1/reserve", &body).await;
        assert_eq!((status, &answer["error"]["field"]), (StatusCode::BAD_REQUEST, &json!(field)), "{answer}");
    }
    let item = json!({"id": ID, "outcome": "used", "sent": true, "age_ms": 0, "queued_ms": 0,
        "usage": {"input": 1}, "reserve": reserve_body()});
    for (field, value, named) in [
        ("outcome", json!(secret), "[0].outcome"),
        ("usage", Value::Null, "[0].usage"),
        ("usage", json!({"input": -1}), "[0].usage.input"),
        ("reserve", with(reserve_body(), "key_hash", json!(secret)), "[0].reserve.key_hash"),
        ("sent", json!(1), "[0].sent"),
    ] {
        let (status, answer) =
            post(server.api, "/v1/settle", &json!([with(item.clone(), field, value)])).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{field}");
        assert_eq!(answer["error"]["field"], named);
        assert!(!answer.to_string().contains("secret"), "{answer}");
    }
    let others = with(item.clone(), "reserve", with(reserve_body(), "id", json!("f".repeat(32))));
    let (status, answer) = post(server.api, "/v1/settle", &json!([others])).await;
    assert_eq!((status, &answer["error"]["field"]), (StatusCode::CONFLICT, &json!("[0].reserve.id")));
    let many = Value::Array(vec![item; 257]);
    assert_eq!(post(server.api, "/v1/settle", &many).await.0, StatusCode::BAD_REQUEST);
    for body in ["", "{", "[]", "nul", "{}x", "\"\\ud800\"", "[[[[[[[["] {
        let (status, answer) =
            send(server.api, false, request(Method::POST, "/v1/reserve", body.as_bytes().to_vec())).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body}");
        assert!(answer["error"]["message"].is_string());
    }
    let deep = "[".repeat(500_000);
    let (status, _) = send(server.api, true, request(Method::POST, "/v1/settle", deep)).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
}

/// A server whose whole state can be seen.
async fn seen() -> (Server, Arc<MemoryStore>) {
    let store = Arc::new(MemoryStore::new(Arc::new(SystemClock), Lifetimes::default()));
    let bounds = Bounds { body_bytes: 64 * 1024 * 1024, ..Bounds::default() };
    (start(Setup { store: store.clone(), bounds, ..Setup::default() }).await, store)
}

#[tokio::test]
async fn a_reserve_that_is_refused_as_input_changes_nothing() {
    let (server, store) = seen().await;
    post(server.api, "/v1/reserve", &reserve_body()).await;
    let before = store.dump();
    let odd = ["}{", "a\0b", "a\nb", "a\r\nb", " ", "\u{202e}"].map(str::to_owned);
    let odd: Vec<_> = odd.into_iter().chain([String::new(), "x".repeat(10_000), "}".repeat(64)]).collect();
    let fresh = || with(reserve_body(), "id", json!("e".repeat(32)));
    for field in ["id", "key_hash", "endpoint", "dialect"] {
        for value in &odd {
            let (status, answer) = post(server.api, "/v1/reserve", &with(fresh(), field, json!(value))).await;
            assert_eq!(status, StatusCode::BAD_REQUEST, "{field} {value:?}");
            assert_eq!(answer["error"]["field"], field, "{value:?}");
        }
    }
    let numbers = ["prompt_tokens", "max_output_tokens", "choices", "deadline_ms", "attempt"];
    for field in numbers {
        // -1, 1.5, 1e30, 2^64, text, a list.
        for value in ["-1", "1.5", "1e30", "18446744073709551616", "\"1\"", "[1]", "true"] {
            let body = with(fresh(), field, json!("HERE")).to_string().replace("\"HERE\"", value);
            let (status, answer) = send(server.api, false, request(Method::POST, "/v1/reserve", body)).await;
            assert_eq!(status, StatusCode::BAD_REQUEST, "{field} {value}");
            assert_eq!(answer["error"]["field"], field, "{value}");
        }
    }
    for field in ["id", "deadline_ms", "key_hash", "dialect", "endpoint", "prompt_tokens"] {
        let mut body = fresh();
        body.as_object_mut().unwrap().remove(field);
        let (status, answer) = post(server.api, "/v1/reserve", &body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "without {field}");
        assert!(answer["error"].to_string().contains(field), "{answer}");
    }
    for (field, value) in [
        ("identity", json!({"tenant": "t"})),
        ("identity", json!("t")),
        ("asserted", json!({"x-user": "u".repeat(2_000)})),
        ("asserted", (0..20).map(|n| (format!("x-{n}"), json!("v"))).collect()),
        ("asserted", json!(["u"])),
        ("ip", json!("192.0.2.1:80")),
        ("ip", json!("a}{b")),
    ] {
        let (status, answer) = post(server.api, "/v1/reserve", &with(fresh(), field, value.clone())).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{field} {value}");
        assert_eq!(answer["error"]["field"], field, "{value}");
    }
    // Given twice, a member could mean two things.
    let twice = fresh().to_string().replacen('{', "{\"prompt_tokens\":1,", 1);
    let (status, answer) = send(server.api, false, request(Method::POST, "/v1/reserve", twice)).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
    assert_eq!(store.dump(), before);
}

/// Amounts that are whole numbers and absurd are refused by the limits, and names of models are looked up:
/// answers, not errors. They change nothing either.
#[tokio::test]
async fn a_reserve_that_is_refused_as_a_request_changes_nothing() {
    let (server, store) = seen().await;
    let before = store.dump();
    for (field, value) in [
        ("prompt_tokens", json!(u64::MAX)),
        ("max_output_tokens", json!(u64::MAX)),
        ("choices", json!(u32::MAX)),
        ("model", json!("}{")),
        ("model", json!("a\0b\n")),
        ("model", json!("x".repeat(10_000))),
    ] {
        let (status, answer) = post(server.api, "/v1/reserve", &with(reserve_body(), field, value)).await;
        assert_eq!((status, &answer["decision"]), (StatusCode::OK, &json!("deny")), "{field}");
    }
    assert_eq!(store.dump(), before);
}

#[tokio::test]
async fn a_settle_batch_with_one_mistake_changes_nothing() {
    let (server, store) = seen().await;
    let (_, held) = post(server.api, "/v1/reserve", &reserve_body()).await;
    let before = store.dump();
    let good = json!({"id": ID, "account": held["account"], "outcome": "used", "sent": true,
        "usage": {"input": 1}, "age_ms": 0, "queued_ms": 0});
    let settle = |items: String| send(server.api, false, request(Method::POST, "/v1/settle", items));
    for (field, value, named) in [
        ("id", "\"}{\"", "[1].id"),
        ("outcome", "\"spent\"", "[1].outcome"),
        ("usage", "{\"output\": -1}", "[1].usage.output"),
        ("usage", "{\"output\": 0.5}", "[1].usage.output"),
        ("usage", "{\"cache_read\": 18446744073709551616}", "[1].usage.cache_read"),
        ("usage", "null", "[1].usage"),
        ("age_ms", "-1", "[1].age_ms"),
        ("queued_ms", "1e99", "[1].queued_ms"),
        ("account", "7", "[1].account"),
        ("reserve", "{}", "[1].reserve.id"),
    ] {
        let bad = with(good.clone(), field, json!("HERE")).to_string().replace("\"HERE\"", value);
        let (status, answer) = settle(format!("[{good},{bad}]")).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{field} {value}");
        assert_eq!(answer["error"]["field"], named, "{value}");
    }
    let many = |item: &str| format!("[{}]", vec![item; 100_000].join(","));
    let (status, answer) = settle(many(&good.to_string())).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(answer["error"]["message"].as_str().unwrap().contains("256"), "{answer}");
    let (status, answer) = settle(many("{}")).await;
    assert_eq!((status, &answer["error"]["field"]), (StatusCode::BAD_REQUEST, &json!("[0].id")), "{answer}");
    assert_eq!(store.dump(), before);
    // By default such a body is not even read.
    let narrow = in_memory().await;
    let body = many(&good.to_string());
    let (status, _) = send(narrow.api, true, request(Method::POST, "/v1/settle", body)).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    // A name of an account that is none belongs to nobody.
    let (status, answer) = settle(format!("[{}]", with(good, "account", json!("}{\0\n")))).await;
    assert_eq!((status, &answer["results"][0]["status"]), (StatusCode::OK, &json!("unknown")));
    assert_eq!(store.dump(), before);
}
