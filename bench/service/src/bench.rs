//! One policy with everything that its measurements need, and the three ways to reserve and settle.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokengate_ratelimit::clock::SystemClock;
use tokengate_ratelimit::limits::Algorithm;
use tokengate_ratelimit::policy::Policy;
use tokengate_ratelimit::store::redis::RedisStore;
use tokengate_ratelimit::store::{Hold, Lifetimes, Store, TopUp, Verdict};

use crate::callers::replaced;

use crate::Outcome;
use crate::callers::{Ids, hold, now_ms, reserve_body, settle_body, settlement};
use crate::load::{Timed, closed_loop};
use crate::policy::{self, Kind};
use crate::recorded::Recorded;
use crate::redis_server::{RedisServer, cpu_us, flush};
use crate::service::{Http, Service};

/// Nothing is ever given up.
pub const TIME: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// `EVALSHA` and nothing else.
    Raw,
    /// The service's store, called in this process.
    Store,
    /// `POST /v1/reserve` and `/v1/settle`.
    Service,
}

/// A block of reserves, then a block of their settles.
pub struct Block {
    pub reserve: Timed,
    pub settle: Timed,
    /// Of both, in µs.
    pub redis_cpu_us: f64,
}

pub struct Bench {
    pub policy: Policy,
    pub store: RedisStore,
    pub service: Service,
    pub redis: MultiplexedConnection,
    pub ids: Ids,
    http: Http,
    own: Hold,
    recorded: Recorded,
}

impl Bench {
    /// Empties the server, starts a service and records what it sends.
    pub async fn start(server: &RedisServer, binary: &Path, kinds: &[Kind]) -> Outcome<Self> {
        let yaml = policy::yaml(kinds);
        let policy = policy::parse(&yaml)?;
        let mut redis = server.connect().await?;
        flush(&mut redis).await?;
        let url = server.url();
        let clock = Arc::new(SystemClock);
        let store =
            RedisStore::connect(url.as_str(), &policy.key_prefix, clock, Lifetimes::default()).await?;
        let service = Service::start(binary, &yaml, Some(&url))?;
        let http = service.connect(2).await?;
        let mut ids = Ids::default();
        let mut recordings = Vec::new();
        // The first of each tenant teaches the server the scripts.
        for tenant in [0, 0, 1, 1] {
            let hold = hold(&policy, ids.next(), tenant)?;
            top_up(&store, &hold).await?;
            let monitor = server.monitor()?;
            http.post(0, "/v1/reserve", reserve_body(hold.id.clone(), tenant)?).await?;
            http.post(0, "/v1/settle", settle_body(&hold)?).await?;
            recordings.push((monitor.evalshas(&mut redis).await?, hold));
        }
        let (commands, other) = recordings.pop().ok_or("nothing recorded")?;
        let others = Recorded::new(commands, &other)?;
        let (commands, own) = recordings.swap_remove(1);
        let recorded = Recorded::new(commands, &own)?;
        if !recorded.of_tenant(&own, &other).is_like(&others) {
            return Err(
                "a recording does not fit another tenant: what is replaced has to be looked at".into()
            );
        }
        Ok(Self { policy, store, service, redis, ids, http, own, recorded })
    }

    /// Tops up what has to be paid in advance.
    pub async fn fund(&mut self, tenants: &[usize]) -> Outcome<()> {
        for tenant in tenants {
            top_up(&self.store, &hold(&self.policy, self.ids.next(), *tenant)?).await?;
        }
        Ok(())
    }

    pub fn holds(&mut self, tenants: &[usize], count: usize) -> Outcome<Vec<Hold>> {
        let tenant = |number: usize| tenants[number % tenants.len()];
        (0..count).map(|number| hold(&self.policy, self.ids.next(), tenant(number))).collect()
    }

    /// Reserves and settles for `tenants` in turns.
    pub async fn block(
        &mut self,
        way: Way,
        callers: usize,
        tenants: &[usize],
        recordings: &[Recorded],
        count: usize,
    ) -> Outcome<Block> {
        let holds = self.holds(tenants, count)?;
        let mut redis = self.redis.clone();
        match way {
            Way::Raw => self.raw_block(callers, &holds, recordings).await,
            Way::Store => {
                let before = cpu_us(&mut redis).await?;
                let held = |number: usize| self.store.reserve(&holds[number], TIME);
                let reserve = closed_loop(
                    callers,
                    count,
                    async |number| Ok(held(number).await?.verdict),
                    |verdict| matches!(verdict, Verdict::Held { replayed: false, .. }),
                )
                .await?;
                let settlements: Vec<_> = holds.iter().map(|hold| [settlement(hold)]).collect();
                let settled = async |number: usize| {
                    Ok(self.store.settle(&settlements[number], &|_, _| None, TIME).await)
                };
                let settle = closed_loop(callers, count, settled, replaced).await?;
                Ok(Block { reserve, settle, redis_cpu_us: cpu_us(&mut redis).await? - before })
            }
            Way::Service => {
                let before = cpu_us(&mut redis).await?;
                let (reserve, settle) = over_http(&self.http, callers, tenants, &holds).await?;
                Ok(Block { reserve, settle, redis_cpu_us: cpu_us(&mut redis).await? - before })
            }
        }
    }

    async fn raw_block(&mut self, callers: usize, holds: &[Hold], recordings: &[Recorded]) -> Outcome<Block> {
        let recording = |number: usize| &recordings[number % recordings.len()];
        let command = |(number, hold): (usize, &Hold)| recording(number).reserve(hold.id.as_str(), now_ms());
        let reserves = holds.iter().enumerate().map(command).collect::<Outcome<Vec<_>>>()?;
        let redis = self.redis.clone();
        let run = async |command: &redis::Cmd| -> Outcome<Vec<u8>> {
            Ok(command.query_async(&mut redis.clone()).await?)
        };
        let before = cpu_us(&mut self.redis).await?;
        let held = async |number: usize| run(&reserves[number]).await;
        let reserve =
            closed_loop(callers, holds.len(), held, |answer: &Vec<u8>| answer.first() == Some(&b'H')).await?;
        let reserved = cpu_us(&mut self.redis).await?;
        // What the service reads for each settle is not part of the scripts.
        let mut reads = redis::pipe();
        for (number, hold) in holds.iter().enumerate() {
            reads.get(recording(number).record_key(hold.id.as_str()));
        }
        let records: Vec<Vec<u8>> = reads.query_async(&mut self.redis).await?;
        let command = |(number, (hold, record)): (usize, (&Hold, Vec<u8>))| {
            recording(number).settle(hold.id.as_str(), now_ms(), record)
        };
        let settles = holds.iter().zip(records).enumerate().map(command).collect::<Outcome<Vec<_>>>()?;
        let middle = cpu_us(&mut self.redis).await?;
        let settled = async |number: usize| run(&settles[number]).await;
        let settle = closed_loop(callers, holds.len(), settled, |answer: &Vec<u8>| answer == b"D").await?;
        let redis_cpu_us = reserved - before + cpu_us(&mut self.redis).await? - middle;
        Ok(Block { reserve, settle, redis_cpu_us })
    }

    /// The recorded commands, as they are for each of these tenants.
    pub fn recordings(&mut self, tenants: &[usize]) -> Outcome<Vec<Recorded>> {
        let holds = self.holds(tenants, tenants.len())?;
        Ok(holds.iter().map(|hold| self.recorded.of_tenant(&self.own, hold)).collect())
    }
}

/// The same over HTTP alone, for a service with any store.
pub async fn over_http(
    http: &Http,
    callers: usize,
    tenants: &[usize],
    holds: &[Hold],
) -> Outcome<(Timed, Timed)> {
    let body =
        |(number, hold): (usize, &Hold)| reserve_body(hold.id.clone(), tenants[number % tenants.len()]);
    let reserves = holds.iter().enumerate().map(body).collect::<Outcome<Vec<_>>>()?;
    let settles = holds.iter().map(settle_body).collect::<Outcome<Vec<_>>>()?;
    let said = |answer: &bytes::Bytes, word: &str| String::from_utf8_lossy(answer).contains(word);
    let reserve = async |number: usize| http.post(number, "/v1/reserve", reserves[number].clone()).await;
    let reserve =
        closed_loop(callers, holds.len(), reserve, |answer| said(answer, r#""decision":"allow""#)).await?;
    let settle = async |number: usize| http.post(number, "/v1/settle", settles[number].clone()).await;
    let settle =
        closed_loop(callers, holds.len(), settle, |answer| said(answer, r#""status":"settled""#)).await?;
    Ok((reserve, settle))
}

async fn top_up(store: &RedisStore, hold: &Hold) -> Outcome<()> {
    for charge in &hold.charges {
        if charge.meter.algorithm == Algorithm::Balance {
            let (account, bucket) = (hold.account, charge.meter.bucket);
            let top_up = TopUp { account, bucket, grant_id: "bench".to_owned(), amount: 1 << 50 };
            store.top_up(&top_up, TIME).await?;
        }
    }
    Ok(())
}
