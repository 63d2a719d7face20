#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::*;

fn deny(reason: &str, retry_after_ms: Option<u64>) -> ReserveResponse {
    serde_json::from_value(json!({
        "decision": "deny", "reason": reason, "refused_by": "tenant-tpm", "retry_after_ms": retry_after_ms,
        "policy_version": "1", "limits": [
            {"name": "tenant-rpm", "scope": {"tenant": "a"}, "metric": "requests", "limit": 60, "remaining": 12,
             "reset_ms": 1000, "window_ms": 60000, "plan": "standard"},
            {"name": "tenant-tpm", "scope": {"model": "gpt-4o", "tenant": "a"}, "metric": "tokens", "limit": 1000,
             "remaining": 3, "reset_ms": 12300, "window_ms": 60000, "plan": "standard"}],
    }))
    .unwrap()
}

fn header<'a>(reply: &'a LocalReply, name: &str) -> Option<&'a str> {
    reply.headers.iter().find(|(key, _)| *key == name).map(|(_, value)| value.as_str())
}

fn reply(reason: &str, retry_after_ms: Option<u64>) -> (LocalReply, Value) {
    let refusal = Refusal::denied(&deny(reason, retry_after_ms), "gpt-4o", 40, Reset::Duration);
    let reply = refusal.reply(BodyFormat::OpenAi);
    let body = serde_json::from_slice(&reply.body).unwrap();
    (reply, body)
}

#[test]
fn an_exhausted_window_says_which_and_until_when() {
    let (reply, body) = reply("tpm_limit_exceeded", Some(12_300));
    assert_eq!(reply.status, 429);
    assert_eq!(reply.details, "tokengate_tpm_limit_exceeded");
    assert_eq!(
        body["error"],
        json!({
            "message": "Rate limit reached for the limit 'tenant-tpm' of model gpt-4o, tenant a (plan standard): \
                        1000 tokens per 1m, 3 remaining. Please try again in 12.300s.",
            "type": "rate_limit_error", "code": "tpm_limit_exceeded", "param": null,
            "limit": {"name": "tenant-tpm", "scope": {"tenant": "a", "model": "gpt-4o"}, "metric": "tokens",
                      "limit": 1000, "remaining": 3, "reset_ms": 12300, "window_ms": 60000, "plan": "standard"},
        })
    );
    for (name, value) in [
        ("retry-after", Some("13")),
        ("retry-after-ms", Some("12300")),
        ("x-should-retry", None),
        ("x-ratelimit-remaining-tokens", Some("3")),
        ("x-ratelimit-remaining-requests", Some("12")),
        ("x-tokengate-refused-by", Some("quota")),
        ("content-type", Some("application/json")),
    ] {
        assert_eq!(header(&reply, name), value, "{name}");
    }
}

/// A day's limit that others hold is worth another try in a second, and says how much they hold.
#[test]
fn what_is_held_is_told_where_it_is_known() {
    let mut answer = deny("quota_exceeded", Some(1_000));
    answer.limits[1].held = Some(997);
    answer.limits[1].window_ms = 86_400_000;
    for format in [BodyFormat::OpenAi, BodyFormat::ProblemDetails] {
        let reply = Refusal::denied(&answer, "gpt-4o", 40, Reset::Duration).reply(format);
        let body: Value = serde_json::from_slice(&reply.body).unwrap();
        let limit = if format == BodyFormat::OpenAi { &body["error"]["limit"] } else { &body["limit"] };
        assert_eq!((&limit["held"], &limit["remaining"]), (&json!(997), &json!(3)));
        assert_eq!(header(&reply, "retry-after"), Some("1"));
        assert_eq!(header(&reply, "x-should-retry"), None);
    }
}

#[test]
fn a_request_that_never_fits_has_no_retry_after() {
    let (reply, body) = reply("request_exceeds_limit", None);
    assert_eq!(reply.status, 429);
    assert_eq!(body["error"]["code"], "request_exceeds_limit");
    assert_eq!(header(&reply, "retry-after"), None);
    assert_eq!(header(&reply, "x-should-retry"), Some("false"));
}

#[test]
fn every_reason_has_its_status() {
    for (reason, status, kind) in [
        ("rpm_limit_exceeded", 429, "rate_limit_error"),
        ("unknown_key", 401, "authentication_error"),
        ("model_not_found", 404, "invalid_request_error"),
        ("model_not_allowed", 403, "permission_error"),
        ("too_many_models", 400, "invalid_request_error"),
        ("quota_unavailable", 503, "api_error"),
        ("a_reason_of_tomorrow", 429, "rate_limit_error"),
    ] {
        let (reply, body) = reply(reason, None);
        assert_eq!((reply.status, &body["error"]["type"]), (status, &json!(kind)), "{reason}");
        assert_eq!(body["error"]["code"], reason);
    }
}

#[test]
fn problem_details_on_request() {
    assert_eq!(BodyFormat::of_accept(Some(b"text/html")), BodyFormat::OpenAi);
    let format = BodyFormat::of_accept(Some(b"application/problem+JSON, */*"));
    let reply = Refusal::denied(&deny("tpm_limit_exceeded", Some(5)), "m", 1, Reset::Duration).reply(format);
    let body: Value = serde_json::from_slice(&reply.body).unwrap();
    assert_eq!(header(&reply, "content-type"), Some("application/problem+json"));
    assert_eq!(body["status"], 429);
    assert_eq!(body["type"], "https://iana.org/assignments/http-problem-types#quota-exceeded");
    assert_eq!(body["limit"]["name"], "tenant-tpm");
}

#[test]
fn a_client_cannot_write_into_our_message() {
    let model = format!("x\r\n{}", "y".repeat(500));
    let refusal = Refusal::denied(&deny("model_not_found", None), &model, 1, Reset::Duration);
    assert!(refusal.message.len() < 120 && !refusal.message.contains('\n'));
}

#[test]
fn budgets_and_slots_are_named_in_their_own_units() {
    for (nano, shown) in [
        (0, "0.00 US dollars"),
        (500_000_000_000, "500.00 US dollars"),
        (1_250_000_999, "1.25 US dollars"),
        (1_000_001_000, "1.000001 US dollars"),
    ] {
        assert_eq!(dollars(nano), shown);
    }
    let message = |reason: &str, metric: &str, limit: u64, window_ms: u64| {
        let answer: ReserveResponse = serde_json::from_value(json!({
            "decision": "deny", "reason": reason, "refused_by": "l", "policy_version": "1", "retry_after_ms": 1000,
            "limits": [{"name": "l", "scope": {"tenant": "t"}, "metric": metric, "limit": limit, "remaining": 0,
                        "reset_ms": 1000, "window_ms": window_ms, "plan": "p"}]}))
        .unwrap();
        Refusal::denied(&answer, "m", 1, Reset::Duration).message
    };
    assert_eq!(
        message("budget_exceeded", "cost", 500_000_000_000, 86_400_000),
        "Rate limit reached for the limit 'l' of tenant t (plan p): 500.00 US dollars per 1d, 0.00 US dollars \
         remaining. Please try again in 1.000s."
    );
    assert_eq!(
        message("concurrency_limit_exceeded", "concurrency", 32, 0),
        "Rate limit reached for the limit 'l' of tenant t (plan p): 32 requests at a time, 0 remaining. Please try \
         again in 1.000s."
    );
}
