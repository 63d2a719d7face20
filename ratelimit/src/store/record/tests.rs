#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]
use proptest::prelude::*;

use super::*;
use crate::store::Price;
use crate::store::tests::bucket;

const PRICE: Rates = Rates {
    request: 5,
    input: 2_000_000,
    cache_read: 500_000,
    cache_write: 2_000_001,
    output: 8_000_000,
    reasoning: 8_000_000,
    per: 1_000,
};

fn entries() -> Vec<Entry> {
    let largest = 1 << 52;
    let level = Mark::Level { generation: 1, interval: 2, at_ms: 3, level: 4, before: 5, early: 6, own: 7 };
    let boundaries_ms = [1, 2, 3, 1_806_188_400_000];
    [
        (Algorithm::FixedWindow { length_ms: 60_000 }, Rates::REQUESTS, Mark::Window { start_ms: 60_000 }),
        (Algorithm::CalendarWindow { boundaries_ms }, PRICE, Mark::Window { start_ms: 2 }),
        (
            Algorithm::SlidingWindow { sub_window_ms: 1_000, sub_windows: 60 },
            Rates::TOKENS,
            Mark::SubWindow { index: 1_800_000_000 },
        ),
        (Algorithm::TokenBucket { num: 5, den: 6 }, Rates::OUTPUT_TOKENS, level),
        (Algorithm::Concurrency { lease_ms: 60_000 }, Rates::REQUESTS, Mark::None),
        (Algorithm::Balance, Rates::INPUT_TOKENS, Mark::None),
    ]
    .into_iter()
    .enumerate()
    .map(|(number, (algorithm, rates, mark))| Entry {
        meter: Meter { bucket: bucket(&number.to_string()), algorithm, limit: largest },
        rates,
        shadow: number == 2,
        priced: number == 1,
        model: None,
        amount: largest - number as u64,
        mark,
    })
    .collect()
}

#[test]
fn reads_what_was_written_and_nothing_shorter_or_longer() {
    for grant in [None, Some(0), Some(1 << 52)] {
        let record = Record {
            attempt: 2,
            identity: Tag::account("a"),
            model: Tag::model(None),
            grant,
            prompt_tokens: 1 << 52,
            output_tokens: 3,
            reserved_at_ms: Some(9),
            plan: Some(Tag::plan("basic")),
            alternatives: Alternatives::default(),
            entries: entries(),
        };
        let bytes = write(&record);
        assert_eq!(read(Some(&bytes)), Ok(Stored::Open(record)));
        for length in 0..bytes.len() {
            assert_eq!(read(Some(&bytes[..length])), Err(Unreadable), "{length}");
        }
        assert_eq!(read(Some(&[bytes.as_slice(), b"x"].concat())), Err(Unreadable));
        let future = [&[b'R', 4], &bytes[2..]].concat();
        assert_eq!(read(Some(&future)), Err(Unreadable));
    }
}

fn alternatives() -> Alternatives {
    let price = |model, tier, expected| Price { model, tier, rates: PRICE, expected };
    Alternatives {
        models: vec![Tag::model(Some("a")), Tag::model(Some("b"))],
        names: vec![(Tag::account("a"), 0), (Tag::account("b"), 1), (Tag::account("c"), 1)],
        tier: Some(Tag::tier("flex")),
        prices: vec![price(0, None, true), price(0, Some(Tag::tier("flex")), false), price(1, None, true)],
    }
}

/// Only where another model or tier may answer is there more to read.
#[test]
fn reads_alternatives() {
    let record = |alternatives: Alternatives| {
        let entries = entries().into_iter().zip([None, Some(0), Some(1), Some(8)]);
        Record {
            attempt: 1,
            identity: Tag::account("a"),
            model: Tag::model(Some("a")),
            grant: None,
            prompt_tokens: 1,
            output_tokens: 2,
            reserved_at_ms: Some(3),
            plan: Some(Tag::plan("basic")),
            entries: entries
                .map(|(entry, model)| Entry { model: model.filter(|_| !alternatives.is_empty()), ..entry })
                .collect(),
            alternatives,
        }
    };
    for (alternatives, format) in [
        (Alternatives::default(), 2),
        (alternatives(), 3),
        (Alternatives { tier: None, names: Vec::new(), ..alternatives() }, 3),
        (Alternatives { prices: Vec::new(), ..alternatives() }, 3),
    ] {
        let record = record(alternatives);
        let bytes = write(&record);
        assert_eq!((bytes[1], can_grow(&bytes), grant(&bytes)), (format, true, Some(None)));
        assert_eq!(read(Some(&bytes)), Ok(Stored::Open(record)));
        for length in 0..bytes.len() {
            assert_eq!(read(Some(&bytes[..length])), Err(Unreadable), "{length}");
        }
        assert_eq!(read(Some(&[bytes.as_slice(), b"x"].concat())), Err(Unreadable));
    }
}

/// Two limits of one minute, as the version before wrote them.
#[test]
fn reads_format_1() {
    let mut bytes = vec![b'R', 1, 1, 2];
    bytes.extend(Tag::account("identity").0);
    put_amount(&mut bytes, 60_000);
    put_amount(&mut bytes, 120_000);
    bytes.extend(Tag::account("model").0);
    bytes.extend((-1.0f64).to_be_bytes());
    put_amount(&mut bytes, 50);
    for (letter, amount) in [(b'r', 1), (b't', 50)] {
        bytes.push(letter);
        put_amount(&mut bytes, amount);
        put_amount(&mut bytes, 60_000);
        bytes.extend(bucket("x").limit.0);
        bytes.extend(bucket("x").subject.0);
    }
    let Ok(Stored::Open(record)) = read(Some(&bytes)) else { panic!() };
    assert_eq!((record.grant, record.tokens(), record.entries.len()), (None, 50, 2));
    assert_eq!((record.plan, record.reserved_at_ms, record.held().prices), (None, None, None));
    let [requests, tokens] = record.entries[..] else { panic!() };
    assert_eq!((requests.rates, requests.amount), (Rates::REQUESTS, 1));
    assert_eq!((tokens.rates, tokens.amount), (Rates::TOKENS, 50));
    assert_eq!(tokens.mark, Mark::Window { start_ms: 120_000 });
    assert_eq!(tokens.meter.algorithm, Algorithm::FixedWindow { length_ms: 60_000 });
    assert_eq!(tokens.meter.bucket, bucket("x"));
    for length in 0..bytes.len() {
        assert_eq!(read(Some(&bytes[..length])), Err(Unreadable), "{length}");
    }
}

#[test]
fn reads_tombstones() {
    assert_eq!(read(None), Ok(Stored::Absent));
    assert_eq!(read(Some(b"S")), Ok(Stored::Settled));
    assert_eq!(read(Some(b"T\xff")), Ok(Stored::Refused { attempt: 255 }));
    for bad in [b"".as_slice(), b"T", b"SS", b"T\x01\x01", b"s", b"R"] {
        assert_eq!(read(Some(bad)), Err(Unreadable), "{bad:?}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_an_answer(mut bytes in prop::collection::vec(any::<u8>(), 0..300), format in 1u8..5) {
        let _ = read(Some(&bytes));
        for (to, from) in bytes.iter_mut().zip([b'R', format]) {
            *to = from;
        }
        let _ = read(Some(&bytes));
    }
}
