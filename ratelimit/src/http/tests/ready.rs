use super::*;

/// The reason is in the answer's first words, and nothing of the store's own.
#[tokio::test]
async fn says_why_it_is_not_ready() {
    let redis = RedisServer::start();
    let server = on_redis(&redis).await;
    let ready = async || get(server.admin, "/readyz").await;
    assert_eq!(ready().await.0, StatusCode::OK);
    redis.command::<()>(&["REPLICAOF", "127.0.0.1", "1"]);
    crate::store::tests::eventually("the last answer to be over", || async {
        ready().await.0 == StatusCode::SERVICE_UNAVAILABLE
    })
    .await;
    let (_, answer) = ready().await;
    let message = answer["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.starts_with("replica: ") && !message.contains("127.0.0.1"), "{message}");
    let body = with(reserve_body(), "id", json!("e".repeat(32)));
    assert_eq!(post(server.api, "/v1/reserve", &body).await.1["reason"], "quota_unavailable");
    redis.command::<()>(&["REPLICAOF", "NO", "ONE"]);
    crate::store::tests::eventually("the master", || async { ready().await.0 == StatusCode::OK }).await;
    assert_eq!(post(server.api, "/v1/reserve", &reserve_body()).await.1["decision"], "allow");
}

/// However many ask, Redis is asked once a second.
#[tokio::test]
async fn many_probes_are_one_question() {
    let redis = RedisServer::start();
    let server = on_redis(&redis).await;
    let calls = || {
        let stats: String = redis.command(&["INFO", "commandstats"]);
        let line = stats.lines().find(|line| line.starts_with("cmdstat_evalsha:")).unwrap();
        let (_, calls) = line.split_once("calls=").unwrap();
        calls.split(',').next().unwrap().parse::<u64>().unwrap()
    };
    let (before, begin) = (calls(), std::time::Instant::now());
    let probes = (0..200).map(|_| get(server.admin, "/readyz"));
    for (status, _) in futures_util::future::join_all(probes).await {
        assert_eq!(status, StatusCode::OK);
    }
    let asked = calls() - before;
    assert!(asked >= 1 && asked <= 2 + begin.elapsed().as_secs(), "{asked}");
}
