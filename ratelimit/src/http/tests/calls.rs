use super::*;

#[tokio::test]
async fn the_whole_way_over_both_protocols() {
    for http2 in [false, true] {
        let server = in_memory().await;
        let send =
            |method, path, body: Value| send(server.api, http2, request(method, path, body.to_string()));
        let (status, models) = send(Method::GET, "/v1/models", Value::Null).await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(models["models"][0]["name"], "gpt");
        assert_eq!(models["models"][0]["match"][0], "gpt*");

        let (status, held) = send(Method::POST, "/v1/reserve", reserve_body()).await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(held["decision"], "allow");
        assert_eq!(held["policy_version"], models["policy_version"]);
        assert_eq!(held["limits"][1]["remaining"], 50);
        let (_, again) = send(Method::POST, "/v1/reserve", with(reserve_body(), "new_field", json!(1))).await;
        assert_eq!((&again["decision"], &again["account"]), (&held["decision"], &held["account"]));

        let items = json!([
            {"id": ID, "account": held["account"], "outcome": "used", "sent": true,
             "usage": {"input": 10, "output": 3, "reasoning": 2, "cache_read": 1}, "age_ms": 5, "queued_ms": 0},
            {"id": "f".repeat(32), "account": held["account"], "outcome": "released", "sent": false,
             "age_ms": 5, "queued_ms": 0},
        ]);
        let (status, settled) = send(Method::POST, "/v1/settle", items).await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(settled["results"][0], json!({"id": ID, "status": "settled"}));
        assert_eq!(settled["results"][1]["status"], "unknown");
        let (_, gone) = send(Method::POST, "/v1/reserve", reserve_body()).await;
        assert_eq!(gone["decision"], "gone");

        let (status, explained) = get(server.admin, "/v1/explain?tenant=t&model=gpt").await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(explained["limits"][0]["used"], 1);
        assert_eq!(explained["limits"][1]["used"], 16);
        assert_eq!(explained["open_holds"], 0);
        assert_eq!(explained["version"], crate::VERSION);
    }
}

#[tokio::test]
async fn refusals_are_answers() {
    let server = in_memory().await;
    for (field, value, reason) in [
        ("key_hash", json!("b".repeat(64)), "unknown_key"),
        ("model", json!("claude"), "model_not_found"),
        ("max_output_tokens", json!(500), "request_exceeds_limit"),
    ] {
        let (status, answer) = post(server.api, "/v1/reserve", &with(reserve_body(), field, value)).await;
        assert_eq!((status, &answer["decision"]), (StatusCode::OK, &json!("deny")));
        assert_eq!(answer["reason"], reason);
        assert_eq!(answer["policy_version"].as_str().unwrap().split('+').next(), Some("7"));
    }
    // An endpoint without a model.
    let mut listed = reserve_body();
    for field in ["model", "max_output_tokens"] {
        listed.as_object_mut().unwrap().remove(field);
    }
    let (_, answer) = post(server.api, "/v1/reserve", &with(listed, "prompt_tokens", json!(0))).await;
    assert_eq!(answer["decision"], "allow");
    assert_eq!(answer["limits"].as_array().unwrap().len(), 1);
    assert_eq!(answer["limits"][0]["scope"]["model"], "-");
}

#[tokio::test]
async fn other_calls_are_refused_in_json() {
    let server = in_memory().await;
    for (method, path, body, status) in [
        (Method::GET, "/v1/other", 0, StatusCode::NOT_FOUND),
        (Method::GET, "/v1/reserve", 0, StatusCode::METHOD_NOT_ALLOWED),
        (Method::POST, "/v1/models", 0, StatusCode::METHOD_NOT_ALLOWED),
        (Method::POST, "/v1/reserve", Bounds::default().body_bytes + 1, StatusCode::PAYLOAD_TOO_LARGE),
        (Method::GET, "/v1/explain?tenant=t", 0, StatusCode::NOT_FOUND),
    ] {
        for http2 in [false, true] {
            let request = request(method.clone(), path, vec![b' '; body]);
            let (answered, answer) = send(server.api, http2, request).await;
            assert_eq!(answered, status, "{method} {path}");
            assert!(answer["error"]["message"].is_string(), "{answer}");
        }
    }
    for (path, status) in [
        ("/healthz", StatusCode::OK),
        ("/readyz", StatusCode::OK),
        ("/v1/version", StatusCode::OK),
        ("/v1/explain", StatusCode::BAD_REQUEST),
        ("/v1/explain?tenant=nobody", StatusCode::NOT_FOUND),
        ("/v1/explain?tenant=t&tenant=u", StatusCode::BAD_REQUEST),
        ("/v1/models", StatusCode::NOT_FOUND),
    ] {
        assert_eq!(get(server.admin, path).await.0, status, "{path}");
    }
}
