//! Whether many buckets make each of them dearer: a thousand to a million, then the same load on some of them.

use redis::aio::MultiplexedConnection;

use crate::Outcome;
use crate::bench::{Bench, Way};
use crate::redis_server::{flush, used_memory};
use crate::speed::{Cell, Effort, Population, cell};

pub struct Scale {
    pub buckets: usize,
    pub bytes_per_bucket: f64,
    pub cells: Vec<Cell>,
}

/// Tenants that are asked for, scattered over all.
const ASKED: usize = 4096;
/// Keys in one message to the server.
const BATCH: usize = 5000;

/// `kinds` are buckets that stay when idle, all of them strings.
pub async fn scale(bench: &mut Bench, kinds: usize, buckets: usize, effort: Effort) -> Outcome<Scale> {
    let mut redis = bench.redis.clone();
    let tenants = buckets / kinds;
    flush(&mut redis).await?;
    let empty = used_memory(&mut redis).await?;
    fill(bench, &mut redis, tenants).await?;
    let full = used_memory(&mut redis).await?;
    // A stride without a common factor with powers of ten meets all of them before one twice.
    let asked: Vec<usize> = (0..ASKED.min(tenants)).map(|number| number * 7919 % tenants).collect();
    let recordings = bench.recordings(&asked)?;
    let population = Population { tenants: &asked, recordings: &recordings, emptied: false };
    let mut cells = Vec::new();
    for callers in [1, 16] {
        cells.push(cell(bench, &[Way::Raw, Way::Service], callers, &population, effort).await?);
    }
    let keys: usize = redis::cmd("DBSIZE").query_async(&mut redis).await?;
    if keys < buckets {
        return Err("buckets have ended before they were measured".into());
    }
    Ok(Scale { buckets, bytes_per_bucket: (full - empty) / buckets as f64, cells })
}

/// Every tenant's buckets under the names and with the content that the service gives them: one reservation,
/// settled, copied.
async fn fill(bench: &mut Bench, redis: &mut MultiplexedConnection, tenants: usize) -> Outcome<()> {
    let recordings = bench.recordings(&[0])?;
    bench.block(Way::Raw, 1, &[0], &recordings, 1).await?;
    let model = bucket_keys(bench, 0)?;
    let values: Vec<Vec<u8>> = redis::cmd("MGET").arg(&model).query_async(redis).await?;
    let mut ends = Vec::new();
    for key in &model {
        ends.push(redis::cmd("PTTL").arg(key).query_async::<i64>(redis).await?);
    }
    flush(redis).await?;
    for first in (0..tenants).step_by(BATCH) {
        let mut batch = redis::pipe();
        for tenant in first..(first + BATCH).min(tenants) {
            for ((key, value), end) in bucket_keys(bench, tenant)?.iter().zip(&values).zip(&ends) {
                batch.cmd("SET").arg(key).arg(value).arg("PX").arg(*end).ignore();
            }
        }
        batch.query_async::<()>(redis).await?;
    }
    Ok(())
}

fn bucket_keys(bench: &mut Bench, tenant: usize) -> Outcome<Vec<String>> {
    let hold = bench.holds(&[tenant], 1)?.remove(0);
    let prefix = &bench.policy.key_prefix;
    let key = |charge: &tokengate_ratelimit::store::Charge| {
        let bucket = charge.meter.bucket;
        format!("{prefix}:{{{}}}:b:{}:{}", hold.account, bucket.limit, bucket.subject)
    };
    Ok(hold.charges.iter().map(key).collect())
}
