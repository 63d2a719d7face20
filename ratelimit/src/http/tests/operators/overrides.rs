//! Amounts for one tenant until some time.

use super::*;
use crate::clock::Clock;

#[tokio::test]
async fn an_override_holds_for_its_time() {
    let redis = RedisServer::start();
    for server in both(&redis).await {
        top_up(&server, "g", "1.00").await;
        let set = async |limit: &str, amount: u64| {
            let body = json!({"tenant": "t", "limit": limit, "amount": amount, "for_ms": 3_600_000});
            post(server.admin, "/v1/overrides", &body).await
        };
        let before = SystemClock.now_ms();
        let (status, one) = set("tpm", 60).await;
        assert_eq!((status, &one["amount"], &one["tenant"]), (StatusCode::OK, &json!(60), &json!("t")));
        let until = one["until"].as_u64().unwrap();
        assert!(until >= before + 3_600_000 && until <= SystemClock.now_ms() + 3_600_000);
        assert_eq!(set("slots", 1).await.0, StatusCode::OK);
        assert_eq!(set("bucket", 100).await.0, StatusCode::OK);
        let held = reserve(&server, 1).await;
        let limits = held["limits"].as_array().unwrap();
        let limit = |name: &str| limits.iter().find(|l| l["name"] == name).unwrap()["limit"].clone();
        assert_eq!((limit("tpm"), limit("slots"), limit("bucket")), (json!(60), json!(1), json!(100)));
        assert_eq!((limit("slide"), limit("month")), (json!(1_000), json!(1_000)));
        let refused = reserve(&server, 2).await;
        assert_eq!((&refused["decision"], &refused["limits"][0]["remaining"]), (&json!("deny"), &json!(10)));
        let (_, explained) = get(server.admin, "/v1/explain?tenant=t&model=gpt").await;
        assert_eq!(explained["limits"][0]["override_until"], until);
        assert_eq!(explained["limits"][1]["override_until"], Value::Null);
        // Nobody else's.
        let (_, other) = get(server.admin, "/v1/explain?tenant=two&plan=wide&model=gpt").await;
        let first = &other["limits"][0];
        assert_eq!((&first["limit"], &first["override_until"]), (&json!(1_000), &Value::Null));

        assert_eq!(set("tpm", 900).await.1["amount"], 900);
        let (_, listed) = get(server.admin, "/v1/overrides").await;
        assert_eq!(listed["overrides"].as_array().unwrap().len(), 3, "{listed}");
        let remove = async |limit: &str| {
            let path = format!("/v1/overrides?tenant=t&limit={limit}");
            send(server.admin, false, request(Method::DELETE, &path, "")).await
        };
        assert_eq!(remove("slots").await.1["overrides"].as_array().unwrap().len(), 2);
        assert_eq!(remove("slots").await.0, StatusCode::NOT_FOUND);
        assert_eq!(reserve(&server, 2).await["decision"], "allow");
        // Nothing at all.
        assert_eq!(set("tpm", 0).await.0, StatusCode::OK);
        let refused = reserve(&server, 3).await;
        assert_eq!(refused["reason"], "tpm_limit_exceeded");
        let retry_after_ms = refused["retry_after_ms"].as_u64().unwrap();
        assert!((3_590_000..=3_600_000).contains(&retry_after_ms), "{refused}");
    }
}

/// The store has them: another instance, and one that starts later, follow them.
#[tokio::test]
async fn an_override_is_everybodys() {
    let redis = RedisServer::start();
    let (one, two) =
        (on_redis_with(&redis, with_everything()).await, on_redis_with(&redis, with_everything()).await);
    let body = json!({"tenant": "t", "limit": "slide", "amount": 1, "for_ms": 3_600_000});
    assert_eq!(post(one.admin, "/v1/overrides", &body).await.0, StatusCode::OK);
    two.quota.refresh_overrides().await.unwrap();
    let later = on_redis_with(&redis, with_everything()).await;
    later.quota.refresh_overrides().await.unwrap();
    for server in [two, later] {
        let (_, explained) = get(server.admin, "/v1/explain?tenant=t&model=gpt").await;
        assert_eq!(explained["limits"][1]["limit"], 1, "{explained}");
    }
}
