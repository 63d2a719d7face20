//! Operators who do not say which of a tenant's plans they mean.

use super::service::*;
use super::*;
use crate::quota::operate::CorrectionChange;
use crate::quota::target::BucketName;

/// `t` may have both plans, whose requests share all buckets but those of `own`.
fn policy() -> String {
    format!(
        r#"
version: "1"
models: [{{name: big, match: ["big*"], max_output_tokens: 1000}}]
plans: {{basic: {{models: ["*"]}}, wide: {{models: ["*"]}}}}
keys:
  - {{sha256: "{}", tenant: t, plan: basic}}
  - {{sha256: "{}", tenant: t, plan: wide}}
limits:
  - {{name: same, per: [tenant], count: tokens, algorithm: fixed_window, every: 1h, limit: 1000}}
  - {{name: differs, per: [tenant], count: tokens, algorithm: sliding_window, every: 1h, limit: {{basic: 500, wide: 2000}}}}
  - {{name: bucket, per: [tenant], count: tokens, algorithm: token_bucket, refill: {{amount: 1, every: 1s}}, capacity: 900}}
  - {{name: sizes, per: [tenant], count: tokens, algorithm: token_bucket, refill: {{amount: 1, every: 1s}}, capacity: {{basic: 500, wide: 2000}}}}
  - {{name: own, per: [tenant, plan], count: tokens, algorithm: fixed_window, every: 1h, limit: 1000}}
  - {{name: one, per: [tenant, plan], count: tokens, algorithm: fixed_window, every: 1h, limit: {{basic: 1000, wide: unlimited}}}}
  - {{name: prepaid, per: [tenant], count: tokens, algorithm: balance, plans: [wide]}}
"#,
        key('a'),
        key('b')
    )
}

fn bucket(limit: &str, plan: Option<&str>) -> BucketName {
    BucketName {
        tenant: "t".to_owned(),
        limit: limit.to_owned(),
        plan: plan.map(str::to_owned),
        ..BucketName::default()
    }
}

#[tokio::test]
async fn a_bucket_of_all_plans_needs_none() {
    for running in Running::both(&policy()).await {
        running.reserve(&request(1, 100, Some(0))).await;
        let correct = async |limit: &str, plan: Option<&str>| {
            let request = CorrectionRequest {
                bucket: bucket(limit, plan),
                id: format!("{limit} {plan:?}"),
                change: CorrectionChange::Charge,
                amount: Some(10),
                usd: None,
            };
            running.quota.correct(&request).await.map(|answer| (answer.used, answer.remaining))
        };
        assert_eq!(correct("same", None).await.unwrap(), (110, 890));
        // The least of what it admits.
        assert_eq!(correct("differs", None).await.unwrap(), (110, 390));
        assert_eq!(correct("differs", Some("wide")).await.unwrap(), (120, 1_880));
        assert_eq!(correct("bucket", None).await.unwrap(), (110, 790));
        // Of one plan only.
        assert_eq!(correct("one", None).await.unwrap(), (110, 890));
        for limit in ["own", "sizes"] {
            let error = correct(limit, None).await.unwrap_err().to_string();
            assert!(error.starts_with("bucket.plan: is missing: "), "{error}");
            correct(limit, Some("basic")).await.unwrap();
        }
        for limit in ["same", "differs", "bucket", "one"] {
            let reset = ResetRequest { bucket: bucket(limit, None) };
            assert!(running.quota.reset(&reset).await.unwrap().existed, "{limit}");
        }
        let top_up = TopUpRequest {
            bucket: bucket("prepaid", None),
            grant_id: "g".to_owned(),
            amount: Some(5),
            usd: None,
        };
        assert_eq!(running.quota.top_up(&top_up).await.unwrap().granted, 5);
    }
}

/// One row where the plans share it, else one for each, in the order of the policy.
#[tokio::test]
async fn an_explanation_is_for_all_plans() {
    for running in Running::both(&policy()).await {
        running.reserve(&request(1, 100, Some(0))).await;
        let explained = running.quota.explain(&asked("t", Some("big"), None)).await.unwrap();
        assert_eq!(explained.plan, None);
        let rows: Vec<_> = explained
            .limits
            .iter()
            .map(|row| (row.name.as_str(), row.plans.join(" "), row.limit, row.used))
            .collect();
        let row = |name, plans: &str, limit, used| (name, plans.to_owned(), limit, used);
        assert_eq!(
            rows,
            [
                row("same", "basic wide", 1_000, 100),
                row("differs", "basic", 500, 100),
                row("differs", "wide", 2_000, 100),
                row("bucket", "basic wide", 900, 100),
                row("sizes", "basic", 500, 100),
                row("sizes", "wide", 2_000, 1_600),
                row("own", "basic", 1_000, 100),
                row("own", "wide", 1_000, 0),
                row("one", "basic", 1_000, 100),
                row("prepaid", "wide", 0, 0),
            ]
        );
        let basic = running.quota.explain(&asked("t", Some("big"), Some("basic"))).await.unwrap();
        assert_eq!((basic.plan.as_deref(), basic.limits.len()), (Some("basic"), 6));
        assert!(basic.limits.iter().all(|row| row.plans == ["basic"]));
    }
}
