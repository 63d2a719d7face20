//! More output for what is under way.

use super::*;

fn item(account: &Value, total: u64) -> Value {
    json!({"id": ID, "account": account, "hold_output_tokens": total})
}

async fn used(server: &Server) -> Value {
    get(server.admin, "/v1/explain?tenant=t&model=gpt").await.1["limits"][1]["used"].clone()
}

/// Over both protocols and both stores: what is held grows, a repeat changes nothing, what does not fit leaves
/// all as it is, and the settle gives back what was not used.
#[tokio::test]
async fn a_hold_grows_and_is_settled() {
    let redis = RedisServer::start();
    for (server, http2) in [(in_memory().await, false), (on_redis(&redis).await, true)] {
        let call = |path, body: Value| {
            let request = request(Method::POST, path, body.to_string());
            async { send(server.api, http2, request).await }
        };
        let (_, held) = call("/v1/reserve", reserve_body()).await;
        assert_eq!((&held["decision"], used(&server).await), (&json!("allow"), json!(50)));
        let account = &held["account"];
        let items = json!([
            item(account, 60),
            item(account, 60),
            item(account, 91),
            {"id": "f".repeat(32), "account": account, "lease": true},
            {"id": ID, "account": "nobody's", "lease": true},
        ]);
        let (status, answer) = call("/v1/extend", items).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        assert_eq!(answer["policy_version"], held["policy_version"]);
        let results: Vec<_> = answer["results"]
            .as_array()
            .unwrap()
            .iter()
            .map(|result| (result["status"].as_str().unwrap(), result["hold_output_tokens"].as_u64()))
            .collect();
        let expected =
            [("allow", Some(60)), ("allow", Some(60)), ("deny", None), ("unknown", None), ("unknown", None)];
        assert_eq!(results, expected);
        assert_eq!(answer["results"][3]["id"], "f".repeat(32));
        assert_eq!(used(&server).await, 70);
        let settle = json!([{"id": ID, "account": account, "outcome": "used", "sent": true,
            "usage": {"input": 10, "output": 52}, "age_ms": 0, "queued_ms": 0}]);
        assert_eq!(call("/v1/settle", settle).await.1["results"][0]["status"], "settled");
        assert_eq!(used(&server).await, 62);
        // What is closed stays as it is.
        let (_, closed) = call("/v1/extend", json!([item(account, 80)])).await;
        assert_eq!((&closed["results"][0]["status"], used(&server).await), (&json!("unknown"), json!(62)));
    }
}

#[tokio::test]
async fn an_extend_batch_with_one_mistake_changes_nothing() {
    let store = Arc::new(MemoryStore::new(Arc::new(SystemClock), Lifetimes::default()));
    let server = start(Setup { store: store.clone(), ..Setup::default() }).await;
    let (_, held) = post(server.api, "/v1/reserve", &reserve_body()).await;
    let before = store.dump();
    let good = item(&held["account"], 60);
    for (field, value, named) in [
        ("id", "\"sk-secret\"", "[1].id"),
        ("id", "null", "[1].id"),
        ("account", "7", "[1].account"),
        ("account", "null", "[1].account"),
        ("hold_output_tokens", "-1", "[1].hold_output_tokens"),
        ("hold_output_tokens", "0.5", "[1].hold_output_tokens"),
        ("hold_output_tokens", "18446744073709551616", "[1].hold_output_tokens"),
        ("hold_output_tokens", "\"sk-secret\"", "[1].hold_output_tokens"),
        ("hold_output_tokens", "null", "[1]"),
        ("lease", "1", "[1].lease"),
    ] {
        let bad = with(good.clone(), field, json!("HERE")).to_string().replace("\"HERE\"", value);
        let batch = request(Method::POST, "/v1/extend", format!("[{good},{bad}]"));
        let (status, answer) = send(server.api, false, batch).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{field} {value}");
        assert_eq!(answer["error"]["field"], named, "{field} {value}");
        assert!(!answer.to_string().contains("secret"), "{answer}");
    }
    for field in ["id", "account"] {
        let mut bad = good.clone();
        bad.as_object_mut().unwrap().remove(field);
        let (status, answer) = post(server.api, "/v1/extend", &json!([good, bad])).await;
        assert_eq!(
            (status, &answer["error"]["field"]),
            (StatusCode::BAD_REQUEST, &json!(format!("[1].{field}")))
        );
    }
    let (status, answer) = post(server.api, "/v1/extend", &json!(vec![good.clone(); 257])).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(answer["error"]["message"].as_str().unwrap().contains("256"), "{answer}");
    assert_eq!(post(server.api, "/v1/extend", &good).await.0, StatusCode::BAD_REQUEST);
    let large = vec![b' '; Bounds::default().body_bytes + 1];
    let (status, _) = send(server.api, false, request(Method::POST, "/v1/extend", large)).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(store.dump(), before);
    // An amount that nobody can hold is a refusal.
    let (status, answer) = post(server.api, "/v1/extend", &json!([item(&held["account"], u64::MAX)])).await;
    assert_eq!((status, &answer["results"][0]["status"]), (StatusCode::OK, &json!("deny")));
    assert_eq!(store.dump(), before);
}

/// The filter sends the batch again.
#[tokio::test]
async fn an_extend_without_a_store_is_to_come_again() {
    let redis = RedisServer::start();
    let server = on_redis(&redis).await;
    let (_, held) = post(server.api, "/v1/reserve", &reserve_body()).await;
    redis.signal("STOP");
    let items = json!([item(&held["account"], 60)]);
    assert_eq!(post(server.api, "/v1/extend", &items).await.0, StatusCode::SERVICE_UNAVAILABLE);
    redis.signal("CONT");
    crate::store::tests::eventually("the extend", || async {
        let (status, answer) = post(server.api, "/v1/extend", &items).await;
        status == StatusCode::OK && answer["results"][0]["status"] == "allow"
    })
    .await;
    assert_eq!(used(&server).await, 70);
}
