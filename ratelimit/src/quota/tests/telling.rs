//! What usage events and metrics tell of ordinary settles.

use super::service::*;
use super::*;
use crate::store::tests::eventually;
use serde_json::json;

pub fn priced(limits: &str, price: &str) -> String {
    format!(
        r#"
version: "1"
models:
  - {{name: big, match: ["big*"], max_output_tokens: 1000, price_usd_per_million: {{input: "{price}", output: "8.00"}}}}
  - {{name: free, match: ["free"], max_output_tokens: 1000}}
plans: {{basic: {{models: [big]}}, wide: {{models: ["*"]}}}}
keys:
  - {{sha256: "{}", tenant: t, plan: basic}}
  - {{sha256: "{}", tenant: u, plan: wide}}
limits:
  - {{name: tpm, per: [tenant], count: tokens, algorithm: fixed_window, every: 1h, limit: 10000}}
{limits}
"#,
        key('a'),
        key('b')
    )
}

const SPEND: &str = r#"
  - {name: spend, per: [tenant], count: cost, algorithm: fixed_window, every: 1h, limit: {basic: {usd: "1.00"}, wide: unlimited}}
"#;

#[tokio::test]
async fn an_ordinary_settle_is_told_whole() {
    for running in Running::both(&priced(SPEND, "2.00")).await {
        let account = running.reserve(&request(1, 10, Some(20))).await.account;
        let extend = ExtendItem {
            id: ReservationId::from_bytes([1; 16]),
            account: account.clone(),
            hold_output_tokens: Some(40),
            lease: false,
        };
        running.clock.set(T0 + 3_000);
        running.quota.extend(&[extend]).await.unwrap();
        running.clock.set(T0 + 7_000);
        assert_eq!(running.settle(usage_of(1, &account, 10, 5)).await, SettleStatus::Settled);
        let events = running.events();
        let event = &events[0];
        for (field, value) in [
            ("model", json!("big")),
            ("plan", json!("basic")),
            ("estimate_tokens", json!(50)),
            ("reserved_at", json!(T0)),
            ("settled_at", json!(T0 + 7_000)),
            ("charged_tokens", json!(15)),
            ("cost_nano_usd", json!(10 * 2_000 + 5 * 8_000)),
        ] {
            assert_eq!(event[field], value, "{field} in {event}");
        }
        let metrics = running.metrics();
        assert!(metrics.contains("tokens_total{model=\"big\",class=\"output\"} 5\n"), "{metrics}");
        assert!(metrics.contains("used_of_held_ratio_sum 0.3\n"), "{metrics}");
        assert!(metrics.contains("used_of_held_ratio_count 1\n"), "{metrics}");
    }
}

/// With a limit on cost by the prices of the reserve; else by those of now; null where there are none.
#[tokio::test]
async fn a_cost_comes_from_the_record_or_from_the_policy() {
    for (limits, cost) in [(SPEND, 100 * 2_000), ("", 100 * 3_000)] {
        for running in Running::both(&priced(limits, "2.00")).await {
            let account = running.reserve(&request(1, 100, Some(20))).await.account;
            running.replace_policy(&priced(limits, "3.00"));
            running.settle(usage_of(1, &account, 100, 0)).await;
            assert_eq!(running.events()[0]["cost_nano_usd"], cost);
            // What is held is charged at the price of the hold.
            let held = running.reserve(&request(2, 100, Some(20))).await.account;
            let item = SettleItem { account: Some(held), reserve: None, ..item(2, Outcome::Held, None) };
            running.settle(item).await;
            assert_eq!(running.events()[0]["cost_nano_usd"], 100 * 3_000 + 20 * 8_000);
        }
    }
    for running in Running::both(&priced("", "2.00")).await {
        let request =
            ReserveRequest { key_hash: key('b'), model: Some("free".to_owned()), ..request(1, 100, None) };
        let account = running.reserve(&request).await.account;
        running.settle(usage_of(1, &account, 100, 0)).await;
        let events = running.events();
        assert_eq!((&events[0]["cost_nano_usd"], &events[0]["model"]), (&json!(null), &json!("free")));
    }
}

/// What had no hold is told by the reserve that came with it; the estimate stays open, and no ratio is counted.
#[tokio::test]
async fn a_booking_is_told_by_its_reserve() {
    for running in Running::both(&priced(SPEND, "2.00")).await {
        for (number, outcome, output, tokens, cost) in
            [(1, Outcome::Used, Some(7), 7, 56_000), (2, Outcome::Held, None, 30, 10 * 2_000 + 20 * 8_000)]
        {
            assert_eq!(running.settle(item(number, outcome, output)).await, SettleStatus::Booked);
            let events = running.events();
            let event = &events[0];
            for (field, value) in [
                ("model", json!("big")),
                ("plan", json!("basic")),
                ("estimate_tokens", json!(null)),
                ("charged_tokens", json!(tokens)),
                ("cost_nano_usd", json!(cost)),
            ] {
                assert_eq!(event[field], value, "{field} in {event}");
            }
        }
        assert!(running.metrics().contains("used_of_held_ratio_count 0\n"));
    }
}

/// A name that the policy has no more is not made up.
#[tokio::test]
async fn what_the_policy_forgot_is_not_named() {
    for running in Running::both(&priced(SPEND, "2.00")).await {
        let account = running.reserve(&request(1, 100, Some(20))).await.account;
        running.replace_policy(
            &priced(SPEND, "2.00").replace("name: big", "name: large").replace("[big]", "[large]"),
        );
        running.settle(usage_of(1, &account, 100, 0)).await;
        let events = running.events();
        assert_eq!((&events[0]["model"], &events[0]["plan"]), (&json!(null), &json!("basic")));
        assert_eq!(events[0]["cost_nano_usd"], 100 * 2_000);
    }
}

#[tokio::test]
async fn shadows_say_what_they_would_have_refused() {
    let shadow = r#"
  - {name: try-out, per: [tenant], count: tokens, algorithm: fixed_window, every: 1h, limit: 40, mode: shadow}
  - {name: strict, per: [tenant], count: requests, algorithm: fixed_window, every: 1h, limit: 3}
"#;
    for running in Running::both(&priced(shadow, "2.00")).await {
        let counted = || {
            let line = "shadow_would_deny_total{limit=\"try-out\"} ";
            let text = running.metrics();
            let count =
                text.lines().find_map(|text| text.split_once(line)).map(|(_, count)| count.to_owned());
            count.unwrap_or_default()
        };
        assert_eq!(running.reserve(&request(1, 10, Some(20))).await.decision, Decision::Allow);
        assert_eq!(counted(), "");
        // It does not fit, and goes through; its repeat is not counted again.
        for _ in 0..2 {
            assert_eq!(running.reserve(&request(2, 10, Some(20))).await.decision, Decision::Allow);
            assert_eq!(counted(), "1");
        }
        running.reserve(&request(3, 10, Some(0))).await;
        assert_eq!(counted(), "1");
        // Refused by another limit, and it would have been by this one.
        let refused = running.reserve(&request(4, 10, Some(20))).await;
        assert_eq!(refused.refused_by.as_deref(), Some("strict"));
        assert_eq!(counted(), "2");
        assert!(!running.metrics().contains("would_deny_total{limit=\"strict\"}"));
    }
}

/// Nobody settles a hold: its charge stays, and ledger and metrics are told so, once.
#[tokio::test]
async fn a_hold_that_lapses_is_told_once() {
    // So often that each sweep of the test is one.
    let every = Duration::from_millis(1);
    for running in Running::both(&priced(SPEND, "2.00")).await {
        running.reserve(&request(1, 10, Some(20))).await;
        running.clock.set(T0 + 71 * 60_000);
        eventually("the lapsed hold", || async {
            running.quota.sweep(every).await.unwrap();
            !running.metrics().contains("lapsed_holds_total 0\n")
        })
        .await;
        running.quota.sweep(every).await.unwrap();
        let metrics = running.metrics();
        assert!(metrics.contains("lapsed_holds_total 1\n"), "{metrics}");
        assert!(metrics.contains("lapsed_tokens_total 30\n"), "{metrics}");
        let events = running.events();
        assert_eq!(
            events,
            [json!({"id": "01".repeat(16), "status": "lapsed", "outcome": "held", "sent": null,
                "reserved_at": T0, "settled_at": T0 + 71 * 60_000, "tenant": events[0]["tenant"], "plan": null,
                "model": "big", "estimate_tokens": 30, "usage": null, "charged_tokens": 30,
                "cost_nano_usd": null, "policy_version": events[0]["policy_version"]})]
        );
    }
}
