use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use super::*;

/// A Redis that does not answer: refused within the filter's deadline, settles are to come again, and the
/// hold that is made when it wakes up is closed.
#[tokio::test]
async fn a_redis_that_hangs() {
    let redis = RedisServer::start();
    let server = on_redis(&redis).await;
    let body = with(reserve_body(), "deadline_ms", json!(100));
    let (_, held) = post(server.api, "/v1/reserve", &with(body.clone(), "id", json!("f".repeat(32)))).await;
    assert_eq!(held["decision"], "allow");

    redis.signal("STOP");
    let begin = Instant::now();
    let (status, refused) = post(server.api, "/v1/reserve", &body).await;
    // 80 ms and whatever a busy machine adds.
    assert!(begin.elapsed().as_millis() < 2_000, "{:?}", begin.elapsed());
    assert_eq!((status, &refused["reason"]), (StatusCode::OK, &json!("quota_unavailable")));
    let settle = json!([{"id": "f".repeat(32), "account": held["account"], "outcome": "used", "sent": true,
        "usage": {"output": 3}, "age_ms": 5, "queued_ms": 0}]);
    assert_eq!(post(server.api, "/v1/settle", &settle).await.0, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(get(server.admin, "/readyz").await.0, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(get(server.admin, "/healthz").await.0, StatusCode::OK);

    redis.signal("CONT");
    crate::store::tests::eventually("the settle", || async {
        post(server.api, "/v1/settle", &settle).await.0 == StatusCode::OK
    })
    .await;
    crate::store::tests::eventually("the release", || async {
        let (_, explained) = get(server.admin, "/v1/explain?tenant=t&model=gpt").await;
        explained["open_holds"] == 0
            && explained["limits"][0]["used"] == 1
            && explained["limits"][1]["used"] == 3
    })
    .await;
    // The id stays closed.
    let (_, gone) = post(server.api, "/v1/reserve", &with(body, "deadline_ms", json!(5_000))).await;
    assert_eq!(gone["decision"], "gone");
}

/// The connection breaks and comes back on its own.
#[tokio::test]
async fn a_redis_that_restarts() {
    let redis = RedisServer::start();
    let server = on_redis(&redis).await;
    assert_eq!(post(server.api, "/v1/reserve", &reserve_body()).await.1["decision"], "allow");
    redis.command::<()>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    redis.command::<()>(&["SCRIPT", "FLUSH"]);
    // A new request each time: one that failed is closed by its release.
    let calls = AtomicU32::new(0);
    crate::store::tests::eventually("the connection", || async {
        let id = format!("{:032x}", calls.fetch_add(1, Ordering::SeqCst));
        let body = with(with(reserve_body(), "id", json!(id)), "max_output_tokens", json!(1));
        post(server.api, "/v1/reserve", &body).await.1["decision"] == "allow"
    })
    .await;
}
