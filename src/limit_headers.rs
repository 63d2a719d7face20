//! `x-ratelimit-*` and the retry headers: what a caller's SDK paces itself by.

use tokengate_api::{LimitState, Metric};

use crate::config::Reset;

/// Above this an SDK does not wait, or waits for something else; see `x-should-retry`.
const LONGEST_WAIT_MS: u64 = 60_000;

pub type HeaderList = Vec<(&'static str, String)>;

/// Limit, remaining and reset of the tightest request limit and of the tightest token limit.
pub fn rate_limit(limits: &[LimitState], reset: Reset) -> HeaderList {
    let mut headers = HeaderList::new();
    for (metric, [limit, remaining, resets]) in [
        (
            Metric::Requests,
            ["x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"],
        ),
        (
            Metric::Tokens,
            ["x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"],
        ),
    ] {
        let of_metric = limits.iter().filter(|state| state.metric == metric && !state.shadow);
        if let Some(tightest) = of_metric.min_by_key(|state| state.remaining) {
            headers.push((limit, tightest.limit.to_string()));
            headers.push((remaining, tightest.remaining.min(tightest.limit).to_string()));
            headers.push((resets, seconds(tightest.reset_ms, reset)));
        }
    }
    headers
}

/// When to come back, where a time is known; and whether coming back helps at all.
pub fn retry(after_ms: Option<u64>) -> HeaderList {
    let mut headers = HeaderList::new();
    if let Some(ms) = after_ms {
        headers.push(("retry-after", ms.div_ceil(1000).max(1).to_string()));
        headers.push(("retry-after-ms", ms.max(1).to_string()));
    }
    if after_ms.is_none_or(|ms| ms > LONGEST_WAIT_MS) {
        headers.push(("x-should-retry", "false".to_owned()));
    }
    headers
}

/// Seconds with at most three decimals.
fn seconds(ms: u64, reset: Reset) -> String {
    let (whole, fraction) = (ms / 1000, ms % 1000);
    let number = if fraction == 0 {
        whole.to_string()
    } else {
        format!("{whole}.{fraction:03}").trim_end_matches('0').to_owned()
    };
    match reset {
        Reset::Duration => number + "s",
        Reset::Seconds => number,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(metric: Metric, limit: u64, remaining: u64, reset_ms: u64) -> LimitState {
        LimitState {
            name: "n".to_owned(),
            scope: Default::default(),
            metric,
            limit,
            remaining,
            held: None,
            reset_ms,
            window_ms: 60_000,
            plan: None,
            shadow: false,
        }
    }

    #[test]
    fn the_tightest_of_each_kind_is_told() {
        let limits = [
            state(Metric::Tokens, 1_000, 900, 12_300),
            state(Metric::Tokens, 5_000, 40, 200),
            state(Metric::Requests, 60, 59, 360_000),
            LimitState { shadow: true, ..state(Metric::Requests, 1, 0, 1) },
        ];
        let text: Vec<String> =
            rate_limit(&limits, Reset::Duration).iter().map(|(k, v)| format!("{k}={v}")).collect();
        assert_eq!(
            text,
            [
                "x-ratelimit-limit-requests=60",
                "x-ratelimit-remaining-requests=59",
                "x-ratelimit-reset-requests=360s",
                "x-ratelimit-limit-tokens=5000",
                "x-ratelimit-remaining-tokens=40",
                "x-ratelimit-reset-tokens=0.2s",
            ]
        );
        assert!(rate_limit(&[], Reset::Duration).is_empty());
    }

    #[test]
    fn times_are_readable_by_simple_parsers() {
        for (ms, text) in [(0, "0s"), (9, "0.009s"), (200, "0.2s"), (12_300, "12.3s"), (360_000, "360s")] {
            assert_eq!(seconds(ms, Reset::Duration), text);
        }
        assert_eq!(seconds(1_010, Reset::Seconds), "1.01");
    }

    #[test]
    fn retry_is_rounded_up_and_useless_waits_are_said() {
        let text = |after| retry(after).iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>();
        assert_eq!(text(Some(12_300)), ["retry-after=13", "retry-after-ms=12300"]);
        assert_eq!(text(Some(200)), ["retry-after=1", "retry-after-ms=200"]);
        assert_eq!(text(Some(0)), ["retry-after=1", "retry-after-ms=1"]);
        assert_eq!(
            text(Some(10_800_000)),
            ["retry-after=10800", "retry-after-ms=10800000", "x-should-retry=false"]
        );
        assert_eq!(text(None), ["x-should-retry=false"]);
    }
}
