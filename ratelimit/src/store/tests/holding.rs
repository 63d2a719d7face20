//! What open holds take of a bucket is known without looking at them.

use std::collections::BTreeMap;

use super::properties::{of, topped_up};
use super::*;
use crate::limits::tests::Numbers;
use crate::limits::{Algorithm, Gauge};
use crate::store::{
    Amendment, Change, Closing, Correction, Extended, MOST_LOOKED_AT, Settled, Settlement, Verdict,
};
use crate::tag::Tag;

over_both_stores!(suite:
    held_is_what_is_open, what_is_closed_is_not_held, what_lapses_is_not_held, leaks_end_under_traffic,
    a_new_window_holds_nothing, a_full_bucket_holds_nothing, a_correction_leaves_no_more_held_than_used,
    a_look_has_an_end,
);

const DAY: Algorithm = Algorithm::FixedWindow { length_ms: 86_400_000 };
const SLIDING: Algorithm = Algorithm::SlidingWindow { sub_window_ms: 1_000, sub_windows: 60 };
/// Empty to full in ten minutes.
const BUCKET: Algorithm = Algorithm::TokenBucket { num: 1, den: 600 };

/// Windows of six minutes and of nine, in turn.
fn calendar(now: u64) -> (u64, Algorithm) {
    let start = |number: u64| T0 + number / 2 * 15 * MINUTE + number % 2 * 6 * MINUTE;
    let current = (1..).find(|number| start(number + 1) > now).unwrap();
    let boundaries_ms = [current - 1, current, current + 1, current + 2].map(start);
    (current, Algorithm::CalendarWindow { boundaries_ms })
}

fn held(gauges: &[Gauge]) -> Vec<u64> {
    gauges.iter().map(|gauge| gauge.held).collect()
}

/// One charge of a reservation, as a naive model keeps it.
struct Part {
    tokens: u64,
    minute: u64,
    second: u64,
    calendar: u64,
}

/// How the parts of open reservations add up for a minute, a sliding minute, a calendar and a balance.
fn model(open: &BTreeMap<u64, Vec<Part>>, now: u64) -> Vec<u64> {
    let sum = |counts: &dyn Fn(&Part) -> bool| {
        open.values().flatten().filter(|part| counts(part)).map(|part| part.tokens).sum()
    };
    let (minute, second, calendar) = (now / MINUTE, now / 1_000, calendar(now).0);
    vec![
        sum(&|part| part.minute == minute),
        sum(&|part| part.second + 60 >= second),
        sum(&|part| part.calendar == calendar),
        sum(&|_| true),
    ]
}

pub mod suite {
    use super::*;

    /// Reserves, extensions, settles of every kind and repeats, over many windows and two hours.
    pub async fn held_is_what_is_open(fixture: Fixture) {
        topped_up(&fixture, 1 << 40).await;
        let limits = |now| {
            [
                tokens(1_000_000, 0),
                tokens(1_000_000, 0).named("s").algorithm(SLIDING),
                tokens(1_000_000, 0).named("c").algorithm(calendar(now).1),
                tokens(0, 0).named("b").algorithm(Algorithm::Balance),
            ]
        };
        let mut numbers = Numbers(99);
        let mut open: BTreeMap<u64, Vec<Part>> = BTreeMap::new();
        let mut now = T0 + 40 * MINUTE;
        for number in 0..600 {
            now += numbers.below(7_000);
            fixture.clock.set(now);
            let part = |tokens| Part {
                tokens,
                minute: now / MINUTE,
                second: now / 1_000,
                calendar: calendar(now).0,
            };
            let any = open.keys().nth(numbers.below(open.len().max(1) as u64) as usize).copied();
            match (numbers.below(5), any) {
                (0..2, _) | (_, None) => {
                    let tokens = numbers.below(100);
                    let whole = hold(number, &of(&limits(now), tokens));
                    assert_eq!(fixture.verdict(&whole).await, HELD);
                    assert_eq!(fixture.verdict(&whole).await, REPLAYED);
                    open.insert(number, vec![part(tokens)]);
                }
                // A record knows its own calendar window and the next one.
                (2, Some(any)) if now / 1_000 - open[&any][0].second < 300 => {
                    let parts = open.get_mut(&any).unwrap();
                    let so_far: u64 = parts[1..].iter().map(|part| part.tokens).sum();
                    let total = numbers.below(200);
                    let extended = fixture.extend(extension(any, total)).await;
                    // A record has room for so many charges.
                    if extended != Extended::Refused {
                        assert_eq!(extended, Extended::Held { output_tokens: total.max(so_far) });
                        parts.push(part(total.saturating_sub(so_far)));
                    }
                }
                (3.., Some(any)) => {
                    let closing = [used(numbers.below(150)), Closing::Held, RELEASED, UNSENT]
                        [numbers.below(4) as usize];
                    assert_eq!(fixture.settle(settlement(any, closing)).await, Settled::Replaced);
                    assert_eq!(fixture.settle(settlement(any, closing)).await, Settled::Already);
                    open.remove(&any);
                }
                _ => {}
            }
            let gauges = fixture.explain(&limits(now)).await.gauges;
            assert_eq!(held(&gauges), model(&open, now), "{number}");
        }
        assert!(now > T0 + 65 * MINUTE && open.len() > 3);
    }

    /// However it is closed, and in buckets of every kind. A booking holds nothing.
    pub async fn what_is_closed_is_not_held(fixture: Fixture) {
        let mut charges = topped_up(&fixture, 10_000).await;
        let boundaries_ms = [T0 - MINUTE, T0, T0 + 300 * MINUTE, T0 + 600 * MINUTE];
        charges[2] = charges[2].algorithm(Algorithm::CalendarWindow { boundaries_ms });
        let ways = [used(20), used(60), used(3), used(500), Closing::Held, RELEASED, UNSENT];
        for (number, closing) in ways.into_iter().enumerate() {
            let number = number as u64;
            fixture.clock.set(T0 + number * 20 * MINUTE);
            assert_eq!(fixture.verdict(&hold(number, &of(&charges, 20))).await, HELD);
            // The last one counts requests under way.
            assert_eq!(held(&fixture.explain(&charges).await.gauges), [20, 20, 20, 20, 20, 1]);
            assert_eq!(fixture.settle(settlement(number, closing)).await, Settled::Replaced);
            assert_eq!(held(&fixture.explain(&charges).await.gauges), [0; 6], "{closing:?}");
        }
        assert_eq!(fixture.settle(booking(77, &charges[..5], 20)).await, Settled::Booked);
        assert_eq!(held(&fixture.explain(&charges).await.gauges), [0; 6]);
        // Requests that were sent stay counted: they are not held, nor are attempts.
        let counted = [requests(10).named("requests"), tokens(100, 5).named("attempts").attempts()];
        assert_eq!(fixture.verdict(&hold(78, &counted)).await, HELD);
        assert_eq!(held(&fixture.explain(&counted).await.gauges), [0, 0]);
    }

    /// Nobody can settle it any more, so it is used.
    pub async fn what_lapses_is_not_held(fixture: Fixture) {
        let charges = [
            tokens(100, 60).algorithm(DAY),
            tokens(100, 60)
                .named("s")
                .algorithm(Algorithm::SlidingWindow { sub_window_ms: 1_440_000, sub_windows: 60 }),
        ];
        assert_eq!(fixture.verdict(&hold(1, &charges)).await, HELD);
        fixture.clock.set(T0 + 70 * MINUTE - 1);
        assert_eq!(held(&fixture.explain(&charges).await.gauges), [60, 60]);
        fixture.clock.set(T0 + 70 * MINUTE);
        let gauges = fixture.explain(&charges).await.gauges;
        assert_eq!((held(&gauges), uses(&gauges)), (vec![0, 0], vec![60, 60]));
    }

    /// A hold that nobody settles is forgotten although others are held all the time.
    pub async fn leaks_end_under_traffic(fixture: Fixture) {
        let charge = |tokens_held| [tokens(1_000_000, tokens_held).algorithm(DAY)];
        assert_eq!(fixture.verdict(&hold(0, &charge(1_000))).await, HELD);
        for number in 1..30 {
            fixture.clock.set(T0 + number * 5 * MINUTE);
            assert_eq!(fixture.verdict(&hold(number, &charge(1))).await, HELD);
            let held = fixture.explain(&charge(0)).await.gauges[0].held;
            // An hour is forgotten as a whole.
            let leaked = if number * 5 < 55 + 70 { 1_000 } else { 0 };
            assert_eq!(held / 1_000 * 1_000, leaked, "{number}");
            assert_eq!(fixture.settle(settlement(number, used(1))).await, Settled::Replaced);
        }
    }

    /// What was held in the window before is not given back to this one.
    pub async fn a_new_window_holds_nothing(fixture: Fixture) {
        let charges = |tokens| {
            let calendar = calendar(T0 + 21 * MINUTE).1;
            of(&[self::tokens(100, 0), self::tokens(100, 0).named("c").algorithm(calendar)], tokens)
        };
        fixture.clock.set(T0 + 20 * MINUTE);
        assert_eq!(fixture.verdict(&hold(1, &charges(30))).await, HELD);
        fixture.clock.set(T0 + 21 * MINUTE);
        assert_eq!(fixture.verdict(&hold(2, &charges(40))).await, HELD);
        assert_eq!(held(&fixture.explain(&charges(0)).await.gauges), [40, 40]);
        assert_eq!(fixture.settle(settlement(1, UNSENT)).await, Settled::Replaced);
        assert_eq!(held(&fixture.explain(&charges(0)).await.gauges), [40, 40]);
        // So far back that the amount goes along: no hold can find it there.
        fixture.clock.set(T0 + 10 * MINUTE);
        let gauges = fixture.explain(&charges(0)[..1]).await.gauges;
        assert_eq!((gauges[0].used, gauges[0].held), (40, 0));
    }

    /// Regrown since: a settle gives nothing back.
    pub async fn a_full_bucket_holds_nothing(fixture: Fixture) {
        let charge = |tokens_held| [tokens(1_000, tokens_held).named("t").algorithm(BUCKET)];
        assert_eq!(fixture.verdict(&hold(1, &charge(900))).await, HELD);
        fixture.clock.set(T0 + 5 * MINUTE);
        let gauge = fixture.explain(&charge(0)).await.gauges[0];
        // Half of it has regrown; not more can be given back than is missing.
        assert_eq!((gauge.used, gauge.held), (400, 400));
        fixture.clock.set(T0 + 10 * MINUTE);
        assert_eq!(fixture.verdict(&hold(2, &charge(1_000))).await, HELD);
        assert_eq!(fixture.settle(settlement(2, Closing::Held)).await, Settled::Replaced);
        let gauge = fixture.explain(&charge(0)).await.gauges[0];
        assert_eq!((gauge.used, gauge.held), (1_000, 0));
    }

    pub async fn a_correction_leaves_no_more_held_than_used(fixture: Fixture) {
        let charge = [tokens(100, 60).algorithm(DAY)];
        assert_eq!(fixture.verdict(&hold(1, &charge)).await, HELD);
        let correction =
            Correction { meter: charge[0].charge.meter, change: Change::GiveBack { amount: 50 } };
        let amendment = Amendment { account: account(), id: Tag::of("correction", [Some("1")]), correction };
        fixture.store.amend(&amendment, TIME).await.unwrap();
        let gauge = fixture.explain(&charge).await.gauges[0];
        assert_eq!((gauge.used, gauge.held), (10, 10));
        assert_eq!(fixture.settle(settlement(1, UNSENT)).await, Settled::Replaced);
        let gauge = fixture.explain(&charge).await.gauges[0];
        assert_eq!((gauge.used, gauge.held), (0, 0));
    }

    /// What a bucket holds is known whatever their number; of the holds themselves only so many are read.
    pub async fn a_look_has_an_end(fixture: Fixture) {
        let charge = [tokens(1 << 40, 3).algorithm(DAY)];
        let all = MOST_LOOKED_AT as u64 + 200;
        for number in 0..all {
            fixture.clock.set(T0 + number);
            assert_eq!(fixture.verdict(&hold(number, &charge)).await, HELD);
        }
        let explained = fixture.explain(&charge).await;
        assert_eq!((explained.gauges[0].held, explained.all_open_holds), (3 * all, all));
        let looked_at = MOST_LOOKED_AT as u64;
        assert_eq!((explained.open_holds, explained.open_tokens), (looked_at, 3 * looked_at));
        let listed = fixture.store.open_holds(account(), 10, TIME).await.unwrap();
        assert_eq!((listed.total, listed.oldest.len()), (all, 10));
        assert_eq!((&listed.oldest[0].id, listed.oldest[0].reserved_at_ms), (&id(0), T0));
        for number in 0..all {
            let settled: Settlement = settlement(number, used(1));
            assert_eq!(fixture.settle(settled).await, Settled::Replaced);
        }
        let explained = fixture.explain(&charge).await;
        assert_eq!((explained.all_open_holds, explained.gauges[0].held), (0, 0));
    }
}

/// Where the open holds cannot be kept nothing is charged.
pub async fn open_holds_of_another_type(fixture: Fixture) {
    let server = fixture.server.clone().unwrap();
    let key = format!("t:{{{}}}:o", account());
    server.command::<()>(&["HSET", &key, "something", "else"]);
    let before = server.dump();
    assert!(fixture.store.reserve(&hold(1, &one_of_each()[..4]), TIME).await.is_err());
    assert_eq!(server.dump(), before);
}

/// A bucket that was written before open holds were counted: what it has counted stays, and nothing is held.
#[tokio::test]
async fn buckets_of_the_format_before() {
    let fixture = Fixture::redis().await;
    let server = fixture.server.clone().unwrap();
    let charges = [
        tokens(100, 10),
        tokens(100, 10).named("s").algorithm(SLIDING),
        tokens(100, 10).named("t").algorithm(BUCKET),
    ];
    assert_eq!(fixture.verdict(&hold(1, &charges)).await, HELD);
    let mut connection = server.connection();
    for charge in &charges {
        let bucket = charge.charge.meter.bucket;
        let key = format!("t:{{{}}}:b:{}:{}", account(), bucket.limit, bucket.subject);
        let value: Vec<u8> = ::redis::cmd("GET").arg(&key).query(&mut connection).unwrap();
        assert_eq!(&value[1..3], [2, 1], "one portion");
        let before = [&value[..1], &[1], &value[27..]].concat();
        let () = ::redis::cmd("SET").arg(&key).arg(before).arg("KEEPTTL").query(&mut connection).unwrap();
    }
    let gauges = fixture.explain(&charges).await.gauges;
    assert_eq!((uses(&gauges), held(&gauges)), (vec![10; 3], vec![0; 3]));
    assert_eq!(fixture.verdict(&hold(2, &charges)).await, HELD);
    assert_eq!(fixture.settle(settlement(1, used(4))).await, Settled::Replaced);
    assert_eq!(uses(&fixture.explain(&charges).await.gauges), [14; 3]);
    assert_eq!(fixture.settle(settlement(2, used(4))).await, Settled::Replaced);
    let gauges = fixture.explain(&charges).await.gauges;
    assert_eq!((uses(&gauges), held(&gauges)), (vec![8; 3], vec![0; 3]));
    assert_eq!(fixture.verdict(&hold(3, &of(&charges, 93))).await, Verdict::Refused);
}
