#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]
use std::collections::BTreeMap;

use super::*;
use crate::limits::Gauge;
use crate::policy::Identity;
use crate::store::tests::{Amount, hold, requests, tokens};

const SLOTS: Algorithm = Algorithm::Concurrency { lease_ms: 60_000 };
const MONTH: Algorithm = Algorithm::CalendarWindow { boundaries_ms: [0, 1, 2, 3] };

/// A plan of these limits, and an answer in which each waits so.
fn decision(limits: &[(Amount, Metric, Wait)]) -> (RequestPlan, Reserved) {
    let label = |(number, (_, metric, _)): (usize, &(Amount, Metric, Wait))| Label {
        name: number.to_string(),
        scope: BTreeMap::new(),
        metric: *metric,
        window_ms: 60_000,
        overridden: None,
    };
    let charges: Vec<_> = limits.iter().map(|(amount, _, _)| *amount).collect();
    let plan = RequestPlan {
        hold: hold(1, &charges),
        model: None,
        identity: Identity { tenant: "tenant".to_owned(), plan: "plan".to_owned(), user: None },
        labels: limits.iter().enumerate().map(label).collect(),
    };
    let standing = |(_, _, wait): &(Amount, Metric, Wait)| Standing {
        gauge: Gauge { used: 40, remaining: 60, reset_ms: 5 },
        would_deny: *wait != Wait::No,
        wait: *wait,
    };
    let limits = limits.iter().map(standing).collect();
    (plan, Reserved { verdict: Verdict::Refused, now_ms: 0, limits })
}

fn refused(limits: &[(Amount, Metric, Wait)]) -> Option<(Reason, String, Option<u64>, bool)> {
    let (plan, reserved) = decision(limits);
    refusal(&plan, &reserved)
        .map(|refusal| (refusal.reason, refusal.by, refusal.retry_after_ms, refusal.estimated))
}

#[test]
fn what_can_never_fit_comes_before_periods_and_they_before_the_longest_wait() {
    let minute = (tokens(1, 0), Metric::Tokens, Wait::Ms(50_000));
    let requests_ = (requests(1), Metric::Requests, Wait::Ms(60_000));
    let month = (tokens(1, 0).algorithm(MONTH), Metric::Cost, Wait::Ms(1_000));
    let tokens_month = (tokens(1, 0).algorithm(MONTH), Metric::Tokens, Wait::Ms(1_000));
    let balance = (tokens(1, 0).algorithm(Algorithm::Balance), Metric::Cost, Wait::Unknown);
    let never = (tokens(1, 0), Metric::Tokens, Wait::Never);
    let slots = (requests(1).algorithm(SLOTS), Metric::Requests, Wait::Estimate(1_000));
    let fits = (requests(1), Metric::Requests, Wait::No);
    let shadow = (tokens(1, 0).shadow(), Metric::Tokens, Wait::Never);
    use Reason::*;
    for (limits, reason, by, retry_after_ms, estimated) in [
        (vec![fits, minute, requests_], RpmLimitExceeded, 2, Some(60_000), false),
        (vec![minute, minute], TpmLimitExceeded, 0, Some(50_000), false),
        (vec![minute, never, month], RequestExceedsLimit, 1, None, false),
        // The reason is the period's; the time is when all of them fit.
        (vec![minute, month], BudgetExceeded, 1, Some(50_000), false),
        (vec![tokens_month], QuotaExceeded, 0, Some(1_000), false),
        (vec![month, balance, minute], BudgetExceeded, 1, None, false),
        (vec![slots], ConcurrencyLimitExceeded, 0, Some(1_000), true),
        (vec![slots, minute], TpmLimitExceeded, 1, Some(50_000), true),
        (vec![shadow, minute], TpmLimitExceeded, 1, Some(50_000), false),
    ] {
        let expected = Some((reason, by.to_string(), retry_after_ms, estimated));
        assert_eq!(refused(&limits), expected, "{limits:?}");
    }
    assert_eq!(refused(&[fits, shadow]), None);
}

#[test]
fn limits_are_shown_as_they_stand() {
    let balance = tokens(1, 0).algorithm(Algorithm::Balance);
    let (plan, reserved) =
        decision(&[(tokens(90, 0).shadow(), Metric::Tokens, Wait::No), (balance, Metric::Cost, Wait::No)]);
    let states = limit_states(&plan, &reserved);
    assert_eq!((states[0].limit, states[0].remaining, states[0].reset_ms), (90, 60, 5));
    assert!(states[0].shadow && !states[1].shadow);
    // A balance has no limit but what was granted.
    assert_eq!((states[1].limit, states[1].remaining), (100, 60));
}

#[test]
fn the_filter_is_told_of_the_shortest_lease() {
    let other = Algorithm::Concurrency { lease_ms: 30_000 };
    let slots = |algorithm| (requests(1).algorithm(algorithm), Metric::Requests, Wait::No);
    assert_eq!(lease_ms(&decision(&[slots(SLOTS), slots(other)]).0), Some(30_000));
    assert_eq!(lease_ms(&decision(&[(requests(1), Metric::Requests, Wait::No)]).0), None);
}

/// Without a store a request goes where every enforcing limit is open.
#[test]
fn a_missing_store_is_answered_by_each_limits_mode() {
    use std::sync::Arc;

    use crate::clock::SystemClock;
    use crate::policy::Policy;
    use crate::release_queue::ReleaseQueue;
    use crate::store::Lifetimes;
    use crate::store::memory::MemoryStore;

    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../policy.yaml");
    let open = |mut amount: Amount| {
        amount.charge.on_store_failure = OnStoreFailure::Open;
        amount
    };
    for (charges, decision) in [
        (vec![open(requests(1)), open(tokens(1, 0)), tokens(1, 0).shadow()], Decision::Allow),
        (vec![open(requests(1)), tokens(1, 0)], Decision::Deny),
        (vec![], Decision::Allow),
    ] {
        let releases = ReleaseQueue::default();
        let store = Arc::new(MemoryStore::new(Arc::new(SystemClock), Lifetimes::default()));
        let quota =
            Quota::new(Policy::load(file.as_ref()).unwrap(), store, releases.clone(), Arc::new(SystemClock));
        let limits: Vec<_> = charges.iter().map(|amount| (*amount, Metric::Tokens, Wait::No)).collect();
        let plan = self::decision(&limits).0;
        let answer = quota.undecided(&plan, &StoreError::Timeout, answer(&quota.policy()));
        assert_eq!(answer.decision, decision, "{charges:?}");
        let allowed = decision == Decision::Allow;
        assert_eq!((answer.degraded, answer.reason.is_none()), (allowed, allowed));
        // What is let through is closed by its own settle.
        assert_eq!(releases.is_empty(), allowed);
        assert_eq!(answer.grant.max_output_tokens, allowed.then_some(7));
    }
}
