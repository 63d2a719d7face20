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
    ] {
        let (status, answer) =
            post(server.api, "/v1/reserve", &with(reserve_body(), field, value.clone())).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{field} {value}");
        assert_eq!(answer["error"]["field"], field, "{value}");
        assert!(!answer.to_string().contains("secret"), "{answer}");
    }
    let item = json!({"id": ID, "outcome": "used", "sent": true, "age_ms": 0, "queued_ms": 0,
        "usage": {"input": 1}, "reserve": reserve_body()});
    for (field, value, named) in [
        ("outcome", json!(secret), "[0].outcome"),
        ("usage", Value::Null, "[0].usage"),
        ("usage", json!({"input": -1}), "[0].usage.input"),
        ("reserve", with(reserve_body(), "id", json!("f".repeat(32))), "[0].reserve.id"),
        ("reserve", with(reserve_body(), "key_hash", json!(secret)), "[0].reserve.key_hash"),
        ("sent", json!(1), "[0].sent"),
    ] {
        let (status, answer) =
            post(server.api, "/v1/settle", &json!([with(item.clone(), field, value)])).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{field}");
        assert_eq!(answer["error"]["field"], named);
        assert!(!answer.to_string().contains("secret"), "{answer}");
    }
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
