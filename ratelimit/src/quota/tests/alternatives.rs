//! Requests that another model, or another tier, may answer.

use serde_json::json;

use super::service::*;
use super::*;

/// Cheap: 1 and 4 dollars per million; dear: 3 and 2, so that neither is the dearer one for every request.
fn policy() -> String {
    format!(
        r#"
version: "1"
models:
  - {{name: cheap, match: ["cheap*"], max_output_tokens: 100, price_usd_per_million: {{input: "1.00", output: "4.00"}}}}
  - {{name: dear, match: ["dear*", "other-dear"], max_output_tokens: 300, price_usd_per_million: {{input: "3.00", output: "2.00"}}}}
  - {{name: last, match: ["last"], price_usd_per_million: {{input: "0.10", output: "0.10"}}}}
unknown_model: {{as: last}}
plans: {{basic: {{models: [cheap, dear, last]}}}}
keys: [{{sha256: "{}", tenant: t, plan: basic}}]
limits:
  - {{name: rpm, per: [tenant, model], count: requests, algorithm: fixed_window, every: 1h, limit: 10}}
  - {{name: tpm, per: [tenant, model], count: tokens, algorithm: sliding_window, every: 1m, limit: 1000}}
  - {{name: slots, per: [model], shared: true, algorithm: concurrency, lease: 60s, limit: 3}}
  - {{name: spend, per: [tenant], count: cost, algorithm: fixed_window, every: 1h, limit: {{usd: "1.00"}}}}
  - {{name: tries, per: [tenant, model], count: attempts, algorithm: fixed_window, every: 1h, limit: 10}}
"#,
        key('a')
    )
}

fn named(number: u8, model: &str, others: &[&str]) -> ReserveRequest {
    ReserveRequest {
        model: Some(model.to_owned()),
        models: others.iter().map(|name| (*name).to_owned()).collect(),
        ..request(number, 100, Some(50))
    }
}

impl Running {
    /// Used of `rpm`, `tpm`, `slots`, `spend` and `tries`, as requests to a model see them.
    async fn stand(&self, model: &str) -> Vec<u64> {
        let explained = self.quota.explain(&asked("t", Some(model), None)).await.unwrap();
        explained.limits.iter().map(|limit| limit.used).collect()
    }
}

const DEAREST: u64 = 100 * 3_000 + 50 * 2_000;

#[tokio::test]
async fn whichever_answers_there_is_room_for_it() {
    for running in Running::both(&policy()).await {
        let response = running.reserve(&named(1, "cheap-1", &["dear", "cheap"])).await;
        assert_eq!((response.decision, response.model.as_deref()), (Decision::Allow, Some("cheap")));
        // Each model's own buckets, and one of money: by the dearer of both.
        let names: Vec<_> = response.limits.iter().map(|limit| limit.name.as_str()).collect();
        assert_eq!(names, ["rpm", "rpm", "tpm", "tpm", "slots", "slots", "spend", "tries"]);
        assert_eq!(running.stand("cheap").await, [1, 150, 1, DEAREST, 1]);
        assert_eq!(running.stand("dear").await, [1, 150, 1, DEAREST, 0]);
        assert_eq!(running.stand("last").await, [0, 0, 0, DEAREST, 0]);
    }
}

#[tokio::test]
async fn who_answers_is_charged_and_nobody_else() {
    let used = Usage { input: 90, output: 10, ..Usage::default() };
    let cheap = 90 * 1_000 + 10 * 4_000;
    let dear = 90 * 3_000 + 10 * 2_000;
    for (answer, charged, cost) in [
        (Some("dear"), "dear", dear),
        (Some("dear-2026-01-01"), "dear", dear),
        (Some("vendor/other-dear"), "dear", dear),
        (Some("cheap-1"), "cheap", cheap),
        // Not one of those that were asked for, or none: the one that was asked for first.
        (Some("last"), "cheap", cheap),
        (Some("a-name-of-the-router"), "cheap", cheap),
        (Some(""), "cheap", cheap),
        (None, "cheap", cheap),
    ] {
        for running in Running::both(&policy()).await {
            let account = running.reserve(&named(1, "cheap", &["dear"])).await.account;
            let item = SettleItem {
                usage: Some(used),
                model: answer.map(str::to_owned),
                ..usage_of(1, &account, 0, 0)
            };
            assert_eq!(running.settle(item).await, SettleStatus::Settled);
            let other = if charged == "dear" { "cheap" } else { "dear" };
            let tries = |model| u64::from(model == "cheap");
            assert_eq!(running.stand(charged).await, [1, 100, 0, cost, tries(charged)], "{answer:?}");
            assert_eq!(running.stand(other).await, [0, 0, 0, cost, tries(other)], "{answer:?}");
            let event = &running.events()[0];
            assert_eq!((&event["model"], &event["cost_nano_usd"]), (&json!(charged), &json!(cost)));
            let counted = format!("tokens_total{{model=\"{charged}\",class=\"output\"}} 10\n");
            assert!(running.metrics().contains(&counted), "{}", running.metrics());
        }
    }
}

/// A name that no model lists means `unknown_model`; the answer may say it again, and by it alone is it found.
#[tokio::test]
async fn a_name_that_the_request_has_is_found_in_the_answer() {
    for (answer, charged) in [("someones-own", "last"), ("unheard-of", "dear")] {
        for running in Running::both(&policy()).await {
            let account = running.reserve(&named(1, "dear", &["someones-own", "last"])).await.account;
            // Whatever the policy says by then.
            running.replace_policy(&policy().replace("unknown_model: {as: last}", ""));
            let model = Some(answer.to_owned());
            running.settle(SettleItem { model, ..usage_of(1, &account, 10, 0) }).await;
            assert_eq!(running.stand(charged).await[..2], [1, 10], "{answer}");
        }
    }
}

#[tokio::test]
async fn every_ending_frees_what_did_not_answer() {
    let item = |outcome, sent, account: &str| SettleItem {
        sent,
        account: Some(account.to_owned()),
        reserve: None,
        ..item(1, outcome, None)
    };
    for (outcome, sent, answer, cheap, dear) in [
        (Outcome::Released, false, None, [0, 0, 0, 0, 1], [0, 0, 0, 0, 0]),
        (Outcome::Released, true, None, [1, 0, 0, 0, 1], [0, 0, 0, 0, 0]),
        (Outcome::Released, true, Some("dear"), [0, 0, 0, 0, 1], [1, 0, 0, 0, 0]),
        (Outcome::Held, true, Some("dear"), [0, 0, 0, DEAREST, 1], [1, 150, 0, DEAREST, 0]),
        // Nothing is known: all that was held may be owed.
        (Outcome::Held, true, None, [1, 150, 0, DEAREST, 1], [1, 150, 0, DEAREST, 0]),
    ] {
        for running in Running::both(&policy()).await {
            let account = running.reserve(&named(1, "cheap", &["dear"])).await.account;
            let model = answer.map(str::to_owned);
            running.settle(SettleItem { model, ..item(outcome, sent, &account) }).await;
            assert_eq!(running.stand("cheap").await, cheap, "{outcome:?} {answer:?}");
            assert_eq!(running.stand("dear").await, dear, "{outcome:?} {answer:?}");
        }
    }
}

#[tokio::test]
async fn all_or_nothing_also_over_several_models() {
    for running in Running::both(&policy()).await {
        for number in 1..=3 {
            assert_eq!(running.reserve(&named(number, "dear", &[])).await.decision, Decision::Allow);
        }
        let before = running.stand("cheap").await;
        let refused = running.reserve(&named(4, "cheap", &["dear"])).await;
        assert_eq!(refused.reason, Some(Reason::ConcurrencyLimitExceeded));
        assert_eq!(refused.limits[5].scope["model"], "dear");
        let mut attempted = before;
        attempted[4] += 1;
        assert_eq!(running.stand("cheap").await, attempted);
        assert_eq!(running.reserve(&named(5, "cheap", &[])).await.decision, Decision::Allow);
    }
}

/// What was let through without an answer is charged to who has answered it.
#[tokio::test]
async fn a_booking_is_charged_to_who_answered() {
    for running in Running::both(&policy()).await {
        let reserve = Some(named(1, "cheap", &["dear", "last"]));
        let model = Some("dear".to_owned());
        let item = SettleItem { account: None, reserve, model, ..usage_of(1, "", 10, 0) };
        assert_eq!(running.settle(item).await, SettleStatus::Booked);
        assert_eq!(running.stand("dear").await[..4], [1, 10, 0, 30_000]);
        assert_eq!(running.stand("cheap").await[..2], [0, 0]);
        let event = &running.events()[0];
        assert_eq!((&event["model"], &event["cost_nano_usd"]), (&json!("dear"), &json!(30_000)));
    }
}

/// More output is held for whichever is the dearest by then, and what did not answer is given back whole.
#[tokio::test]
async fn an_extension_holds_for_all_of_them() {
    for running in Running::both(&policy()).await {
        let account = running.reserve(&named(1, "cheap", &["dear"])).await.account;
        let extend = ExtendItem {
            id: ReservationId::from_bytes([1; 16]),
            account: account.clone(),
            hold_output_tokens: Some(200),
            lease: true,
        };
        let extended = running.quota.extend(&[extend]).await.unwrap();
        assert_eq!(extended.results[0].status, ExtendStatus::Allow);
        // 200 output tokens: the cheap model's are the dear ones.
        let cost = 100 * 1_000 + 200 * 4_000;
        assert_eq!(running.stand("cheap").await[..4], [1, 300, 1, cost]);
        assert_eq!(running.stand("dear").await[..4], [1, 300, 1, cost]);
        let model = Some("dear".to_owned());
        running.settle(SettleItem { model, ..usage_of(1, &account, 100, 200) }).await;
        assert_eq!(running.stand("cheap").await[..4], [0, 0, 0, 100 * 3_000 + 200 * 2_000]);
        assert_eq!(running.stand("dear").await[..2], [1, 300]);
    }
}

fn tiered() -> String {
    policy().replace(
        r#"output: "4.00"}"#,
        r#"output: "4.00", tiers: {priority: {input: "2.00", output: "8.00"}, flex: {input: "0.50"}}}"#,
    )
}

/// The hold by the dearest that the request can get, the charge by what the answer says.
#[tokio::test]
async fn a_tier_has_its_price() {
    let (standard, priority, flex) =
        (100 * 1_000 + 50 * 4_000, 100 * 2_000 + 50 * 8_000, 100 * 500 + 50 * 4_000);
    for (asked_for, held, unsaid) in [
        (None, priority, standard),
        (Some("auto"), priority, standard),
        (Some("scale"), priority, standard),
        (Some("default"), standard, standard),
        (Some("priority"), priority, priority),
        (Some(" Priority"), priority, priority),
        (Some("flex"), standard, standard),
    ] {
        for (answer, charged) in [
            (Some("priority"), priority),
            (Some("PRIORITY"), priority),
            (Some("flex"), flex),
            (Some("default"), standard),
            // Without a price of its own.
            (Some("scale"), standard),
            // The answer does not say.
            (Some(""), unsaid),
            (None, unsaid),
        ] {
            let running = Running::in_memory(&tiered());
            let service_tier = asked_for.map(str::to_owned);
            let response = running.reserve(&ReserveRequest { service_tier, ..named(1, "cheap", &[]) }).await;
            assert_eq!(running.stand("cheap").await[3], held, "{asked_for:?}");
            let service_tier = answer.map(str::to_owned);
            running.settle(SettleItem { service_tier, ..usage_of(1, &response.account, 100, 50) }).await;
            assert_eq!(running.stand("cheap").await[3], charged, "{asked_for:?} {answer:?}");
            assert_eq!(running.events()[0]["cost_nano_usd"], charged, "{asked_for:?} {answer:?}");
        }
    }
}

/// In both stores, beside other models, and by the prices of the reserve.
#[tokio::test]
async fn a_tiers_price_is_the_reserves() {
    for running in Running::both(&tiered()).await {
        let account = running.reserve(&named(1, "dear", &["cheap"])).await.account;
        assert_eq!(running.stand("dear").await[3], 100 * 2_000 + 50 * 8_000);
        running.replace_policy(&policy());
        let (model, service_tier) = (Some("cheap".to_owned()), Some("priority".to_owned()));
        running.settle(SettleItem { model, service_tier, ..usage_of(1, &account, 100, 50) }).await;
        assert_eq!(running.stand("dear").await[3], 100 * 2_000 + 50 * 8_000);
        // A booking, which has no record, by today's.
        running.replace_policy(&tiered());
        let service_tier = Some("flex".to_owned());
        let reserve = Some(named(2, "cheap", &[]));
        let item = SettleItem { account: None, reserve, service_tier, ..usage_of(2, "", 100, 0) };
        assert_eq!(running.settle(item).await, SettleStatus::Booked);
        assert_eq!(running.events()[1]["cost_nano_usd"], 100 * 500);
    }
}

/// Where no limit counts money, the event still has the price of the tier.
#[tokio::test]
async fn an_events_cost_knows_the_tier() {
    let running = Running::in_memory(
        &tiered().replace("count: cost,", "count: tokens,").replace("{usd: \"1.00\"}", "1000000"),
    );
    let account = running.reserve(&named(1, "cheap", &[])).await.account;
    let service_tier = Some("priority".to_owned());
    running.settle(SettleItem { service_tier, ..usage_of(1, &account, 100, 50) }).await;
    assert_eq!(running.events()[0]["cost_nano_usd"], 100 * 2_000 + 50 * 8_000);
}
