//! Bytes in Redis, as differences of what the server has allocated.

use tokengate_ratelimit::store::{Hold, Store};

use crate::callers::replaced;

use crate::Outcome;
use crate::bench::{Bench, TIME};
use crate::callers::settlement;
use crate::load::closed_loop;
use crate::redis_server::{flush, used_memory};

const CALLERS: usize = 32;
/// Open holds are spread over so many tenants: the sorted set of each has many members.
const TENANTS: usize = 64;

pub struct Memory {
    /// All buckets of one tenant, idle.
    pub buckets: f64,
    /// A reservation that is not settled: its record, its place among the open holds, its slot if there is one.
    pub open_hold: f64,
    /// What a settled reservation leaves behind for ten minutes.
    pub tombstone: f64,
}

pub async fn memory(bench: &mut Bench, count: usize) -> Outcome<Memory> {
    let mut redis = bench.redis.clone();
    let everyone: Vec<usize> = (0..count).collect();
    flush(&mut redis).await?;
    let empty = used_memory(&mut redis).await?;
    bench.fund(&everyone).await?;
    // A few at a time: the table of all keys must not grow by records that are taken away again.
    for some in everyone.chunks(100) {
        let holds = bench.holds(some, some.len())?;
        reserve(bench, &holds).await?;
        settle(bench, &holds).await?;
        let mut forget = redis::pipe();
        for (hold, recording) in holds.iter().zip(bench.recordings(some)?) {
            forget.del(recording.record_key(hold.id.as_str())).ignore();
        }
        forget.query_async::<()>(&mut redis).await?;
    }
    let idle = used_memory(&mut redis).await?;
    let holds = bench.holds(&everyone[..TENANTS.min(count)], count)?;
    reserve(bench, &holds).await?;
    let open = used_memory(&mut redis).await?;
    settle(bench, &holds).await?;
    let settled = used_memory(&mut redis).await?;
    let each = |bytes: f64| bytes / count as f64;
    Ok(Memory { buckets: each(idle - empty), open_hold: each(open - idle), tombstone: each(settled - idle) })
}

async fn reserve(bench: &Bench, holds: &[Hold]) -> Outcome<()> {
    let reserve = async |number: usize| Ok(bench.store.reserve(&holds[number], TIME).await?);
    closed_loop(CALLERS, holds.len(), reserve, |_| true).await.map(|_| ())
}

async fn settle(bench: &Bench, holds: &[Hold]) -> Outcome<()> {
    let settle =
        async |number: usize| Ok(bench.store.settle(&[settlement(&holds[number])], &|_, _| None, TIME).await);
    closed_loop(CALLERS, holds.len(), settle, replaced).await.map(|_| ())
}
