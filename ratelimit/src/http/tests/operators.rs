//! What operators change by hand, over both stores.

use super::*;

mod mistakes;
mod overrides;

const OTHER_KEY: &str = "100000000000000000000000000000000000000000000000000000000000000b";

fn with_everything() -> Policy {
    let text = format!(
        r#"
version: "7"
models:
  - {{name: gpt, match: ["gpt*"], max_output_tokens: 500, price_usd_per_million: {{input: "1.00", output: "1.00"}}}}
plans: {{basic: {{models: ["*"]}}, wide: {{models: ["*"]}}}}
keys:
  - {{sha256: "{KEY}", tenant: t, plan: basic}}
  - {{sha256: "{OTHER_KEY}", tenant: t, plan: basic}}
  - {{sha256: "{:0>64}", tenant: two, plan: basic}}
  - {{sha256: "{:0>64}", tenant: two, plan: wide}}
limits:
  - {{name: tpm, per: [tenant, model], count: tokens, algorithm: fixed_window, every: 366d, limit: 1000}}
  - {{name: slide, per: [tenant], count: tokens, algorithm: sliding_window, every: 1h, limit: 1000}}
  - {{name: bucket, per: [key], count: tokens, algorithm: token_bucket, refill: {{amount: 1, every: 24h}}, capacity: 1000}}
  - {{name: month, per: [tenant, user], count: tokens, algorithm: fixed_window, calendar: month, time_zone: UTC, limit: 1000}}
  - {{name: slots, per: [tenant], algorithm: concurrency, lease: 1h, limit: 2}}
  - {{name: prepaid, per: [tenant], count: cost, algorithm: balance}}
"#,
        'c', 'd'
    );
    Policy::parse("p", &text).unwrap()
}

async fn both(redis: &RedisServer) -> [Server; 2] {
    let memory = start(Setup { policy: with_everything(), ..Setup::default() }).await;
    [memory, on_redis_with(redis, with_everything()).await]
}

fn bucket(limit: &str) -> Value {
    let mut bucket = json!({"tenant": "t", "limit": limit});
    match limit {
        "tpm" => bucket["model"] = json!("gpt"),
        "bucket" | "month" => bucket["key"] = json!(&KEY[..8]),
        _ => {}
    }
    bucket
}

async fn top_up(server: &Server, grant_id: &str, usd: &str) -> (StatusCode, Value) {
    let body = json!({"bucket": bucket("prepaid"), "grant_id": grant_id, "usd": usd});
    post(server.admin, "/v1/balances/top-up", &body).await
}

async fn reserve(server: &Server, number: u32) -> Value {
    let body = with(reserve_body(), "id", json!(format!("{number:032x}")));
    post(server.api, "/v1/reserve", &body).await.1
}

/// What a limit counts for the first key of the tenant.
async fn used(server: &Server, limit: &str) -> u64 {
    let (_, explained) = get(server.admin, "/v1/explain?tenant=t&model=gpt").await;
    let rows = explained["limits"].as_array().unwrap();
    rows.iter().find(|row| row["name"] == limit).unwrap()["used"].as_u64().unwrap()
}

#[tokio::test]
async fn a_balance_is_topped_up_once_per_grant() {
    let redis = RedisServer::start();
    for server in both(&redis).await {
        assert_eq!(reserve(&server, 1).await["reason"], "budget_exceeded");
        let first = json!({"already": false, "granted": 60_000, "spent": 0});
        assert_eq!(top_up(&server, "invoice 7", "0.00006").await, (StatusCode::OK, first));
        assert_eq!(reserve(&server, 2).await["decision"], "allow");
        let again = json!({"already": true, "granted": 60_000, "spent": 50_000});
        assert_eq!(top_up(&server, "invoice 7", "0.00006").await, (StatusCode::OK, again));
        let (status, conflict) = top_up(&server, "invoice 7", "0.00007").await;
        assert_eq!((status, &conflict["error"]["field"]), (StatusCode::CONFLICT, &json!("grant_id")));
        assert_eq!(reserve(&server, 3).await["reason"], "budget_exceeded");
        assert_eq!(top_up(&server, "invoice 8", "0.0001").await.1["granted"], 160_000);
        assert_eq!(reserve(&server, 4).await["decision"], "allow");
        let (status, _) = top_up(&server, "invoice 9", "4503599.627370496").await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        let body = json!({"bucket": bucket("tpm"), "grant_id": "g", "amount": 5});
        let (status, answer) = post(server.admin, "/v1/balances/top-up", &body).await;
        assert_eq!((status, &answer["error"]["field"]), (StatusCode::BAD_REQUEST, &json!("bucket.limit")));
    }
}

#[tokio::test]
async fn a_bucket_is_corrected_once_per_id() {
    let redis = RedisServer::start();
    for server in both(&redis).await {
        top_up(&server, "g", "1.00").await;
        assert_eq!(reserve(&server, 1).await["decision"], "allow");
        for limit in ["tpm", "slide", "bucket", "month"] {
            let correct = async |id: &str, change: &str, amount: u64| {
                let body = json!({"bucket": bucket(limit), "id": id, "change": change, "amount": amount});
                post(server.admin, "/v1/corrections", &body).await
            };
            let id = |number: u32| format!("{limit} {number}");
            assert_eq!(used(&server, limit).await, 50, "{limit}");
            let (status, answer) = correct(&id(1), "give_back", 30).await;
            assert_eq!((status, &answer["already"]), (StatusCode::OK, &json!(false)), "{limit}: {answer}");
            assert_eq!((&answer["used"], &answer["remaining"]), (&json!(20), &json!(980)), "{limit}");
            let (_, again) = correct(&id(1), "give_back", 30).await;
            assert_eq!((&again["already"], &again["used"]), (&json!(true), &json!(20)), "{limit}");
            for (change, amount) in [("give_back", 31), ("charge", 30)] {
                let (status, answer) = correct(&id(1), change, amount).await;
                assert_eq!((status, &answer["error"]["field"]), (StatusCode::CONFLICT, &json!("id")));
            }
            // In full, above the limit too; and never below nothing.
            assert_eq!(correct(&id(2), "charge", 1_480).await.1["used"], 1_500, "{limit}");
            assert_eq!(correct(&id(3), "give_back", 5_000).await.1["used"], 0, "{limit}");
            assert_eq!(used(&server, limit).await, 0, "{limit}");
        }
        // The other buckets are as they were.
        assert_eq!((used(&server, "prepaid").await, used(&server, "slots").await), (50_000, 1));
        let body = json!({"bucket": bucket("prepaid"), "id": "p", "change": "give_back", "usd": "0.00002"});
        assert_eq!(post(server.admin, "/v1/corrections", &body).await.1["used"], 30_000);
        let body = json!({"bucket": bucket("slots"), "id": "s", "change": "give_back", "amount": 1});
        let (status, answer) = post(server.admin, "/v1/corrections", &body).await;
        assert_eq!((status, &answer["error"]["field"]), (StatusCode::BAD_REQUEST, &json!("bucket.limit")));
    }
}

#[tokio::test]
async fn a_bucket_is_reset_and_open_holds_are_listed() {
    let redis = RedisServer::start();
    for server in both(&redis).await {
        top_up(&server, "g", "1.00").await;
        let empty = json!({"total": 0, "holds": []});
        assert_eq!(get(server.admin, "/v1/holds?tenant=t").await, (StatusCode::OK, empty.clone()));
        for number in [1, 2] {
            assert_eq!(reserve(&server, number).await["decision"], "allow");
        }
        assert_eq!(reserve(&server, 3).await["reason"], "concurrency_limit_exceeded");
        let (_, listed) = get(server.admin, "/v1/holds?tenant=t").await;
        assert_eq!((&listed["total"], listed["holds"].as_array().unwrap().len()), (&json!(2), 2));
        let mut ids: Vec<_> = listed["holds"].as_array().unwrap().iter().map(|h| h["id"].clone()).collect();
        ids.sort_by_key(|id| id.as_str().map(str::to_owned));
        assert_eq!(ids, [json!(format!("{:032x}", 1)), json!(format!("{:032x}", 2))]);
        let first = &listed["holds"][0];
        assert_eq!((&first["model"], &first["tokens"]), (&json!("gpt"), &json!(50)));
        assert!(first["age_ms"].as_u64().unwrap() < 600_000, "{first}");
        let (_, one) = get(server.admin, "/v1/holds?tenant=t&most=1").await;
        assert_eq!((&one["total"], one["holds"].as_array().unwrap().len()), (&json!(2), 1));
        assert_eq!(get(server.admin, "/v1/holds?tenant=two").await.1, empty);
        for (query, status) in [
            ("", StatusCode::BAD_REQUEST),
            ("?tenant=nobody", StatusCode::NOT_FOUND),
            ("?tenant=t&most=0", StatusCode::BAD_REQUEST),
            ("?tenant=t&most=1001", StatusCode::BAD_REQUEST),
            ("?tenant=t&most=many", StatusCode::BAD_REQUEST),
        ] {
            assert_eq!(get(server.admin, &format!("/v1/holds{query}")).await.0, status, "{query}");
        }

        for limit in ["slots", "tpm", "slide", "bucket", "month"] {
            let reset = async || {
                let body = json!({"bucket": bucket(limit)});
                post(server.admin, "/v1/buckets/reset", &body).await
            };
            assert_eq!(reset().await, (StatusCode::OK, json!({"existed": true})), "{limit}");
            assert_eq!(reset().await, (StatusCode::OK, json!({"existed": false})), "{limit}");
            assert_eq!(used(&server, limit).await, 0, "{limit}");
        }
        assert_eq!(reserve(&server, 4).await["decision"], "allow");
        let body = json!({"bucket": bucket("prepaid")});
        let (status, answer) = post(server.admin, "/v1/buckets/reset", &body).await;
        assert_eq!((status, &answer["error"]["field"]), (StatusCode::BAD_REQUEST, &json!("bucket.limit")));
    }
}

#[tokio::test]
async fn changes_need_the_operators_token() {
    let setup = Setup {
        policy: with_everything(),
        token: Some("filters"),
        admin_token: Some("operators"),
        ..Setup::default()
    };
    let server = start(setup).await;
    let body = json!({"bucket": bucket("slide")});
    for (token, status) in [
        (None, StatusCode::UNAUTHORIZED),
        (Some("filters"), StatusCode::UNAUTHORIZED),
        (Some("operators"), StatusCode::OK),
    ] {
        let mut request = request(Method::POST, "/v1/buckets/reset", body.to_string());
        if let Some(token) = token {
            request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        }
        assert_eq!(send(server.admin, false, request).await.0, status, "{token:?}");
    }
}

#[tokio::test]
async fn without_a_store_nothing_is_changed() {
    let redis = RedisServer::start();
    let server = on_redis_with(&redis, with_everything()).await;
    redis.signal("STOP");
    assert_eq!(top_up(&server, "g", "1.00").await.0, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(get(server.admin, "/v1/holds?tenant=t").await.0, StatusCode::SERVICE_UNAVAILABLE);
    redis.signal("CONT");
    // Whether the first call took effect after all or not: in the end there is one grant.
    crate::store::tests::eventually("the top-up", || async {
        top_up(&server, "g", "1.00").await.0 == StatusCode::OK
    })
    .await;
    assert_eq!(top_up(&server, "g", "1.00").await.1["granted"], 1_000_000_000);
}
