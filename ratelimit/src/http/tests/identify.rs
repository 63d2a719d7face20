use super::*;

fn verified_policy() -> Policy {
    let text = format!(
        r#"
version: "8"
models: [{{name: gpt, match: ["gpt*"]}}]
plans: {{basic: {{models: ["*"]}}, other: {{models: ["*"]}}}}
verified_identities: {{accept: true}}
keys: [{{sha256: "{KEY}", tenant: t, plan: basic}}]
limits: [{{name: rpd, per: [tenant], count: attempts, algorithm: fixed_window, every: 366d, limit: 1}}]
"#
    );
    Policy::parse("p", &text).unwrap()
}

/// What identify says is what a reserve would say, for every kind of caller.
#[tokio::test]
async fn a_caller_is_known_where_a_reserve_would_not_refuse_who_it_is() {
    let callers = [
        (json!({"key_hash": KEY}), true, true),
        (json!({"key_hash": "b".repeat(64)}), false, false),
        (json!({"identity": {"tenant": "new", "plan": "basic"}}), false, true),
        (json!({"identity": {"tenant": "new", "user": "ann", "plan": "other"}}), false, true),
        (json!({"identity": {"tenant": "new"}}), false, false),
        (json!({"identity": {"tenant": "new", "plan": "gold"}}), false, false),
        (json!({"identity": {"tenant": "", "plan": "basic"}}), false, false),
        (json!({"identity": {"tenant": "t\n", "plan": "basic"}}), false, false),
        (json!({"identity": {"tenant": "x".repeat(129), "plan": "basic"}}), false, false),
        (json!({"identity": {"tenant": "t", "user": "", "plan": "basic"}}), false, false),
    ];
    for (policy, verified) in [(policy(), false), (verified_policy(), true)] {
        let server = start(Setup { policy, ..Setup::default() }).await;
        for (number, (caller, by_key, by_either)) in callers.iter().enumerate() {
            let expected = if verified { *by_either } else { *by_key };
            let (status, answer) = post(server.api, "/v1/identify", caller).await;
            let version = &server.quota.policy().version;
            assert_eq!(status, StatusCode::OK);
            assert_eq!(answer, json!({"known": expected, "policy_version": version}), "{caller}");
            let mut reserve = with(reserve_body(), "id", json!(format!("{number:032x}")));
            reserve.as_object_mut().unwrap().remove("key_hash");
            for (field, value) in caller.as_object().unwrap() {
                reserve[field] = value.clone();
            }
            let (_, answer) = post(server.api, "/v1/reserve", &reserve).await;
            let refused = matches!(answer["reason"].as_str(), Some("unknown_key" | "invalid_identity"));
            assert_eq!(refused, !expected, "{caller}: {answer}");
        }
    }
}

#[tokio::test]
async fn who_calls_is_said_in_one_way() {
    let server = in_memory().await;
    for (body, field) in [
        (json!({}), "key_hash"),
        (json!({"key_hash": ""}), "key_hash"),
        (json!({"key_hash": KEY, "identity": {"tenant": "t"}}), "identity"),
        (json!({"key_hash": "sk-secret"}), "key_hash"),
        (json!({"key_hash": "A".repeat(64)}), "key_hash"),
        (json!({"key_hash": 7}), "key_hash"),
        (json!({"identity": {}}), "identity.tenant"),
        (json!({"identity": "t"}), "identity"),
        (json!("k"), ""),
    ] {
        let (status, answer) = post(server.api, "/v1/identify", &body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body}");
        assert_eq!(answer["error"]["field"], field, "{body}");
        assert!(!answer.to_string().contains("secret"), "{answer}");
    }
    let (status, answer) = post(server.api, "/v1/identify", &json!({"key_hash": KEY, "later": 1})).await;
    assert_eq!((status, &answer["known"]), (StatusCode::OK, &json!(true)));
}

/// The token is asked for, asking is counted, and no limit counts it.
#[tokio::test]
async fn it_is_a_call_of_a_filter_that_no_limit_counts() {
    let setup = Setup { token: Some("s3cret"), policy: verified_policy(), ..Setup::default() };
    let server = start(setup).await;
    let ask = |token: Option<&str>| {
        let mut request = request(Method::POST, "/v1/identify", json!({"key_hash": KEY}).to_string());
        if let Some(token) = token {
            request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        }
        send(server.api, true, request)
    };
    assert_eq!(ask(None).await.0, StatusCode::UNAUTHORIZED);
    for _ in 0..3 {
        assert_eq!(ask(Some("s3cret")).await.0, StatusCode::OK);
    }
    assert!(server.metrics().contains("identifications_total{known=\"true\"} 3\n"));
    // One attempt a year, and it is still there.
    let explained = get(server.admin, "/v1/explain?tenant=t&plan=basic").await.1;
    assert_eq!(explained["limits"][0]["used"], 0, "{explained}");
}
