use std::time::Duration;

use super::*;
use crate::limits::Rates;
use crate::store::{Closing, HeldRecord, Settled, Settlement, Verdict};
use crate::tag::Tag;

over_both_stores!(suite:
    usage_replaces_the_hold, what_was_held_is_told, what_was_held_is_charged, a_release_gives_back, only_the_first_settle_counts,
    a_close_before_its_reserve, usage_without_a_hold_is_booked, what_is_unknown_stays_unknown_until_it_is_booked, too_old_changes_nothing,
    an_excess_is_charged_in_full, an_excess_goes_to_the_current_window, a_refund_goes_to_its_window_or_nowhere,
    hold_and_release_is_nothing, a_release_by_attempt, a_batch_answers_in_order,
);

fn both(tokens_held: u64) -> [Amount; 2] {
    [requests(100), tokens(100, tokens_held)]
}

async fn state(fixture: &Fixture) -> (u64, u64, u64) {
    let state = fixture.explain(&both(0)).await;
    (state.gauges[0].used, state.gauges[1].used, state.open_holds)
}

pub mod suite {
    use super::*;

    pub async fn usage_replaces_the_hold(fixture: Fixture) {
        fixture.reserve(&hold(1, &both(60))).await;
        assert_eq!(state(&fixture).await, (1, 60, 1));
        assert_eq!(fixture.settle(settlement(1, used(13))).await, Settled::Replaced);
        assert_eq!(state(&fixture).await, (1, 13, 0));
        fixture.reserve(&hold(2, &both(60))).await;
        assert_eq!(fixture.settle(settlement(2, used(60))).await, Settled::Replaced);
        assert_eq!(state(&fixture).await, (2, 73, 0));
    }

    pub async fn what_was_held_is_told(fixture: Fixture) {
        let prices = Rates { input: 7, output: 9, per: 1_000, ..Rates::TOKENS };
        let mut cost = tokens(1_000, 60).named("cost").rates(prices);
        cost.charge.priced = true;
        let weighted = tokens(1_000, 60).named("weighted").rates(Rates { per: 1_000, ..prices });
        fixture.clock.set(T0 + 5_000);
        fixture.reserve(&hold(1, &[weighted, cost])).await;
        fixture.reserve(&hold(2, &[weighted])).await;
        fixture.clock.set(T0 + 9_000);
        fixture.extend(extension(1, 15)).await;
        let batch =
            [settlement(1, used(3)), settlement(2, UNSENT), settlement(1, used(3)), settlement(9, UNSENT)];
        let answers = fixture.store.settle(&batch, &|_, _| None, TIME).await;
        let held: Vec<_> = answers.into_iter().map(|answer| answer.unwrap().held).collect();
        let first = HeldRecord {
            model: model(),
            plan: Some(Tag::plan("plan")),
            prompt_tokens: 60,
            output_tokens: 15,
            reserved_at_ms: Some(T0 + 5_000),
            prices: Some(prices),
        };
        let second = HeldRecord { output_tokens: 0, prices: None, ..first };
        assert_eq!(held, [Some(first), Some(second), None, None]);
    }

    pub async fn what_was_held_is_charged(fixture: Fixture) {
        fixture.reserve(&hold(1, &both(60))).await;
        assert_eq!(fixture.settle(settlement(1, Closing::Held)).await, Settled::Replaced);
        assert_eq!(state(&fixture).await, (1, 60, 0));
    }

    pub async fn a_release_gives_back(fixture: Fixture) {
        fixture.reserve(&hold(1, &both(60))).await;
        assert_eq!(fixture.settle(settlement(1, RELEASED)).await, Settled::Replaced);
        assert_eq!(state(&fixture).await, (1, 0, 0));
        fixture.reserve(&hold(2, &both(60))).await;
        assert_eq!(fixture.settle(settlement(2, UNSENT)).await, Settled::Replaced);
        assert_eq!(state(&fixture).await, (1, 0, 0));
    }

    pub async fn only_the_first_settle_counts(fixture: Fixture) {
        fixture.reserve(&hold(1, &both(60))).await;
        fixture.settle(settlement(1, used(13))).await;
        let before = fixture.dump();
        for again in [used(13), used(99), Closing::Held, RELEASED, UNSENT] {
            assert_eq!(fixture.settle(settlement(1, again)).await, Settled::Already);
        }
        assert_eq!(fixture.settle(booking(1, &both(60), 40)).await, Settled::Already);
        assert_eq!(fixture.verdict(&hold(1, &both(60))).await, Verdict::Gone);
        assert_eq!(fixture.dump(), before);
        assert_eq!(state(&fixture).await, (1, 13, 0));
    }

    pub async fn a_close_before_its_reserve(fixture: Fixture) {
        assert_eq!(fixture.settle(settlement(1, UNSENT)).await, Settled::Unknown);
        assert_eq!(fixture.settle(settlement(1, UNSENT)).await, Settled::Already);
        let before = fixture.dump();
        let mut late = hold(1, &both(60));
        late.attempt = 2;
        assert_eq!(fixture.verdict(&late).await, Verdict::Gone);
        assert_eq!(fixture.dump(), before);
        assert_eq!(state(&fixture).await, (0, 0, 0));
    }

    /// The first answer may be lost: a repeat must not say that something was charged.
    pub async fn what_is_unknown_stays_unknown_until_it_is_booked(fixture: Fixture) {
        for closing in [used(40), Closing::Held, RELEASED] {
            for _ in 0..2 {
                assert_eq!(fixture.settle(settlement(1, closing)).await, Settled::Unknown);
            }
        }
        assert_eq!(state(&fixture).await, (0, 0, 0));
        assert_eq!(fixture.settle(booking(1, &both(60), 40)).await, Settled::Booked);
        assert_eq!(fixture.settle(settlement(1, used(40))).await, Settled::Already);
        assert_eq!(state(&fixture).await, (1, 40, 0));
    }

    pub async fn usage_without_a_hold_is_booked(fixture: Fixture) {
        fixture.clock.set(T0 + 90_000);
        assert_eq!(fixture.settle(booking(1, &both(60), 250)).await, Settled::Booked);
        assert_eq!(state(&fixture).await, (1, 250, 0));
        assert_eq!(fixture.settle(booking(1, &both(60), 250)).await, Settled::Already);
        assert_eq!(fixture.verdict(&hold(1, &both(60))).await, Verdict::Gone);
        assert_eq!(fixture.verdict(&hold(2, &both(0))).await, Verdict::Refused);
        // After a close that came first, too.
        fixture.settle(settlement(3, UNSENT)).await;
        assert_eq!(fixture.settle(booking(3, &both(60), 10)).await, Settled::Booked);
        assert_eq!(state(&fixture).await, (2, 260, 0));
    }

    pub async fn too_old_changes_nothing(fixture: Fixture) {
        let minutes = |minutes: u64| minutes * MINUTE;
        let before = fixture.dump();
        let old = Settlement { age_ms: minutes(65), ..booking(1, &both(60), 10) };
        assert_eq!(fixture.settle(old).await, Settled::Late);
        let waited = Settlement { queued_ms: minutes(5), ..booking(1, &both(60), 10) };
        assert_eq!(fixture.settle(waited).await, Settled::Late);
        assert_eq!(fixture.dump(), before);
        let just =
            Settlement { age_ms: minutes(65) - 1, queued_ms: minutes(5) - 1, ..booking(1, &both(60), 10) };
        assert_eq!(fixture.settle(just).await, Settled::Booked);
    }

    pub async fn an_excess_is_charged_in_full(fixture: Fixture) {
        let limit = |amount| [tokens(500, amount)];
        fixture.reserve(&hold(1, &limit(400))).await;
        fixture.reserve(&hold(2, &limit(100))).await;
        assert_eq!(fixture.settle(settlement(2, used(900))).await, Settled::Replaced);
        assert_eq!(fixture.used(&limit(0)[0]).await, 1300);
        assert_eq!(fixture.verdict(&hold(3, &limit(1))).await, Verdict::Refused);
    }

    pub async fn an_excess_goes_to_the_current_window(fixture: Fixture) {
        fixture.reserve(&hold(1, &both(60))).await;
        fixture.clock.set(T0 + 5 * MINUTE);
        assert_eq!(fixture.settle(settlement(1, used(70))).await, Settled::Replaced);
        let state = fixture.explain(&both(0)).await;
        assert_eq!(uses(&state.gauges), [0, 10]);
    }

    pub async fn a_refund_goes_to_its_window_or_nowhere(fixture: Fixture) {
        fixture.reserve(&hold(1, &both(60))).await;
        fixture.clock.set(T0 + MINUTE);
        fixture.reserve(&hold(2, &both(40))).await;
        assert_eq!(fixture.settle(settlement(1, UNSENT)).await, Settled::Replaced);
        assert_eq!(state(&fixture).await, (1, 40, 1));
        assert_eq!(fixture.settle(settlement(2, UNSENT)).await, Settled::Replaced);
        assert_eq!(state(&fixture).await, (0, 0, 0));
    }

    pub async fn hold_and_release_is_nothing(fixture: Fixture) {
        fixture.reserve(&hold(1, &both(11))).await;
        let before = fixture.explain(&both(0)).await;
        fixture.reserve(&hold(2, &both(60))).await;
        fixture.settle(settlement(2, UNSENT)).await;
        assert_eq!(fixture.explain(&both(0)).await, before);
    }

    /// The service's own release of a reserve without an answer.
    pub async fn a_release_by_attempt(fixture: Fixture) {
        let by = |number, attempt| Settlement { attempt: Some(attempt), ..settlement(number, UNSENT) };
        let reserve = |number, attempt| {
            let mut hold = hold(number, &both(10));
            hold.attempt = attempt;
            hold
        };
        // A later attempt was answered from the record: nothing is closed.
        fixture.reserve(&reserve(1, 1)).await;
        assert_eq!(fixture.verdict(&reserve(1, 2)).await, REPLAYED);
        assert_eq!(fixture.settle(by(1, 1)).await, Settled::Unknown);
        assert_eq!(state(&fixture).await, (1, 10, 1));
        assert_eq!(fixture.settle(by(1, 2)).await, Settled::Replaced);
        // The release comes first: its own attempt is gone, a later one is not.
        assert_eq!(fixture.settle(by(2, 1)).await, Settled::Unknown);
        assert_eq!(fixture.verdict(&reserve(2, 1)).await, Verdict::Gone);
        assert_eq!(fixture.verdict(&reserve(2, 2)).await, HELD);
        assert_eq!(fixture.verdict(&reserve(2, 1)).await, REPLAYED);
        assert_eq!(state(&fixture).await, (1, 10, 1));
    }

    pub async fn a_batch_answers_in_order(fixture: Fixture) {
        fixture.reserve(&hold(1, &both(10))).await;
        fixture.reserve(&hold(2, &both(10))).await;
        let batch = [
            settlement(2, used(1)),
            settlement(9, UNSENT),
            settlement(1, used(2)),
            settlement(2, used(5)),
            booking(3, &both(0), 4),
        ];
        let answers = fixture.settle_all(&batch).await;
        let answers: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
        use Settled::*;
        assert_eq!(answers, [Replaced, Unknown, Replaced, Already, Booked]);
        assert_eq!(state(&fixture).await, (3, 7, 0));
        assert!(fixture.settle_all(&[]).await.is_empty());
    }
}

/// A memory that forgets what is over, and keeps a charge whose record has lapsed.
#[tokio::test]
async fn memory_forgets() {
    let fixture = Fixture::memory();
    fixture.reserve(&hold(1, &both(60))).await;
    fixture.clock.set(T0 + 70 * MINUTE - 1);
    assert_eq!(fixture.open_holds().await, 1);
    fixture.clock.set(T0 + 70 * MINUTE);
    assert_eq!(fixture.open_holds().await, 0);
    assert_eq!(fixture.settle(settlement(1, used(1))).await, Settled::Unknown);
    for number in 0..1_000 {
        let at = T0 + 71 * MINUTE + number * 1_000;
        fixture.clock.set(at);
        let mut hold = hold(number + 10, &both(0));
        hold.charges[0].meter.bucket = bucket(&format!("one of many {number}"));
        fixture.reserve(&hold).await;
        fixture.settle(settlement(number + 10, used(1))).await;
    }
    // 2 minutes of buckets and 10 minutes of tombstones are left.
    let entries = fixture.dump().matches("until_ms").count();
    assert!(entries < 130 + 610, "{entries}");
    fixture.clock.set(T0 + 1_000 * MINUTE);
    for number in 0..30 {
        fixture.settle(settlement(number + 5_000, used(1))).await;
    }
    assert!(fixture.dump().matches("until_ms").count() <= 31);
    // A caller that never settles.
    for number in 0..100 {
        fixture.clock.set(T0 + (2_000 + number * 10) * MINUTE);
        fixture.reserve(&hold(number + 9_000, &both(0))).await;
    }
    let entries = fixture.dump().matches("until_ms").count();
    assert!(entries <= 10, "{entries}");
}

/// Every key in Redis ends; tombstones as the lifetimes say.
#[tokio::test]
async fn redis_forgets() {
    let fixture = Fixture::redis().await;
    let server = fixture.server.clone().unwrap();
    fixture.clock.set(T0 + 15_000);
    fixture.reserve(&hold(1, &both(60))).await;
    fixture.reserve(&hold(2, &both(0))).await;
    fixture.settle(settlement(2, used(1))).await;
    fixture.settle(settlement(3, UNSENT)).await;
    let life = |part: &str| {
        let keys: Vec<String> = server.command(&["KEYS", &format!("*{part}*")]);
        assert!(!keys.is_empty(), "{part}");
        let lives = keys.iter().map(|key| server.command::<i64>(&["PTTL", key]));
        Duration::from_millis(lives.max().unwrap().try_into().unwrap()).as_secs_f64().ceil()
    };
    assert_eq!(life(&format!(":r:{}", id(1))), 4200.0);
    assert_eq!(life(":o"), 4200.0 + 86_400.0);
    assert_eq!(life(":accounts"), 8.0 * 86_400.0);
    assert_eq!(life(&format!(":r:{}", id(2))), 600.0);
    assert_eq!(life(&format!(":r:{}", id(3))), 60.0);
    assert_eq!(life(":b:"), 105.0);
}

/// What the version before has held is settled and replayed, and not extended.
#[tokio::test]
async fn records_of_the_version_before() {
    use crate::store::Extended;
    use crate::store::codec::{double, put_amount};

    let fixture = Fixture::redis().await;
    let server = fixture.server.clone().unwrap();
    let charges = both(40);
    for number in [1, 2] {
        fixture.reserve(&hold(number, &charges)).await;
        let whole = hold(number, &charges);
        let mut record = vec![b'R', 1, 1, 2];
        record.extend(whole.identity.0);
        put_amount(&mut record, T0);
        put_amount(&mut record, T0);
        record.extend(whole.model.0);
        record.extend(double(7).to_be_bytes());
        put_amount(&mut record, 40);
        for (letter, amount, charge) in [(b'r', 1, charges[0]), (b't', 40, charges[1])] {
            record.push(letter);
            put_amount(&mut record, amount);
            put_amount(&mut record, MINUTE);
            let bucket = charge.charge.meter.bucket;
            record.extend([bucket.limit.0, bucket.subject.0].concat());
        }
        let key = format!("t:{{{}}}:r:{}", account(), id(number));
        let mut connection = server.connection();
        let () = ::redis::cmd("SET").arg(&key).arg(record).arg("KEEPTTL").query(&mut connection).unwrap();
        if number == 1 {
            assert_eq!(fixture.verdict(&whole).await, REPLAYED);
            assert_eq!(fixture.extend(extension(1, 100)).await, Extended::Refused);
            assert_eq!(fixture.settle(settlement(1, used(13))).await, Settled::Replaced);
            assert_eq!(state(&fixture).await, (1, 13, 0));
        }
    }
    assert_eq!(fixture.settle(settlement(2, UNSENT)).await, Settled::Replaced);
    assert_eq!(state(&fixture).await, (1, 13, 0));
}
