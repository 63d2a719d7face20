//! Overrides and the time.

use super::service::*;
use super::*;
use crate::overrides::{Override, Overrides};

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

/// Who does not fit under an override is told when that ends, if the policy admits the request from then on.
#[tokio::test]
async fn a_refusal_by_an_override_says_when_it_ends() {
    use Reason::{RequestExceedsLimit, RpmLimitExceeded, TpmLimitExceeded};
    // What is set for 20 s and what is used before, then the refused request's tokens, why and for how long.
    type Case = (&'static [(&'static str, u64)], u64, u64, Reason, Option<u64>);
    let cases: [Case; 8] = [
        (&[("tpm", 0)], 0, 30, TpmLimitExceeded, Some(15_000)),
        (&[("rpm", 0)], 0, 30, RpmLimitExceeded, Some(15_000)),
        (&[("tpm", 29)], 0, 30, TpmLimitExceeded, Some(15_000)),
        (&[("tpm", 0), ("rpm", 0)], 0, 30, RpmLimitExceeded, Some(15_000)),
        // By then the window is still used up, and ends later.
        (&[("tpm", 0)], 90, 30, TpmLimitExceeded, Some(55_000)),
        (&[("tpm", 90)], 90, 5, TpmLimitExceeded, Some(15_000)),
        // The policy never admits it either.
        (&[("tpm", 0)], 0, 110, RequestExceedsLimit, None),
        // The override would, once the window is over, and is over itself by then.
        (&[("tpm", 200), ("day", 1_000)], 110, 110, RequestExceedsLimit, None),
    ];
    for (overrides, used, wanted, reason, retry) in cases {
        for running in Running::both(POLICY).await {
            let set = |(limit, amount): &(&str, u64)| OverrideRequest {
                tenant: "t".to_owned(),
                limit: (*limit).to_owned(),
                amount: Some(*amount),
                usd: None,
                for_ms: 20_000,
            };
            let reserve = async |number, tokens| running.reserve(&request(number, tokens, Some(0))).await;
            if used > 0 && used <= 100 {
                assert_eq!(reserve(1, used).await.decision, Decision::Allow);
            }
            for one in overrides {
                running.quota.set_override(&set(one)).await.unwrap();
            }
            if used > 100 {
                assert_eq!(reserve(1, used).await.decision, Decision::Allow);
            }
            running.clock.set(T0 + 5_000);
            let refused = reserve(2, wanted).await;
            assert_eq!((refused.reason, refused.retry_after_ms), (Some(reason.clone()), retry), "{wanted}");
        }
    }
}

/// Money is dollars, and none is an amount too.
#[tokio::test]
async fn an_override_of_money() {
    let policy = format!(
        "version: \"1\"\nmodels: [{{name: m, match: [m], price_usd_per_million: {{input: \"1.00\", output: \"1.00\"}}}}]\n\
         plans: {{basic: {{models: [m]}}}}\nkeys: [{{sha256: \"{}\", tenant: t, plan: basic}}]\n\
         limits: [{{name: spend, per: [tenant], count: cost, algorithm: fixed_window, every: 1h, limit: {{usd: \"5\"}}}}]\n",
        key('a')
    );
    let running = Running::in_memory(&policy);
    for (usd, amount) in [("0.25", 250_000_000), ("0", 0), ("0.000000001", 1)] {
        let set = OverrideRequest {
            tenant: "t".to_owned(),
            limit: "spend".to_owned(),
            amount: None,
            usd: Some(usd.to_owned()),
            for_ms: 1_000,
        };
        assert_eq!(running.quota.set_override(&set).await.unwrap().amount, amount);
        let explained = running.quota.explain(&asked("t", Some("m"), None)).await.unwrap();
        assert_eq!(explained.limits[0].limit, amount);
    }
}

/// Another instance renews an override that has long ended, after this one has read it and before it is removed.
#[tokio::test]
async fn a_renewed_override_is_not_forgotten() {
    for running in Running::both(POLICY).await {
        let store = &running.quota.store;
        let of = |amount: u64, until: u64| Override {
            tenant: "t".to_owned(),
            limit: "rpm".to_owned(),
            amount,
            until,
        };
        let text = |set: &Override| serde_json::to_string(set).unwrap();
        let (ended, renewed) = (of(1, T0), of(2, T0 + 3 * 3_600_000));
        let name = Override::name("t", "rpm");
        store.note(name, Some(&text(&ended)), STORE_TIME).await.unwrap();
        running.clock.set(T0 + 2 * 3_600_000);
        store.note(name, Some(&text(&renewed)), STORE_TIME).await.unwrap();
        running.quota.forget_overrides(&Overrides::read(&[text(&ended)]), T0 + 2 * 3_600_000).await.unwrap();
        assert_eq!(running.quota.list_overrides().await.unwrap().overrides, std::slice::from_ref(&renewed));
        // Under another name there is nothing to remove.
        assert!(!store.forget_note(Override::name("t", "tpm"), &text(&renewed), STORE_TIME).await.unwrap());
        assert!(store.forget_note(name, &text(&renewed), STORE_TIME).await.unwrap());
        assert!(store.notes(STORE_TIME).await.unwrap().is_empty());
    }
}
