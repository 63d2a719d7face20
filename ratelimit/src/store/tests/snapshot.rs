//! All that a store keeps, decoded, so that two stores can be compared.

use std::collections::{BTreeMap, VecDeque};

use tokengate_api::ReservationId;

use super::redis_server::RedisServer;
use crate::limits::fixed_window::Window;
use crate::limits::{Account, BucketState, Holds, Leases, Level, LevelInterval, Portion, Ring, State};
use crate::store::BucketId;
use crate::store::codec::Reader;
use crate::store::record;
use crate::store::settlement::Stored;
use crate::tag::Tag;

#[derive(Debug, Default)]
pub struct Snapshot {
    pub buckets: BTreeMap<BucketId, BucketState>,
    pub records: BTreeMap<ReservationId, Stored>,
}

impl Snapshot {
    pub fn of_redis(server: &RedisServer) -> Self {
        let mut connection = server.connection();
        let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
        let mut snapshot = Self::default();
        for key in keys {
            let parts: Vec<&str> = key.split(':').collect();
            if parts[1..] == ["accounts"] {
                continue;
            }
            let get = |connection: &mut redis::Connection| -> Vec<u8> {
                redis::cmd("GET").arg(&key).query(connection).unwrap()
            };
            match parts[2..] {
                ["r", id] => {
                    let stored = record::read(Some(&get(&mut connection))).unwrap();
                    snapshot.records.insert(ReservationId::try_from(id.to_owned()).unwrap(), stored);
                }
                ["b", limit, subject] => {
                    let tag = |text| Tag::parse(text).unwrap();
                    let home = parts[1].trim_matches(['{', '}']);
                    let shared = tag(home) == Tag::shared(tag(limit));
                    let bucket = BucketId { shared, limit: tag(limit), subject: tag(subject) };
                    let kind: String = redis::cmd("TYPE").arg(&key).query(&mut connection).unwrap();
                    let state = if kind == "zset" {
                        leases(
                            redis::cmd("ZRANGE")
                                .arg(&key)
                                .arg(&["0", "-1", "WITHSCORES"])
                                .query(&mut connection)
                                .unwrap(),
                        )
                    } else {
                        state(&get(&mut connection)).unwrap()
                    };
                    snapshot.buckets.insert(bucket, state);
                }
                ["o"] | ["g", _, _] | ["c", _] => {}
                _ => panic!("{key}"),
            }
        }
        snapshot
    }
}

fn leases(members: Vec<(String, f64)>) -> BucketState {
    let lease = |(id, end): (String, f64)| (ReservationId::try_from(id).unwrap(), end as u64);
    State::Concurrency(Leases(members.into_iter().map(lease).collect())).into()
}

/// A bucket's value as the scripts write it.
fn state(bytes: &[u8]) -> Option<BucketState> {
    let mut reader = Reader(bytes);
    let kind = reader.byte()?;
    let portions = match reader.byte()? {
        1 => 0,
        2 => reader.byte()?,
        format => panic!("format {format}"),
    };
    let portion = |_| {
        let (place, amount) = (reader.amount()?, reader.amount()?);
        Some(Portion { place, amount, until_ms: reader.amount()? })
    };
    let holds = Holds((0..portions).map(portion).collect::<Option<_>>()?);
    let counted = match kind {
        b'F' => State::FixedWindow(Window { start_ms: reader.amount()?, used: reader.amount()? }),
        b'C' => State::CalendarWindow(Window { start_ms: reader.amount()?, used: reader.amount()? }),
        b'B' => State::Balance(Account { granted: reader.amount()?, spent: reader.amount()? }),
        b'S' => {
            let (head, total) = (reader.amount()?, reader.amount()?);
            let mut slots = VecDeque::new();
            while !reader.0.is_empty() {
                slots.push_back(reader.amount()?);
            }
            State::SlidingWindow(Ring { head, total, slots })
        }
        b'T' => {
            let mut level = Level {
                limit: reader.amount()?,
                num: reader.amount()?,
                den: reader.amount()?,
                generation: reader.amount()?,
                level: reader.signed()?,
                at_ms: reader.amount()?,
                interval: reader.amount()?,
                charged: reader.amount()?,
                intervals: VecDeque::new(),
            };
            while !reader.0.is_empty() {
                let interval =
                    LevelInterval { level: reader.signed()?, early: reader.amount()?, own: reader.amount()? };
                level.intervals.push_back(interval);
            }
            State::TokenBucket(level)
        }
        _ => return None,
    };
    reader.0.is_empty().then_some(BucketState { counted, holds })
}
