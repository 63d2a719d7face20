//! Every kind of limit through the service, over both stores.

use super::service::*;
use super::*;

fn policy(limits: &str) -> String {
    format!(
        r#"
version: "1"
models: [{{name: big, match: ["big*"], max_output_tokens: 1000, price_usd_per_million: {{input: "1.00", output: "1.00"}}}}]
plans: {{basic: {{models: ["*"]}}, tight: {{models: ["*"], output: {{when_tight: clamp, min_tokens: 5}}}}}}
keys:
  - {{sha256: "{}", tenant: t, plan: basic}}
  - {{sha256: "{}", tenant: two, plan: basic}}
  - {{sha256: "{}", tenant: tight, plan: tight}}
limits:
{limits}
"#,
        key('a'),
        key('b'),
        key('c')
    )
}

fn by(digit: char, number: u8, prompt_tokens: u64, output: u64) -> ReserveRequest {
    ReserveRequest { key_hash: key(digit), ..request(number, prompt_tokens, Some(output)) }
}

/// Two tenants, one bucket: holds, extensions, refunds, excess and bookings of both meet in it.
#[tokio::test]
async fn two_tenants_share_a_bucket() {
    let shared = policy(
        "  - {name: all, per: [], shared: true, count: tokens, algorithm: fixed_window, every: 1h, limit: 100}",
    );
    let (of_t, of_two) = (asked("t", Some("big"), None), asked("two", Some("big"), None));
    for running in Running::both(&shared).await {
        let used = async |expected: u64| {
            assert_eq!(running.used(&of_t).await, uses(&[("all", expected)]));
            assert_eq!(running.used(&of_two).await, uses(&[("all", expected)]));
        };
        let t = running.reserve(&by('a', 1, 10, 30)).await;
        let two = running.reserve(&by('b', 2, 10, 40)).await;
        assert_eq!((t.decision, two.decision), (Decision::Allow, Decision::Allow));
        assert_ne!(t.account, two.account);
        used(90).await;
        let refused = running.reserve(&by('a', 3, 0, 11)).await;
        assert_eq!((refused.decision, limit(&refused, "all").remaining), (Decision::Deny, 10));
        assert!(limit(&refused, "all").scope.is_empty());
        let extend = |number: u8, account: &str, total| ExtendItem {
            id: ReservationId::from_bytes([number; 16]),
            account: account.to_owned(),
            hold_output_tokens: Some(total),
            lease: false,
        };
        let items = [extend(1, &t.account, 35), extend(2, &two.account, 46), extend(2, &t.account, 41)];
        let answer = running.quota.extend(&items).await.unwrap();
        let statuses: Vec<_> = answer.results.iter().map(|result| result.status).collect();
        assert_eq!(statuses, [ExtendStatus::Allow, ExtendStatus::Deny, ExtendStatus::Unknown]);
        used(95).await;
        assert_eq!(running.settle(usage_of(1, &t.account, 10, 5)).await, SettleStatus::Settled);
        used(65).await;
        // The other tenant has what was given back.
        let again = running.reserve(&by('b', 4, 5, 30)).await;
        assert_eq!(again.decision, Decision::Allow);
        assert_eq!(running.settle(usage_of(2, &two.account, 10, 60)).await, SettleStatus::Settled);
        used(120).await;
        let release = SettleItem {
            account: Some(again.account),
            reserve: None,
            sent: false,
            ..item(4, Outcome::Released, None)
        };
        assert_eq!(running.settle(release).await, SettleStatus::Settled);
        used(85).await;
        assert_eq!(running.settle(item(5, Outcome::Used, Some(7))).await, SettleStatus::Booked);
        used(92).await;
    }
}

/// Charged by every reserve that reached the service, and never given back.
#[tokio::test]
async fn attempts_count_refusals_too() {
    let limits = policy(
        r#"
  - {name: tries, per: [tenant], count: attempts, algorithm: fixed_window, every: 1h, limit: 4}
  - {name: rpm, per: [tenant], count: requests, algorithm: fixed_window, every: 1h, limit: 1}
"#,
    );
    let of_t = asked("t", Some("big"), None);
    for running in Running::both(&limits).await {
        let account = running.reserve(&by('a', 1, 0, 1)).await.account;
        for number in [2, 3, 4] {
            assert_eq!(running.reserve(&by('a', number, 0, 1)).await.refused_by.as_deref(), Some("rpm"));
        }
        assert_eq!(running.used(&of_t).await, uses(&[("tries", 4), ("rpm", 1)]));
        let release = SettleItem {
            account: Some(account),
            reserve: None,
            sent: false,
            ..item(1, Outcome::Released, None)
        };
        running.settle(release).await;
        assert_eq!(running.used(&of_t).await, uses(&[("tries", 4), ("rpm", 0)]));
        assert_eq!(running.reserve(&by('a', 5, 0, 1)).await.refused_by.as_deref(), Some("tries"));
        assert_eq!(running.used(&of_t).await, uses(&[("tries", 5), ("rpm", 0)]));
    }
}

/// A model that the plan lacks, or that nobody knows, is refused, and was an attempt; nothing else is counted of it.
#[tokio::test]
async fn attempts_count_what_is_refused_for_its_model() {
    let limits = r#"
  - {name: tries, per: [tenant], count: attempts, algorithm: fixed_window, every: 1h, limit: 2}
  - {name: rpm, per: [tenant], count: requests, algorithm: fixed_window, every: 1h, limit: 9}
"#;
    let narrow = policy(limits)
        .replace("models: [{", "models: [{name: other, match: [\"other\"], max_output_tokens: 9}, {")
        .replace("basic: {models: [\"*\"]}", "basic: {models: [big]}");
    let of_t = asked("t", Some("big"), None);
    for running in Running::both(&narrow).await {
        for (number, model, code) in [
            (1, "other", "model_not_allowed"),
            (2, "nobody's", "model_not_found"),
            (3, "other", "model_not_allowed"),
        ] {
            let request = ReserveRequest { model: Some(model.to_owned()), ..by('a', number, 0, 1) };
            for _ in 0..2 {
                let refused = running.reserve(&request).await;
                assert_eq!(refused.reason.as_ref().map(|reason| reason.as_str()), Some(code));
                assert_eq!(refused.refused_by, None);
            }
            assert_eq!(running.used(&of_t).await, uses(&[("tries", 2 * u64::from(number)), ("rpm", 0)]));
        }
        assert_eq!(running.reserve(&by('a', 4, 0, 1)).await.refused_by.as_deref(), Some("tries"));
        // Admitted before the plan was narrowed, and asked again after that: nobody will use it, so it is given back.
        let tenant = asked("two", Some("big"), None);
        running.replace_policy(
            &policy(limits)
                .replace("models: [{", "models: [{name: other, match: [\"other\"], max_output_tokens: 9}, {"),
        );
        let request = ReserveRequest { model: Some("other".to_owned()), ..by('b', 5, 0, 1) };
        assert_eq!(running.reserve(&request).await.decision, Decision::Allow);
        assert_eq!(running.used(&tenant).await, uses(&[("tries", 1), ("rpm", 1)]));
        running.replace_policy(&narrow);
        assert_eq!(running.reserve(&ReserveRequest { attempt: 2, ..request }).await.decision, Decision::Deny);
        running.release_all().await;
        assert_eq!(running.used(&tenant).await, uses(&[("tries", 1), ("rpm", 0)]));
    }
}

/// The grant is the most that fits; it is given only to who can still write it into the request.
#[tokio::test]
async fn a_tight_limit_clamps() {
    let limits = policy(
        r#"
  - {name: tpm, per: [tenant], count: tokens, weights: {output: 2}, algorithm: fixed_window, every: 1h, limit: 100}
  - {name: try-out, per: [tenant], count: tokens, algorithm: fixed_window, every: 1h, limit: 1, mode: shadow}
"#,
    );
    let of_tight = asked("tight", Some("big"), None);
    for running in Running::both(&limits).await {
        let wanted = ReserveRequest { choices: 2, ..by('c', 1, 11, 40) };
        let unable = ReserveRequest { can_clamp: false, ..wanted.clone() };
        assert_eq!(running.reserve(&unable).await.decision, Decision::Deny);
        let clamped = running.reserve(&wanted).await;
        // 11 + 2 × 2 × 22 = 99.
        assert_eq!((clamped.decision, clamped.grant.max_output_tokens), (Decision::Allow, Some(22)));
        assert_eq!(running.used(&of_tight).await, uses(&[("tpm", 99), ("try-out", 0)]));
        // Less than the plan's least is a refusal of the whole.
        let none = running.reserve(&by('c', 2, 0, 40)).await;
        assert_eq!((none.decision, none.refused_by.as_deref()), (Decision::Deny, Some("tpm")));
        // Another plan does not clamp.
        assert_eq!(running.reserve(&by('a', 3, 0, 60)).await.decision, Decision::Deny);
    }
}

/// Slots, buckets and balances have no window; explain shows how they stand all the same.
#[tokio::test]
async fn explain_shows_what_has_no_window() {
    let limits = policy(
        r#"
  - {name: slots, per: [tenant], algorithm: concurrency, lease: 1m, limit: 2}
  - {name: drip, per: [tenant], count: tokens, algorithm: token_bucket, refill: {amount: 1, every: 1s}, capacity: 100}
  - {name: prepaid, per: [tenant], count: cost, algorithm: balance}
"#,
    );
    for running in Running::both(&limits).await {
        let bucket = serde_json::json!({"tenant": "t", "limit": "prepaid"});
        let top_up = serde_json::json!({"bucket": bucket, "grant_id": "g", "usd": "0.0001"});
        running.quota.top_up(&serde_json::from_value(top_up).unwrap()).await.unwrap();
        assert_eq!(running.reserve(&by('a', 1, 10, 20)).await.decision, Decision::Allow);
        running.clock.set(T0 + 10_000);
        let explained = running.quota.explain(&asked("t", Some("big"), None)).await.unwrap();
        let rows: Vec<_> = explained
            .limits
            .iter()
            .map(|row| (row.algorithm, row.limit, row.used, row.remaining, row.reset_ms, row.window_ms))
            .collect();
        assert_eq!(
            rows,
            [
                ("concurrency", 2, 1, 1, 50_000, 0),
                ("token_bucket", 100, 20, 80, 20_000, 0),
                ("balance", 100_000, 30_000, 70_000, 0, 0),
            ]
        );
        let metrics: Vec<_> = explained.limits.iter().map(|row| row.metric).collect();
        use tokengate_api::Metric::{Concurrency, Cost, Tokens};
        assert_eq!(metrics, [Concurrency, Tokens, Cost]);
        // In debt.
        let account = explained.limits.first().map(|_| Tag::account("t").to_string()).unwrap();
        running.settle(usage_of(1, &account, 0, 130)).await;
        let explained = running.quota.explain(&asked("t", Some("big"), None)).await.unwrap();
        let prepaid = &explained.limits[2];
        assert_eq!((prepaid.limit, prepaid.used, prepaid.remaining), (100_000, 130_000, 0));
        let refused = running.reserve(&by('a', 2, 1, 0)).await;
        assert_eq!((limit(&refused, "prepaid").limit, limit(&refused, "prepaid").remaining), (100_000, 0));
        assert_eq!((explained.limits[0].used, explained.limits[0].reset_ms), (0, 0));
        assert_eq!((explained.limits[1].used, explained.limits[1].remaining), (120, 0));
    }
}
