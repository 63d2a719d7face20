//! What happens between a reserve and its settle: another policy, a release that comes first, repeats.

use super::service::*;
use super::*;
use crate::limits::tests::Numbers;

/// Prices per million, the weight of output, the window of `tpm`, and further limits.
fn policy(price: &str, weight: u32, every: &str, more: &str) -> String {
    format!(
        r#"
version: "1"
models: [{{name: big, match: ["big*"], max_output_tokens: 1000, price_usd_per_million: {{input: "{price}", output: "{price}"}}}}]
plans: {{basic: {{models: ["*"]}}}}
keys: [{{sha256: "{}", tenant: t, plan: basic}}]
limits:
  - {{name: tpm, per: [tenant], count: tokens, algorithm: fixed_window, every: {every}, limit: 10000, weights: {{output: "{weight}"}}}}
  - {{name: spend, per: [tenant], count: cost, algorithm: fixed_window, every: 1h, limit: {{usd: "1.00"}}}}
{more}
"#,
        key('a')
    )
}

const OLD_ONLY: &str =
    "  - {name: old, per: [tenant], count: tokens, algorithm: fixed_window, every: 1h, limit: 10000}";
const NEW_ONLY: &str =
    "  - {name: new, per: [tenant], count: requests, algorithm: fixed_window, every: 1h, limit: 10}";

/// A stream that began under one policy ends by it: prices, weights, windows and limits are those of its record.
#[tokio::test]
async fn a_policy_that_changes_mid_stream() {
    let before = policy("2.00", 2, "1h", OLD_ONLY);
    let after = policy("30.00", 5, "2h", NEW_ONLY);
    let of_t = asked("t", Some("big"), None);
    for running in Running::both(&before).await {
        let held = running.reserve(&request(1, 10, Some(20))).await;
        assert_eq!(running.used(&of_t).await, uses(&[("tpm", 50), ("spend", 60_000), ("old", 30)]));

        running.replace_policy(&after);
        assert_eq!(running.used(&of_t).await, uses(&[("tpm", 0), ("spend", 60_000), ("new", 0)]));
        // An extension, too, is by the record.
        let extend = ExtendItem {
            id: ReservationId::from_bytes([1; 16]),
            account: held.account.clone(),
            hold_output_tokens: Some(30),
            lease: true,
        };
        let extended = running.quota.extend(&[extend]).await.unwrap();
        assert_eq!(extended.results[0].hold_output_tokens, Some(30));
        assert_eq!(running.used(&of_t).await, uses(&[("tpm", 0), ("spend", 80_000), ("new", 0)]));
        // So is a repeat of the reserve: nothing is held by the new policy.
        let again = running.reserve(&ReserveRequest { attempt: 2, ..request(1, 10, Some(20)) }).await;
        assert_eq!((again.decision, again.grant.max_output_tokens), (Decision::Allow, Some(20)));
        // What comes now is by the new one.
        let other = running.reserve(&request(2, 10, Some(20))).await;
        assert_eq!(other.policy_version, running.quota.policy().version);
        assert_ne!(other.policy_version, held.policy_version);
        let both = uses(&[("tpm", 110), ("spend", 80_000 + 900_000), ("new", 1)]);
        assert_eq!(running.used(&of_t).await, both);

        assert_eq!(running.settle(usage_of(1, &held.account, 10, 5)).await, SettleStatus::Settled);
        let settled = uses(&[("tpm", 110), ("spend", 30_000 + 900_000), ("new", 1)]);
        assert_eq!(running.used(&of_t).await, settled);
        assert_eq!(running.settle(usage_of(1, &held.account, 10, 5)).await, SettleStatus::AlreadySettled);
        // Usage without a hold has no record: it is booked by today's policy.
        assert_eq!(running.settle(item(3, Outcome::Used, Some(10))).await, SettleStatus::Booked);
        let booked = uses(&[("tpm", 160), ("spend", 30_000 + 900_000 + 300_000), ("new", 2)]);
        assert_eq!(running.used(&of_t).await, booked);

        // The buckets of before hold what the old rules make of the usage.
        running.replace_policy(&before);
        let old = uses(&[("tpm", 10 + 2 * 5), ("spend", 1_230_000), ("old", 15)]);
        assert_eq!(running.used(&of_t).await, old);
    }
}

/// A release that overtakes its reserve: nothing is held afterwards, and a later repeat changes nothing.
#[tokio::test]
async fn a_release_that_overtakes_its_reserve() {
    let of_t = asked("t", Some("big"), None);
    for running in Running::both(&policy("2.00", 2, "1h", OLD_ONLY)).await {
        let release = SettleItem { sent: false, ..item(1, Outcome::Released, None) };
        assert_eq!(running.settle(release.clone()).await, SettleStatus::Unknown);
        for attempt in [1, 2] {
            let late = running.reserve(&ReserveRequest { attempt, ..request(1, 10, Some(20)) }).await;
            assert_eq!((late.decision, late.account.as_str()), (Decision::Gone, ""));
        }
        assert_eq!(running.settle(release).await, SettleStatus::AlreadySettled);
        assert_eq!(running.used(&of_t).await, uses(&[("tpm", 0), ("spend", 0), ("old", 0)]));
        let explained = running.quota.explain(&of_t).await.unwrap();
        assert_eq!((explained.open_holds, explained.open_tokens), (0, 0));
    }
}

/// Four callers settle the same 40 reservations over and over, each in an order of its own: each counts once.
#[tokio::test]
async fn repeated_settles_from_all_sides() {
    let of_t = asked("t", Some("big"), None);
    for running in Running::both(&policy("2.00", 1, "1h", OLD_ONLY)).await {
        let mut accounts = Vec::new();
        for number in 0..40 {
            accounts.push(running.reserve(&request(number, 10, Some(20))).await.account);
        }
        let callers: Vec<_> = (0..4_u64)
            .map(|caller| {
                let (quota, accounts) = (running.quota.clone(), accounts.clone());
                tokio::spawn(async move {
                    let mut numbers = Numbers(caller + 77);
                    let mut settled = 0;
                    for _ in 0..25 {
                        let batch: Vec<_> = (0..100)
                            .map(|_| {
                                let number = numbers.below(40);
                                usage_of(number as u8, &accounts[number as usize], 7, number)
                            })
                            .collect();
                        let answer = quota.settle(&batch).await.unwrap();
                        let first = |status| status == SettleStatus::Settled;
                        settled += answer.results.iter().filter(|result| first(result.status)).count();
                    }
                    settled
                })
            })
            .collect();
        let mut settled = 0;
        for caller in callers {
            settled += caller.await.unwrap();
        }
        assert_eq!(settled, 40);
        let tokens = (0..40).map(|number| 7 + number).sum::<u64>();
        let expected = uses(&[("tpm", tokens), ("spend", tokens * 2_000), ("old", tokens)]);
        assert_eq!(running.used(&of_t).await, expected);
        assert_eq!(running.events().len(), 40);
    }
}
