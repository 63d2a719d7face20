//! Counts in Redis 6.2 or newer, for any number of instances. Every decision is one Lua script.

mod amend;
mod answer;
mod connect;
mod extend;
mod fresh;
mod keys;
#[cfg(test)]
mod mutation;
mod outbox;
mod records;
mod script;
mod settle;
mod sweep;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use redis::aio::ConnectionManager;
use tokengate_api::ReservationId;

use answer::Answer;
pub use connect::{ConnectError, Target, TlsFiles, Watch};
use fresh::Fresh;
use keys::{Keys, member, member_tokens};
#[cfg(test)]
pub use mutation::Mutation;
use outbox::Announced;
use script::{Call, Kinds, Scripts, TimeSource};

use super::codec::{Reader, double, put_amount};
use super::decision::clampable;
use super::lifetimes::ms;
use super::record;
use super::settlement::Stored;
use super::{
    Amended, Amendment, BucketId, Closed, Explained, Extended, Extension, Hold, Lifetimes, Meter, OpenHolds,
    Reserved, Settlement, Store, StoreError, Sweep, Swept, TellSettled, TopUp, ToppedUp, Verdict,
};
use crate::clock::Clock;
use crate::limits::Account;
use crate::tag::Tag;

/// Between repeats of a command that the server could not take at the moment.
const PAUSE: Duration = Duration::from_millis(5);

pub struct RedisStore {
    connection: ConnectionManager,
    scripts: Scripts,
    keys: Keys,
    clock: Arc<dyn Clock>,
    lifetimes: Lifetimes,
    announced: Announced,
    fresh: Fresh,
}

impl RedisStore {
    /// Connects and tries what the scripts do, so that a server that refuses it is found at the start.
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

    /// The same with a mistake in the scripts.
    #[cfg(test)]
    pub async fn connect_mutated(
        url: &str,
        clock: Arc<dyn Clock>,
        lifetimes: Lifetimes,
        mutation: Mutation,
    ) -> Result<Self, ConnectError> {
        let mut store = Self::connect_with(url, "t", clock, lifetimes, TimeSource::Given).await?;
        store.scripts.mutate(mutation);
        Ok(store)
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
        let scripts = Scripts::new(time);
        let (announced, fresh) = (Announced::default(), Fresh::default());
        let store = Self { connection, scripts, keys, clock, lifetimes, announced, fresh };
        match within(Duration::from_secs(2), store.self_test()).await {
            Ok(()) => Ok(store),
            Err(error) => Err(connect::unusable(&target, error.to_string())),
        }
    }

    /// Every command is allowed, and the clocks agree.
    async fn self_test(&self) -> Result<(), StoreError> {
        let nobody = Tag::of("self-test", []);
        let call = Call { keys: vec![self.keys.self_test(nobody)], ..Call::default() };
        self.patiently(|| self.scripts.self_test.run::<()>(&self.connection, &call)).await?;
        self.explain(nobody, nobody, &[], Duration::from_secs(2)).await.map(|_| ())
    }

    /// What looks at the server from time to time.
    pub fn watch(&self) -> Watch {
        Watch::new(self.connection.clone(), &self.keys.prefix)
    }

    fn now(&self) -> Vec<u8> {
        self.clock.now_ms().to_string().into_bytes()
    }

    async fn try_reserve(&self, hold: &Hold) -> Result<Reserved, StoreError> {
        let mut wishes = hold.grant.map_or(-1.0, double).to_be_bytes().to_vec();
        let choices = if hold.refuse { 0 } else { hold.choices.max(1).into() };
        for amount in [hold.prompt_tokens, hold.output_tokens, choices] {
            put_amount(&mut wishes, amount);
        }
        let least = hold.clamp.filter(|_| clampable(hold)).map(|clamp| clamp.min_output_tokens);
        wishes.extend(least.map_or(-1.0, double).to_be_bytes());
        wishes.extend(record::plan_and_alternatives(hold.plan, &hold.alternatives));
        let mut call = Call {
            kinds: Kinds::default(),
            keys: vec![self.keys.record(hold.account, &hold.id), self.keys.open_holds(hold.account)],
            arguments: vec![
                self.now(),
                record::head(hold),
                wishes,
                ms(self.lifetimes.record).to_string().into_bytes(),
                member(&hold.id, hold.model, None).into_bytes(),
            ],
        };
        for charge in &hold.charges {
            call.kinds.add(answer::letter_of(&charge.meter));
            call.keys.push(self.keys.bucket(hold.account, charge.meter.bucket));
            call.arguments.push(answer::charge(hold, charge));
        }
        let bytes: Vec<u8> = self.patiently(|| self.scripts.reserve.run(&self.connection, &call)).await?;
        let mut answer = Answer::read(&bytes)?;
        let standing = |charge: &super::Charge| answer.standing(charge.meter.algorithm);
        let limits = hold.charges.iter().map(standing).collect::<Option<_>>().ok_or(StoreError::Format)?;
        let verdict = match answer.letter {
            b'H' => {
                let grant = record::grant(answer.rest()).ok_or(StoreError::Format)?;
                self.fresh.put(hold.account, &hold.id, answer.rest());
                self.announce(hold.account).await;
                Verdict::Held { grant, replayed: false }
            }
            b'P' => match record::read(Some(answer.rest())) {
                Ok(Stored::Open(record)) => Verdict::Held { grant: record.grant, replayed: true },
                _ => return Err(StoreError::Format),
            },
            b'R' => Verdict::Refused,
            _ => Verdict::Gone,
        };
        Ok(Reserved { verdict, now_ms: answer.now_ms, limits })
    }

    async fn try_top_up(&self, top_up: &TopUp) -> Result<ToppedUp, StoreError> {
        let mut amount = Vec::new();
        put_amount(&mut amount, top_up.amount);
        let call = Call {
            kinds: Kinds::BALANCE,
            keys: vec![
                self.keys.bucket(top_up.account, top_up.bucket),
                self.keys.grants(top_up.account, top_up.bucket),
            ],
            arguments: vec![top_up.grant_id.clone().into_bytes(), amount],
        };
        let answer: Vec<u8> = self.patiently(|| self.scripts.top_up.run(&self.connection, &call)).await?;
        let mut reader = Reader(&answer);
        let letter = reader.byte();
        let mut account = || {
            let account = Account { granted: reader.amount()?, spent: reader.amount()? };
            Some(account)
        };
        match letter {
            Some(b'D') => account().map(ToppedUp::Done).ok_or(StoreError::Format),
            Some(b'A') => account().map(ToppedUp::Already).ok_or(StoreError::Format),
            Some(b'K') => Ok(ToppedUp::Conflict),
            Some(b'M') => Ok(ToppedUp::TooMuch),
            letter => Err(answer::failure(letter)),
        }
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

    async fn settle(
        &self,
        batch: &[Settlement],
        tell: TellSettled<'_>,
        time: Duration,
    ) -> Vec<Result<Closed, StoreError>> {
        if batch.is_empty() {
            return Vec::new();
        }
        let settled = within(time, async { Ok(self.try_settle(batch, tell).await) }).await;
        settled.unwrap_or_else(|error| batch.iter().map(|_| Err(error.clone())).collect())
    }

    async fn delivered(&self, events: &[(Tag, ReservationId)], time: Duration) -> Result<(), StoreError> {
        within(time, self.try_forget(events)).await
    }

    async fn sweep(&self, sweep: &Sweep<'_>, time: Duration) -> Result<Swept, StoreError> {
        within(time, self.try_sweep(sweep)).await
    }

    async fn extend(&self, batch: &[Extension], time: Duration) -> Vec<Result<Extended, StoreError>> {
        if batch.is_empty() {
            return Vec::new();
        }
        let extended = within(time, async { Ok(self.try_extend(batch).await) }).await;
        extended.unwrap_or_else(|error| batch.iter().map(|_| Err(error.clone())).collect())
    }

    async fn explain(
        &self,
        account: Tag,
        model: Tag,
        meters: &[Meter],
        time: Duration,
    ) -> Result<Explained, StoreError> {
        let keys = vec![self.keys.open_holds(account)];
        let mut call = Call { kinds: Kinds::default(), keys, arguments: vec![self.now()] };
        for meter in meters {
            call.kinds.add(answer::letter_of(meter));
            call.keys.push(self.keys.bucket(account, meter.bucket));
            call.arguments.push(answer::meter(meter));
        }
        let run = self.patiently(|| self.scripts.explain.run(&self.connection, &call));
        let (answer, members): (Vec<u8>, Vec<String>) = within(time, run).await?;
        let mut answer = Answer::read(&answer)?;
        let gauges =
            meters.iter().map(|_| answer.gauge()).collect::<Option<_>>().ok_or(StoreError::Format)?;
        let tokens: Vec<_> = members.iter().filter_map(|member| member_tokens(member, model)).collect();
        Ok(Explained {
            now_ms: answer.now_ms,
            gauges,
            open_holds: tokens.len().try_into().unwrap_or(u64::MAX),
            open_tokens: tokens.into_iter().fold(0, u64::saturating_add),
        })
    }

    async fn top_up(&self, top_up: &TopUp, time: Duration) -> Result<ToppedUp, StoreError> {
        within(time, self.try_top_up(top_up)).await
    }

    async fn reset(&self, account: Tag, bucket: BucketId, time: Duration) -> Result<bool, StoreError> {
        let mut connection = self.connection.clone();
        let key = self.keys.bucket(account, bucket);
        let delete = async { Ok(redis::cmd("UNLINK").arg(key).query_async(&mut connection).await?) };
        within(time, delete).await
    }

    async fn open_holds(&self, account: Tag, most: usize, time: Duration) -> Result<OpenHolds, StoreError> {
        within(time, self.try_open_holds(account, most)).await
    }

    async fn amend(&self, amendment: &Amendment, time: Duration) -> Result<Amended, StoreError> {
        within(time, self.try_amend(amendment)).await
    }

    async fn notes(&self, time: Duration) -> Result<Vec<String>, StoreError> {
        let mut connection = self.connection.clone();
        let read =
            async { Ok(redis::cmd("HVALS").arg(self.keys.notes()).query_async(&mut connection).await?) };
        within(time, read).await
    }

    async fn note(&self, name: Tag, text: Option<&str>, time: Duration) -> Result<(), StoreError> {
        let mut connection = self.connection.clone();
        let (key, field) = (self.keys.notes(), name.to_string());
        let command = match text {
            Some(text) => redis::cmd("HSET").arg(key).arg(field).arg(text).to_owned(),
            None => redis::cmd("HDEL").arg(key).arg(field).to_owned(),
        };
        within(time, async { Ok(command.query_async::<()>(&mut connection).await?) }).await
    }

    async fn forget_note(&self, name: Tag, text: &str, time: Duration) -> Result<bool, StoreError> {
        let arguments = vec![name.to_string().into_bytes(), text.as_bytes().to_vec()];
        let call = Call { keys: vec![self.keys.notes()], arguments, ..Call::default() };
        within(time, self.patiently(|| self.scripts.forget_note.run(&self.connection, &call))).await
    }

    async fn ping(&self, time: Duration) -> Result<(), StoreError> {
        let mut connection = self.connection.clone();
        let ping = async { Ok(redis::cmd("PING").query_async::<()>(&mut connection).await?) };
        within(time, ping).await
    }
}
