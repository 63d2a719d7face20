#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]
use std::collections::BTreeMap;

use serde_json::json;

use super::*;
use crate::http::tests::{ID, Server, in_memory, post, reserve_body, with};

/// The samples of an exposition, by name and labels. What is not well formed fails.
fn samples(text: &str) -> BTreeMap<String, f64> {
    let mut samples = BTreeMap::new();
    for line in text.lines() {
        if let Some(comment) = line.strip_prefix('#') {
            let words: Vec<_> = comment.split_whitespace().collect();
            assert!(matches!(words[0], "HELP" | "TYPE"), "{line}");
            assert!(words[1].starts_with("tokengate_ratelimit_") && words.len() > 2, "{line}");
            continue;
        }
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(samples.insert(name.to_owned(), value.parse().unwrap()).is_none(), "twice: {name}");
    }
    samples
}

async fn scraped(server: &Server) -> BTreeMap<String, f64> {
    samples(&scraped_text(server).await)
}

async fn scraped_text(server: &Server) -> String {
    use http_body_util::BodyExt;
    let stream = tokio::net::TcpStream::connect(server.admin).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(hyper_util::rt::TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = hyper::Request::get("/metrics").header("host", "localhost").body(String::new()).unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert_eq!(response.headers()["content-type"], CONTENT_TYPE);
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

#[tokio::test]
async fn scripted_calls_have_their_numbers() {
    let server = in_memory().await;
    let reserve = |body| async move { post(server.api, "/v1/reserve", &body).await.1 };
    let held = reserve(reserve_body()).await;
    reserve(reserve_body()).await;
    let other = |number: u32| json!(format!("{number:032x}"));
    reserve(with(with(reserve_body(), "id", other(1)), "model", json!("claude"))).await;
    reserve(with(with(reserve_body(), "id", other(2)), "max_output_tokens", json!(400))).await;
    reserve(with(with(reserve_body(), "id", other(3)), "max_output_tokens", json!(40))).await;
    let usage = json!({"input": 10, "output": 3, "reasoning": 2, "cache_read": 1});
    let item = json!({"id": ID, "account": held["account"], "outcome": "used", "sent": true, "usage": usage,
        "age_ms": 5, "queued_ms": 0});
    let booked = with(with(reserve_body(), "id", other(4)), "max_output_tokens", json!(1));
    let items = json!([
        item,
        item,
        {"id": other(4), "outcome": "estimated", "sent": true, "usage": {"input": 7}, "age_ms": 5,
         "queued_ms": 0, "reserve": booked},
        {"id": other(5), "account": held["account"], "outcome": "used", "sent": true, "usage": {"output": 9},
         "age_ms": 5, "queued_ms": 0},
        {"id": other(6), "account": held["account"], "outcome": "used", "sent": true, "usage": {"output": 4},
         "age_ms": 5, "queued_ms": 3_600_000},
        {"id": other(7), "account": held["account"], "outcome": "released", "sent": false, "age_ms": 5,
         "queued_ms": 0},
    ]);
    let (_, answer) = post(server.api, "/v1/settle", &items).await;
    let statuses: Vec<_> =
        answer["results"].as_array().unwrap().iter().map(|result| result["status"].clone()).collect();
    assert_eq!(statuses, ["settled", "already_settled", "booked", "unknown", "late", "unknown"]);

    let seen = scraped(&server).await;
    let version = server.quota.policy().version.clone();
    for (name, value) in [
        ("decisions_total{decision=\"allow\",reason=\"\",limit=\"\"}", 2.0),
        ("decisions_total{decision=\"deny\",reason=\"model_not_found\",limit=\"\"}", 1.0),
        ("decisions_total{decision=\"deny\",reason=\"request_exceeds_limit\",limit=\"tpd\"}", 1.0),
        ("decisions_total{decision=\"deny\",reason=\"tpm_limit_exceeded\",limit=\"tpd\"}", 1.0),
        ("replayed_reserves_total", 1.0),
        ("settles_total{outcome=\"used\",status=\"settled\"}", 1.0),
        ("settles_total{outcome=\"used\",status=\"already_settled\"}", 1.0),
        ("settles_total{outcome=\"estimated\",status=\"booked\"}", 1.0),
        ("settles_total{outcome=\"used\",status=\"unknown\"}", 1.0),
        ("settles_total{outcome=\"used\",status=\"late\"}", 1.0),
        ("settles_total{outcome=\"released\",status=\"unknown\"}", 1.0),
        ("tokens_total{model=\"gpt\",class=\"input\"}", 17.0),
        ("tokens_total{model=\"gpt\",class=\"output\"}", 3.0),
        ("tokens_total{model=\"gpt\",class=\"reasoning\"}", 2.0),
        ("tokens_total{model=\"gpt\",class=\"cache_read\"}", 1.0),
        // 16 of 50; what was booked had no hold.
        ("used_of_held_ratio_bucket{le=\"0.3\"}", 0.0),
        ("used_of_held_ratio_bucket{le=\"0.5\"}", 1.0),
        ("used_of_held_ratio_count", 1.0),
        ("uncharged_tokens_total{status=\"unknown\"}", 9.0),
        ("uncharged_tokens_total{status=\"late\"}", 4.0),
        ("calls_in_flight", 0.0),
    ] {
        assert_eq!(seen.get(&format!("tokengate_ratelimit_{name}")), Some(&value), "{name} in {seen:#?}");
    }
    assert_eq!(seen.keys().filter(|name| name.contains("decisions_total{")).count(), 4);
    // No tenant, key or raw model name anywhere.
    let text = scraped_text(&server).await;
    assert!(!text.contains("claude") && !text.contains("tenant") && !text.contains(ID), "{text}");
    assert!(!text.contains(&version), "a test server has no policy gauge");
}

#[tokio::test]
async fn what_only_the_service_tells() {
    let metrics = Metrics::default();
    metrics.policy("1+a");
    metrics.policy("2+\"b\"");
    metrics.policy_read(ReloadOutcome::Loaded);
    metrics.policy_read(ReloadOutcome::Refused);
    metrics.would_deny("try-out");
    metrics.store_call(StoreCall::Reserve, StoreOutcome::Ok, 0.0003);
    metrics.store_call(StoreCall::Reserve, StoreOutcome::Ok, 0.002);
    metrics.store_call(StoreCall::Settle, StoreOutcome::Timeout, 0.8);
    metrics.store_wiped();
    let seen = samples(&metrics.text().unwrap());
    for (name, value) in [
        ("policy_info{version=\"2+\\\"b\\\"\"}", 1.0),
        ("policy_reloads_total{outcome=\"loaded\"}", 1.0),
        ("policy_reloads_total{outcome=\"refused\"}", 1.0),
        ("shadow_would_deny_total{limit=\"try-out\"}", 1.0),
        ("store_call_seconds_bucket{call=\"reserve\",outcome=\"ok\",le=\"0.00025\"}", 0.0),
        ("store_call_seconds_bucket{call=\"reserve\",outcome=\"ok\",le=\"0.0005\"}", 1.0),
        ("store_call_seconds_bucket{call=\"reserve\",outcome=\"ok\",le=\"+Inf\"}", 2.0),
        ("store_call_seconds_count{call=\"settle\",outcome=\"timeout\"}", 1.0),
        ("store_wiped_total", 1.0),
    ] {
        assert_eq!(seen.get(&format!("tokengate_ratelimit_{name}")), Some(&value), "{name} in {seen:#?}");
    }
    assert_eq!(seen.keys().filter(|name| name.contains("policy_info")).count(), 1);
}

/// What was held is known to the record: the ratio and the model come from there.
#[test]
fn a_record_tells_model_and_estimate() {
    let metrics = Metrics::default();
    let usage = Usage { output: 45, ..Usage::default() };
    for status in [SettleStatus::Settled, SettleStatus::AlreadySettled] {
        metrics.settled(Outcome::Used, status, Some(&usage), Some("gpt"), Some(50));
    }
    let seen = samples(&metrics.text().unwrap());
    let of = |name: &str| seen.get(&format!("tokengate_ratelimit_{name}")).copied();
    assert_eq!(of("used_of_held_ratio_bucket{le=\"0.7\"}"), Some(0.0));
    assert_eq!(of("used_of_held_ratio_bucket{le=\"0.9\"}"), Some(1.0));
    assert_eq!(of("used_of_held_ratio_count"), Some(1.0));
    assert_eq!(of("tokens_total{model=\"gpt\",class=\"output\"}"), Some(45.0));
}
