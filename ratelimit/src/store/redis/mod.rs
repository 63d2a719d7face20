//! Counts in Redis 6.2 or newer, for any number of instances. Every decision is one Lua script.

mod answer;
mod connect;
mod keys;
mod script;
mod settle;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use redis::aio::ConnectionManager;

use answer::{Answer, packed};
pub use connect::{ConnectError, Target, TlsFiles, Watch};
use keys::{Keys, member, member_tokens};
use script::{Call, Scripts, TimeSource};

use super::lifetimes::ms;
use super::record::{self, double};
use super::settlement::Stored;
use super::{
    BucketId, Explained, Hold, Lifetimes, Reserved, Settled, Settlement, Store, StoreError, Verdict,
};
use crate::clock::Clock;
use crate::tag::Tag;

/// Between repeats of a command that the server could not take at the moment.
const PAUSE: Duration = Duration::from_millis(5);

pub struct RedisStore {
    connection: ConnectionManager,
    scripts: Scripts,
    keys: Keys,
    clock: Arc<dyn Clock>,
    lifetimes: Lifetimes,
}

impl RedisStore {
    /// Connects and tries a script, so that a server that refuses them is found at the start.
    pub async fn connect(
        target: impl Into<Target>,
        key_prefix: &str,
        clock: Arc<dyn Clock>,
        lifetimes: Lifetimes,
    ) -> Result<Self, ConnectError> {
        Self::connect_with(target, key_prefix, clock, lifetimes, TimeSource::Server).await
    }

    /// Decides by `clock` instead of the server's: how tests get hold of time.
    #[cfg(test)]
    pub async fn connect_with_given_time(
        target: impl Into<Target>,
        key_prefix: &str,
        clock: Arc<dyn Clock>,
        lifetimes: Lifetimes,
    ) -> Result<Self, ConnectError> {
        Self::connect_with(target, key_prefix, clock, lifetimes, TimeSource::Given).await
    }

    async fn connect_with(
        target: impl Into<Target>,
        key_prefix: &str,
        clock: Arc<dyn Clock>,
        lifetimes: Lifetimes,
        time: TimeSource,
    ) -> Result<Self, ConnectError> {
        let target = target.into();
        let connection = connect::connect(&target).await?;
        let keys = Keys { prefix: key_prefix.to_owned() };
        let store = Self { connection, scripts: Scripts::new(time), keys, clock, lifetimes };
        let nobody = Tag::of("self-test", []);
        match store.explain(nobody, nobody, &[], Duration::from_secs(2)).await {
            Ok(_) => Ok(store),
            Err(error) => Err(connect::unusable(&target, error.to_string())),
        }
    }

    /// What looks at the server from time to time.
    pub fn watch(&self) -> Watch {
        Watch::new(self.connection.clone(), &self.keys.prefix)
    }

    fn now(&self) -> Vec<u8> {
        self.clock.now_ms().to_string().into_bytes()
    }

    async fn try_reserve(&self, hold: &Hold) -> Result<Reserved, StoreError> {
        let mut call = Call {
            keys: vec![self.keys.record(hold.account, &hold.id), self.keys.open_holds(hold.account)],
            arguments: vec![
                self.now(),
                record::head(hold),
                record::tail(hold),
                ms(self.lifetimes.record).to_string().into_bytes(),
                member(&hold.id, hold.model, hold.tokens).into_bytes(),
            ],
        };
        for charge in &hold.charges {
            call.keys.push(self.keys.bucket(hold.account, charge.bucket));
            call.arguments.push(packed(b'F', [charge.limit, charge.amount, charge.window_ms]));
        }
        let answer: Vec<u8> = self.patiently(|| self.scripts.reserve.run(&self.connection, &call)).await?;
        let Answer { letter, now_ms, windows, rest } = Answer::read(&answer, hold.charges.len())?;
        let verdict = match letter {
            b'H' => Verdict::Held { grant: hold.grant, replayed: false },
            b'P' => match record::read(Some(rest)) {
                Ok(Stored::Open(record)) => Verdict::Held { grant: record.grant, replayed: true },
                _ => return Err(StoreError::Format),
            },
            b'R' => Verdict::Refused,
            b'G' => Verdict::Gone,
            _ => return Err(StoreError::Format),
        };
        Ok(Reserved { verdict, now_ms, windows })
    }

    /// Repeats what the server could not take at the moment; whoever calls bounds the time.
    async fn patiently<T, F>(&self, mut run: impl FnMut() -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, redis::RedisError>>,
    {
        loop {
            match run().await {
                Err(error) if matches!(error.code(), Some("LOADING" | "TRYAGAIN" | "MASTERDOWN")) => {
                    tokio::time::sleep(PAUSE).await;
                }
                answer => return answer.map_err(StoreError::from),
            }
        }
    }
}

async fn within<T>(
    time: Duration,
    work: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    tokio::time::timeout(time, work).await.unwrap_or(Err(StoreError::Timeout))
}

#[async_trait]
impl Store for RedisStore {
    async fn reserve(&self, hold: &Hold, time: Duration) -> Result<Reserved, StoreError> {
        within(time, self.try_reserve(hold)).await
    }

    async fn settle(&self, batch: &[Settlement], time: Duration) -> Vec<Result<Settled, StoreError>> {
        if batch.is_empty() {
            return Vec::new();
        }
        let settled = within(time, async { Ok(self.try_settle(batch).await) }).await;
        settled.unwrap_or_else(|error| batch.iter().map(|_| Err(error.clone())).collect())
    }

    async fn explain(
        &self,
        account: Tag,
        model: Tag,
        buckets: &[(BucketId, u64)],
        time: Duration,
    ) -> Result<Explained, StoreError> {
        let mut call = Call { keys: vec![self.keys.open_holds(account)], arguments: vec![self.now()] };
        for (bucket, length_ms) in buckets {
            call.keys.push(self.keys.bucket(account, *bucket));
            call.arguments.push(double(*length_ms).to_be_bytes().to_vec());
        }
        let run = self.patiently(|| self.scripts.explain.run(&self.connection, &call));
        let (answer, members): (Vec<u8>, Vec<String>) = within(time, run).await?;
        let Answer { now_ms, windows, .. } = Answer::read(&answer, buckets.len())?;
        let tokens: Vec<_> = members.iter().filter_map(|member| member_tokens(member, model)).collect();
        Ok(Explained {
            now_ms,
            windows,
            open_holds: tokens.len().try_into().unwrap_or(u64::MAX),
            open_tokens: tokens.into_iter().fold(0, u64::saturating_add),
        })
    }

    async fn ping(&self, time: Duration) -> Result<(), StoreError> {
        let mut connection = self.connection.clone();
        let ping = async { Ok(redis::cmd("PING").query_async::<()>(&mut connection).await?) };
        within(time, ping).await
    }
}
