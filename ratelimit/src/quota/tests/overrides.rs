//! Overrides and the time.

use super::service::*;
use super::*;

/// In force to the last millisecond, and forgotten long afterwards.
#[tokio::test]
async fn an_override_ends() {
    for running in Running::both(POLICY).await {
        let set = |limit: &str, for_ms| OverrideRequest {
            tenant: "t".to_owned(),
            limit: limit.to_owned(),
            amount: Some(1),
            usd: None,
            for_ms,
        };
        let limit_of = async |name: &str| {
            let explained = running.quota.explain(&asked("t", Some("big"), None)).await.unwrap();
            explained.limits.into_iter().find(|row| row.name == name).unwrap().limit
        };
        running.quota.set_override(&set("rpm", 60_000)).await.unwrap();
        running.clock.set(T0 + 59_999);
        assert_eq!(limit_of("rpm").await, 1);
        running.clock.set(T0 + 60_000);
        assert_eq!(limit_of("rpm").await, 3);
        assert!(running.quota.list_overrides().await.unwrap().overrides.is_empty());
        let notes = async || running.quota.store.notes(STORE_TIME).await.unwrap().len();
        running.quota.set_override(&set("tpm", 60_000)).await.unwrap();
        assert_eq!(notes().await, 2);
        running.clock.set(T0 + 2 * 3_600_000);
        running.quota.set_override(&set("day", 60_000)).await.unwrap();
        assert_eq!(notes().await, 1);
    }
}
