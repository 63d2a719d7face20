//! Memory and Redis give the same answers and come to the same states, operation by operation.

use std::sync::Arc;
use std::time::Duration;

use tokengate_api::Usage;

use super::*;
use crate::limits::tests::Numbers;
use crate::limits::{Algorithm, Bucket, Mark, Rates, State};
use crate::store::settlement::Stored;
use crate::store::{
    Alternatives, Amendment, Answered, Booking, Change, Clamp, Closing, Correction, Extension, Hold,
    Lifetimes, Price, Settlement, Store, TopUp,
};
use crate::tag::Tag;

const OPERATIONS: u64 = 10_000;
/// How many limits there are.
const LIMITS: u64 = 13;
/// Further back than that one store may have forgotten what the other, which ends its keys by the real time,
/// has not.
const MOST_BACK: u64 = 50_000;

const PRICE: Rates = Rates {
    request: 1_000,
    input: 2_000,
    cache_read: 500,
    cache_write: 2_500,
    output: 8_000,
    reasoning: 8_000,
    per: 1_000,
};

/// "Days" of 3 to 5 minutes.
fn calendar(now: u64) -> Algorithm {
    let length = |number: u64| 180_000 + number % 3 * 60_000;
    let period = length(0) + length(1) + length(2);
    let origin = T0 - T0 % period - period;
    let boundary = |number: u64| origin + number / 3 * period + (0..number % 3).map(length).sum::<u64>();
    let current = ((now - origin) / period * 3..).find(|number| boundary(number + 1) > now).unwrap();
    let first = current - 1;
    Algorithm::CalendarWindow { boundaries_ms: [0, 1, 2, 3].map(|next| boundary(first + next)) }
}

/// A limit by its number. Values change now and then, shapes never.
fn limit(numbers: &mut Numbers, number: u64, now: u64) -> Amount {
    let changed = 1 + u64::from(numbers.below(30) == 0);
    let token_bucket = if changed == 1 { (7, 60) } else { (3, 8) };
    let sliding = Algorithm::SlidingWindow { sub_window_ms: 1_000, sub_windows: 60 };
    match number {
        0 => requests(8 * changed),
        1 => tokens(400 * changed, 0),
        2 => tokens(3_000, 0).named("ten").algorithm(Algorithm::FixedWindow { length_ms: 600_000 }),
        3 => tokens(500 * changed, 0).named("sliding").algorithm(sliding),
        4 => requests(9).named("sliding requests").algorithm(sliding).attempts(),
        5 => tokens(1_500, 0).named("calendar").algorithm(calendar(now)).rates(PRICE),
        6 => {
            let (num, den) = token_bucket;
            tokens(600 * changed, 0).named("bucket").algorithm(Algorithm::TokenBucket { num, den })
        }
        7 => requests(4).named("slots").algorithm(Algorithm::Concurrency { lease_ms: MINUTE }),
        8 => tokens(0, 0).named("balance").algorithm(Algorithm::Balance).rates(PRICE),
        9 => tokens(90, 0).named("shadow").shadow().rates(Rates::OUTPUT_TOKENS),
        10 => {
            requests(2).named("shadow slots").algorithm(Algorithm::Concurrency { lease_ms: MINUTE }).shadow()
        }
        11 => {
            let mut shared = tokens(2_000, 0).named("shared");
            shared.charge.meter.bucket.shared = true;
            shared
        }
        _ => tokens(300, 0)
            .named("attempts")
            .algorithm(Algorithm::TokenBucket { num: 1, den: 100 })
            .rates(Rates::REQUESTS)
            .attempts(),
    }
}

fn some_limits(numbers: &mut Numbers, now: u64) -> Vec<Amount> {
    let mut chosen = Vec::new();
    for number in 0..LIMITS {
        if numbers.below(3) == 0 {
            chosen.push(limit(numbers, number, now));
        }
    }
    chosen
}

fn random_hold(numbers: &mut Numbers, number: u64, now: u64) -> Hold {
    let limits = some_limits(numbers, now);
    let choices = 1 + numbers.below(3);
    let per_choice = numbers.below(60);
    let mut hold = Hold {
        attempt: 1 + numbers.below(2) as u8,
        prompt_tokens: numbers.below(80),
        output_tokens: per_choice * choices,
        choices: choices as u32,
        grant: (numbers.below(3) > 0).then_some(per_choice),
        identity: Tag::of("identity", [Some(if numbers.below(20) == 0 { "another key" } else { "key" })]),
        clamp: (numbers.below(2) == 0).then(|| Clamp { min_output_tokens: numbers.below(20) }),
        refuse: numbers.below(20) == 0,
        ..hold(number, &limits)
    };
    if numbers.below(3) == 0 {
        hold.alternatives = alternatives(numbers);
        for charge in &mut hold.charges {
            charge.priced = charge.rates == PRICE;
            charge.model = [None, Some(0), Some(1)][numbers.below(3) as usize];
        }
    }
    hold
}

/// Two models, one of which has a tier.
fn alternatives(numbers: &mut Numbers) -> Alternatives {
    let dear = Rates { output: 20_000, ..PRICE };
    let price = |model, tier, rates, expected| Price { model, tier, rates, expected };
    Alternatives {
        models: vec![model(), other_model()],
        names: vec![(name("gpt"), 0), (name("other"), 1)],
        tier: (numbers.below(2) == 0).then(|| Tag::tier("fast")),
        prices: vec![
            price(0, None, PRICE, true),
            price(0, Some(Tag::tier("fast")), dear, numbers.below(2) == 0),
            price(1, None, Rates { input: 9_000, ..PRICE }, true),
        ],
    }
}

fn other_model() -> Tag {
    Tag::model(Some("other"))
}

fn name(name: &str) -> Tag {
    Tag::named(name).unwrap()
}

fn random_answer(numbers: &mut Numbers) -> Answered {
    let (name, model) = [
        (None, None),
        (Some(name("gpt")), None),
        (Some(name("other")), Some(model())),
        (Some(name("stranger")), Some(other_model())),
    ][numbers.below(4) as usize];
    let tier = [None, Some(Tag::tier("fast")), Some(Tag::tier("slow"))][numbers.below(3) as usize];
    Answered { name, model, tier }
}

fn random_closing(numbers: &mut Numbers) -> Closing {
    match numbers.below(6) {
        0 => Closing::Held,
        1 => RELEASED,
        2 => UNSENT,
        _ => Closing::Used(Usage {
            input: numbers.below(60),
            cache_read: numbers.below(20),
            cache_write: numbers.below(2),
            output: numbers.below(150),
            reasoning: numbers.below(30),
        }),
    }
}

fn random_settlement(numbers: &mut Numbers, number: u64, now: u64) -> Settlement {
    let mut settlement = settlement(number, random_closing(numbers));
    settlement.answered = random_answer(numbers);
    if numbers.below(4) == 0
        && let Closing::Used(usage) = settlement.closing
    {
        let limits = some_limits(numbers, now);
        let booking = |limit: &Amount| Booking {
            meter: limit.charge.meter,
            amount: limit.charge.rates.of_usage(&usage),
        };
        settlement.booking = Some(limits.iter().map(booking).collect());
    }
    if numbers.below(5) == 0 {
        settlement.attempt = Some(1);
    }
    settlement
}

/// One operation on both stores, twice in one of eight cases.
#[derive(Debug)]
enum Operation {
    Reserve(Hold),
    Settle(Settlement),
    Extend(Extension),
    TopUp(TopUp),
    Amend(Amendment),
    Reset(crate::store::BucketId),
}

fn random_operation(numbers: &mut Numbers, number: u64, now: u64) -> Operation {
    match numbers.below(21) {
        0..9 => Operation::Reserve(random_hold(numbers, number, now)),
        9..15 => Operation::Settle(random_settlement(numbers, number, now)),
        15..18 => Operation::Extend(Extension {
            output_tokens: (numbers.below(4) > 0).then(|| numbers.below(250)),
            lease: numbers.below(2) == 0,
            ..extension(number, 0)
        }),
        18 => Operation::TopUp(TopUp {
            account: account(),
            bucket: bucket("balance"),
            grant_id: format!("grant {}", numbers.below(900)),
            amount: 500 + numbers.below(2) * 500,
        }),
        19 => {
            let amount = numbers.below(120);
            let change = match numbers.below(3) {
                0 => Change::Excess { amount },
                _ => Change::GiveBack { amount },
            };
            let which = [0, 1, 2, 3, 5, 6, 8, 11, 12][numbers.below(9) as usize];
            let meter = limit(numbers, which, now).charge.meter;
            let id = Tag::of("correction", [Some(numbers.below(2_000).to_string().as_str())]);
            Operation::Amend(Amendment { account: account(), id, correction: Correction { meter, change } })
        }
        _ => {
            let reset = numbers.below(8);
            Operation::Reset(limit(numbers, reset, now).charge.meter.bucket)
        }
    }
}

async fn answer(store: &Arc<dyn Store>, operation: &Operation) -> String {
    match operation {
        Operation::Reserve(hold) => format!("{:?}", store.reserve(hold, TIME).await),
        Operation::Settle(settlement) => {
            format!("{:?}", store.settle(std::slice::from_ref(settlement), &|_, _| None, TIME).await)
        }
        Operation::Extend(extension) => {
            format!("{:?}", store.extend(std::slice::from_ref(extension), TIME).await)
        }
        Operation::Amend(amendment) => format!("{:?}", store.amend(amendment, TIME).await),
        Operation::TopUp(top_up) => format!("{:?}", store.top_up(top_up, TIME).await),
        // Whether it was there depends on when a store forgets.
        Operation::Reset(bucket) => format!("{:?}", store.reset(account(), *bucket, TIME).await.is_ok()),
    }
}

#[tokio::test]
async fn the_stores_agree() {
    let years = Duration::from_secs(10 * 365 * 86_400);
    // The test's time is not the server's, which ends its keys by its own.
    let lifetimes = Lifetimes { record: years, settled: years, refused: years, ..Lifetimes::default() };
    let (memory, inner) = Fixture::memory_and_store(lifetimes);
    let redis = Fixture::redis_with(lifetimes).await;
    let server = redis.server.clone().unwrap();
    // Another seed is another walk: TOKENGATE_SEED=7 cargo test agreement
    let seed = std::env::var("TOKENGATE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15 ^ (seed << 20));
    let mut now = T0;
    let mut latest = T0;
    let mut seen = std::collections::BTreeMap::new();
    for number in 0..OPERATIONS {
        let step = numbers.below(3_000);
        now = if numbers.below(8) == 0 { (now - step).max(latest - MOST_BACK) } else { now + step };
        latest = latest.max(now);
        memory.clock.set(now);
        redis.clock.set(now);
        let reservation = number * 2 / 3 + numbers.below(6);
        let operation = random_operation(&mut numbers, reservation, now);
        for _ in 0..1 + u64::from(numbers.below(8) == 0) {
            let answers = (answer(&memory.store, &operation).await, answer(&redis.store, &operation).await);
            assert_eq!(answers.0, answers.1, "{number}: {operation:?}");
            *seen.entry(kind_of(&operation, &answers.0)).or_insert(0u32) += 1;
        }
        if number % 8 == 0 {
            let all: Vec<_> = (0..LIMITS).map(|which| limit(&mut Numbers(1), which, now)).collect();
            assert_eq!(memory.explain(&all).await, redis.explain(&all).await, "{number}");
        }
        if number % 500 == 499 {
            same_state(&inner.snapshot(), &Snapshot::of_redis(&server), now);
        }
    }
    // The driver has been everywhere.
    for kind in KINDS.iter().chain(&["clamped"]) {
        assert!(seen.get(kind).is_some_and(|count| *count > 10), "{kind}: {seen:?}");
    }
}

const KINDS: [&str; 13] = [
    "replayed: true",
    "Held { grant",
    "Refused, now",
    "Gone",
    "Replaced",
    "settled: Already",
    "Booked",
    "Held { output_tokens",
    "Ok(Refused)",
    "Unknown",
    "Done",
    "Already(",
    "Conflict",
];

fn kind_of(operation: &Operation, answer: &str) -> &'static str {
    let kind = KINDS.iter().find(|kind| answer.contains(**kind)).copied().unwrap_or("other");
    match operation {
        Operation::Reserve(hold)
            if kind == "Held { grant" && !answer.contains(&format!("grant: {:?},", hold.grant)) =>
        {
            "clamped"
        }
        _ => kind,
    }
}

fn same_state(memory: &Snapshot, redis: &Snapshot, now: u64) {
    for which in 0..LIMITS {
        let meter = limit(&mut Numbers(1), which, now).charge.meter;
        let open = |snapshot: &Snapshot| {
            let stored = snapshot.buckets.get(&meter.bucket);
            Bucket::open(meter.algorithm, meter.limit, stored, now).unwrap()
        };
        let (memory, redis) = (open(memory), open(redis));
        assert_eq!(memory.gauge(), redis.gauge(), "{meter:?}");
        assert_eq!(comparable(memory.state(), now), comparable(redis.state(), now), "{meter:?}");
    }
    assert_eq!(memory.records.len(), redis.records.len());
    for (id, stored) in &memory.records {
        assert_eq!(without_generations(stored), without_generations(&redis.records[id]), "{id}");
    }
}

/// A store that forgets a full bucket, or leases that are over, and one that has not yet, remember another past.
fn comparable(state: State, now: u64) -> State {
    match state {
        State::Concurrency(mut leases) => {
            leases.0.retain(|_, end| *end > now);
            State::Concurrency(leases)
        }
        State::TokenBucket(mut level) => {
            level.generation = 0;
            level.charged = 0;
            level.intervals.clear();
            State::TokenBucket(level)
        }
        other => other,
    }
}

fn without_generations(stored: &Stored) -> Stored {
    let mut stored = stored.clone();
    if let Stored::Open(record) = &mut stored {
        for entry in &mut record.entries {
            if let Mark::Level { at_ms, level, .. } = entry.mark {
                let (generation, interval, before, early, own) = (0, 0, 0, 0, 0);
                entry.mark = Mark::Level { generation, interval, at_ms, level, before, early, own };
            }
        }
    }
    stored
}
