//! Refused for what others hold: it is worth another try in a moment, however far away the window's end is.

use super::service::*;
use super::*;

const LIMITS: [(&str, &str); 8] = [
    ("fixed", "algorithm: fixed_window, every: 24h, limit: 100"),
    ("sliding", "algorithm: sliding_window, every: 24h, limit: 100"),
    ("calendar", "algorithm: fixed_window, calendar: day, limit: 100"),
    ("month", "algorithm: fixed_window, calendar: month, limit: 100"),
    ("bucket", "algorithm: token_bucket, capacity: 100, refill: {amount: 100, every: 24h}"),
    ("balance", "algorithm: balance, plans: [basic]"),
    ("shared", "per: [], shared: true, algorithm: fixed_window, every: 24h, limit: 100"),
    ("model", "per: [tenant, model], algorithm: fixed_window, every: 1h, limit: 100"),
];

fn policy(limits: &str) -> String {
    format!(
        r#"
version: "1"
models: [{{name: big, match: ["big*"], max_output_tokens: 1000, price_usd_per_million: {{input: "1.00", output: "1.00"}}}}]
plans: {{basic: {{models: ["*"]}}, tight: {{models: ["*"], output: {{when_tight: clamp, min_tokens: 5}}}}}}
keys:
  - {{sha256: "{}", tenant: t, plan: basic}}
  - {{sha256: "{}", tenant: tight, plan: tight}}
limits:
{limits}
"#,
        key('a'),
        key('b'),
    )
}

fn limit_of(name: &str, text: &str) -> String {
    let per = if text.contains("per:") { "" } else { "per: [tenant], " };
    format!("  - {{name: {name}, {per}count: tokens, {text}}}\n")
}

fn by(digit: char, number: u8, output: u64) -> ReserveRequest {
    // Slow machines are not what is tried here.
    let deadline_ms = 10_000;
    ReserveRequest { key_hash: key(digit), deadline_ms, ..request(number, 10, Some(output)) }
}

fn unsent(number: u8, account: &str) -> SettleItem {
    let item = item(number, Outcome::Released, None);
    SettleItem { account: Some(account.to_owned()), reserve: None, sent: false, ..item }
}

async fn topped_up(running: &Running) {
    use crate::quota::target::BucketName;

    let bucket = BucketName { tenant: "t".to_owned(), limit: "balance".to_owned(), ..BucketName::default() };
    let top_up = TopUpRequest { bucket, grant_id: "g".to_owned(), amount: Some(100), usd: None };
    running.quota.top_up(&top_up).await.unwrap();
}

/// Under every algorithm: a second as long as it is held, the window's end once it is used.
#[tokio::test]
async fn what_open_holds_take_is_worth_another_try() {
    for (name, text) in LIMITS {
        for running in Running::both(&policy(&limit_of(name, text))).await {
            if name == "balance" {
                topped_up(&running).await;
            }
            let first = running.reserve(&by('a', 1, 50)).await;
            assert_eq!((first.decision, limit(&first, name).held), (Decision::Allow, Some(60)), "{name}");
            let refused = running.reserve(&by('a', 2, 50)).await;
            assert_eq!(refused.decision, Decision::Deny, "{name}");
            assert_eq!(
                (refused.retry_after_ms, refused.retry_after_estimated),
                (Some(1_000), true),
                "{name}"
            );
            let state = limit(&refused, name);
            assert_eq!((state.remaining, state.held), (40, Some(60)), "{name}");
            // Larger than the whole, or what is used already leaves too little: a settle does not help.
            let never = running.reserve(&by('a', 3, 91)).await;
            if name != "balance" {
                assert_eq!(never.reason, Some(Reason::RequestExceedsLimit), "{name}");
            }
            assert_eq!(never.retry_after_ms, None, "{name}");
            assert_eq!(running.settle(usage_of(1, &first.account, 10, 45)).await, SettleStatus::Settled);
            let refused = running.reserve(&by('a', 4, 50)).await;
            assert_eq!(limit(&refused, name).held, Some(0), "{name}");
            let long = refused.retry_after_ms.is_none_or(|ms| ms > 60_000);
            assert!(long && !refused.retry_after_estimated, "{name}: {:?}", refused.retry_after_ms);
            assert_eq!(refused.retry_after_ms.is_none(), name == "balance");
            // Of what is held now, too little is in the way.
            let second = running.reserve(&by('a', 5, 10)).await;
            assert_eq!((second.decision, limit(&second, name).held), (Decision::Allow, Some(20)), "{name}");
            let refused = running.reserve(&by('a', 6, 50)).await;
            assert_eq!(limit(&refused, name).held, Some(20), "{name}");
            assert!(!refused.retry_after_estimated, "{name}");
            assert_eq!(running.settle(unsent(5, &second.account)).await, SettleStatus::Settled);
            assert_eq!(running.reserve(&by('a', 7, 35)).await.decision, Decision::Allow, "{name}");
        }
    }
}

/// One limit that is used up is waited for, whatever the others hold; and it is the one that is named.
#[tokio::test]
async fn what_is_used_up_is_named_before_what_is_held() {
    let limits = [
        limit_of("day", "algorithm: fixed_window, calendar: day, limit: 100"),
        "  - {name: rpm, per: [tenant], count: requests, algorithm: fixed_window, every: 1m, limit: 1}\n"
            .to_owned(),
    ];
    for running in Running::both(&policy(&limits.concat())).await {
        assert_eq!(running.reserve(&by('a', 1, 50)).await.decision, Decision::Allow);
        let refused = running.reserve(&by('a', 2, 50)).await;
        assert_eq!((refused.refused_by.as_deref(), refused.retry_after_ms), (Some("rpm"), Some(60_000)));
        assert_eq!(refused.reason, Some(Reason::RpmLimitExceeded));
        // A request that was sent stays counted: nothing of it is held.
        assert_eq!((limit(&refused, "rpm").held, limit(&refused, "day").held), (None, Some(60)));
        running.clock.set(T0 + 60_000);
        let refused = running.reserve(&by('a', 2, 50)).await;
        assert_eq!((refused.refused_by.as_deref(), refused.retry_after_ms), (Some("day"), Some(1_000)));
    }
}

/// A window that ends sooner than that says so exactly.
#[tokio::test]
async fn a_window_that_ends_first_is_exact() {
    let minute = policy(&limit_of("minute", "algorithm: fixed_window, every: 1m, limit: 100"));
    for running in Running::both(&minute).await {
        running.clock.set(T0 + 59_700);
        assert_eq!(running.reserve(&by('a', 1, 50)).await.decision, Decision::Allow);
        let refused = running.reserve(&by('a', 2, 50)).await;
        assert_eq!((refused.retry_after_ms, refused.retry_after_estimated), (Some(300), false));
    }
}

/// Who takes less where less fits is refused for less, too.
#[tokio::test]
async fn what_may_be_clamped_needs_only_its_least() {
    let limits = limit_of("day", "algorithm: fixed_window, every: 24h, limit: 100");
    for running in Running::both(&policy(&limits)).await {
        // The whole limit is granted, and more would be asked for.
        let first = running.reserve(&by('b', 1, 500)).await;
        assert_eq!((first.decision, first.grant.max_output_tokens), (Decision::Allow, Some(90)));
        let refused = running.reserve(&by('b', 2, 500)).await;
        assert_eq!((refused.decision, refused.retry_after_ms), (Decision::Deny, Some(1_000)));
        assert_ne!(refused.reason, Some(Reason::RequestExceedsLimit));
        assert_eq!(running.settle(usage_of(1, &first.account, 10, 85)).await, SettleStatus::Settled);
        // Tomorrow less than the whole is granted again: it is not too large for ever.
        let refused = running.reserve(&by('b', 3, 500)).await;
        assert_eq!(refused.reason, Some(Reason::TpmLimitExceeded));
        assert!(refused.retry_after_ms.is_some_and(|ms| ms > 60_000), "{:?}", refused.retry_after_ms);
        assert_eq!(running.settle(unsent(1, &first.account)).await, SettleStatus::AlreadySettled);
        let too_long = ReserveRequest { prompt_tokens: 96, ..by('b', 4, 500) };
        assert_eq!(running.reserve(&too_long).await.reason, Some(Reason::RequestExceedsLimit));
    }
}

/// Nobody comes back for a hold: after its record's life it is used.
#[tokio::test]
async fn what_has_lapsed_is_waited_for() {
    let day = policy(&limit_of("day", "algorithm: fixed_window, every: 24h, limit: 100"));
    for running in Running::both(&day).await {
        assert_eq!(running.reserve(&by('a', 1, 50)).await.decision, Decision::Allow);
        running.clock.set(T0 + 4_199_000);
        assert_eq!(running.reserve(&by('a', 2, 50)).await.retry_after_ms, Some(1_000));
        running.clock.set(T0 + 4_200_000);
        let refused = running.reserve(&by('a', 2, 50)).await;
        assert!(refused.retry_after_ms.is_some_and(|ms| ms > 60_000), "{:?}", refused.retry_after_ms);
        assert_eq!(limit(&refused, "day").held, Some(0));
    }
}

/// Explain says what is held of each limit, without looking at the holds.
#[tokio::test]
async fn explain_says_what_is_held() {
    let limits = [
        limit_of("day", "algorithm: fixed_window, every: 24h, limit: 100"),
        "  - {name: rpm, per: [tenant], count: requests, algorithm: fixed_window, every: 1m, limit: 9}\n"
            .to_owned(),
        "  - {name: slots, per: [tenant], algorithm: concurrency, lease: 1m, limit: 9}\n".to_owned(),
    ];
    for running in Running::both(&policy(&limits.concat())).await {
        assert_eq!(running.reserve(&by('a', 1, 50)).await.decision, Decision::Allow);
        let other = ReserveRequest { model: None, endpoint: "models".to_owned(), ..by('a', 2, 0) };
        assert_eq!(running.reserve(&other).await.decision, Decision::Allow);
        let explained = running.quota.explain(&asked("t", Some("big"), None)).await.unwrap();
        let held: Vec<_> = explained.limits.iter().map(|row| (row.name.as_str(), row.held)).collect();
        assert_eq!(held, [("day", Some(60)), ("rpm", None), ("slots", Some(2))]);
        assert_eq!((explained.open_holds, explained.all_open_holds), (1, 2));
    }
}

/// Let through while the store was away: a request that came back without usage counts, one that was not sent does not.
#[tokio::test]
async fn a_request_that_was_let_through_counts() {
    let limits = [
        limit_of("day", "algorithm: fixed_window, every: 24h, limit: 100"),
        "  - {name: rpm, per: [tenant], count: requests, algorithm: fixed_window, every: 1m, limit: 9}\n"
            .to_owned(),
        "  - {name: tries, per: [tenant], count: attempts, algorithm: fixed_window, every: 1m, limit: 9}\n"
            .to_owned(),
        "  - {name: slots, per: [tenant], algorithm: concurrency, lease: 1m, limit: 9}\n".to_owned(),
    ];
    for running in Running::both(&policy(&limits.concat())).await {
        let of = asked("t", Some("big"), None);
        let let_through = |number: u8, outcome, sent, output| {
            let item = SettleItem { reserve: Some(by('a', number, 30)), ..item(number, outcome, output) };
            SettleItem { sent, ..item }
        };
        let mut counted = 0;
        for (number, outcome, sent, output, status, tokens) in [
            (1, Outcome::Released, true, None, SettleStatus::Booked, 0),
            (2, Outcome::Held, true, None, SettleStatus::Booked, 40),
            (3, Outcome::Used, true, Some(7), SettleStatus::Booked, 7),
            (4, Outcome::Estimated, true, None, SettleStatus::Booked, 40),
            (5, Outcome::Released, false, None, SettleStatus::Unknown, 0),
        ] {
            let before = running.used(&of).await["day"];
            let settled = let_through(number, outcome, sent, output);
            assert_eq!(running.settle(settled.clone()).await, status, "{outcome:?}");
            counted += u64::from(status == SettleStatus::Booked);
            let used = running.used(&of).await;
            let expected = [("day", before + tokens), ("rpm", counted), ("slots", 0), ("tries", counted)];
            assert_eq!(used, uses(&expected), "{outcome:?}");
            // Once.
            assert_eq!(running.settle(settled).await, SettleStatus::AlreadySettled);
            assert_eq!(running.used(&of).await, uses(&expected), "{outcome:?}");
        }
        let late = SettleItem { age_ms: 3_900_000, ..let_through(6, Outcome::Released, true, None) };
        assert_eq!(running.settle(late).await, SettleStatus::Late);
        let event = running.events().into_iter().find(|event| event["outcome"] == "released").unwrap();
        assert_eq!((&event["status"], &event["charged_tokens"]), (&"booked".into(), &0.into()));
    }
}
