use std::time::Duration;

use tokengate_api::ReservationId;
use tracing::warn;

use super::super::lifetimes::ms;
use super::super::{KeptEvent, LapsedHold, OpenHold, StoreError, Sweep, Swept};
use super::RedisStore;
use super::keys::member_parts;
use super::outbox::{ANNOUNCED_FOR, LIFE, keep, kept};
use super::script::Call;
use crate::quiet::Quiet;
use crate::tag::Tag;

static UNREADABLE: Quiet = Quiet::new();

/// Accounts per step, about; the server decides.
const ACCOUNTS: usize = 100;
/// Lapsed holds of an account per step. The next sweep finds more.
const HOLDS: usize = 500;
/// Passes before a lapsed hold counts as one; `lapse.lua` keeps to the same.
const MARGIN: Duration = Duration::from_secs(60);
/// Events that are read at a time.
const EVENTS: usize = 200;

impl RedisStore {
    pub(super) async fn try_sweep(&self, sweep: &Sweep<'_>) -> Result<Swept, StoreError> {
        // Before the claim: an instance whose clock is wrong must not keep the others from it.
        let now_ms = self.server_now_ms().await?;
        if sweep.cursor.is_none() && !self.is_alone(sweep).await? {
            return Ok(Swept::default());
        }
        let (next, accounts) = self.accounts(sweep.cursor.unwrap_or(0)).await?;
        let mut swept = Swept { next: Some(next).filter(|next| *next != 0), ..Swept::default() };
        let mut looks = redis::pipe();
        // One tenant's key that holds something else must not keep the others from being looked at.
        looks.ignore_errors();
        let lapsed_before = now_ms.saturating_sub(ms(MARGIN));
        for account in &accounts {
            looks.cmd("ZRANGEBYSCORE").arg(self.keys.open_holds(*account)).arg("-inf").arg(lapsed_before);
            looks.arg("WITHSCORES").arg("LIMIT").arg(0).arg(HOLDS);
            looks.cmd("HLEN").arg(self.keys.outbox(*account));
        }
        let mut waiting = Vec::new();
        if !accounts.is_empty() {
            let found: Vec<redis::Value> = looks.query_async(&mut self.connection.clone()).await?;
            let mut found = found.into_iter();
            for account in accounts {
                let (Some(holds), Some(events)) = (found.next(), found.next()) else { break };
                if let Ok(holds) = redis::from_redis_value(holds) {
                    passable(self.lapse(account, holds, sweep, &mut swept).await)?;
                }
                if redis::from_redis_value::<u64>(events).is_ok_and(|events| events > 0) {
                    waiting.push(account);
                }
            }
        }
        for account in waiting {
            passable(self.left_over(account, sweep, &mut swept.events).await)?;
        }
        if swept.next.is_none() {
            self.forget_accounts().await?;
        }
        Ok(swept)
    }

    /// One instance is enough.
    async fn is_alone(&self, sweep: &Sweep<'_>) -> Result<bool, StoreError> {
        let mut claim = redis::cmd("SET");
        claim.arg(self.keys.sweeper()).arg("1").arg("NX").arg("PX").arg(ms(sweep.alone_for).max(1));
        let claimed: Option<String> = claim.query_async(&mut self.connection.clone()).await?;
        Ok(claimed.is_some())
    }

    async fn accounts(&self, cursor: u64) -> Result<(u64, Vec<Tag>), StoreError> {
        let mut scan = redis::cmd("ZSCAN");
        scan.arg(self.keys.accounts()).arg(cursor).arg("COUNT").arg(ACCOUNTS);
        let (next, members): (u64, Vec<(String, f64)>) =
            scan.query_async(&mut self.connection.clone()).await?;
        Ok((next, members.iter().filter_map(|(account, _)| Tag::parse(account)).collect()))
    }

    /// Takes what has lapsed off the open holds.
    async fn lapse(
        &self,
        account: Tag,
        members: Vec<(String, f64)>,
        sweep: &Sweep<'_>,
        swept: &mut Swept,
    ) -> Result<(), StoreError> {
        let no_more = |most| swept.events.len() >= most;
        if members.is_empty() || sweep.most_events.is_some_and(no_more) {
            return Ok(());
        }
        let life = ms(self.lifetimes.record);
        let mut call = Call {
            keys: vec![self.keys.open_holds(account), self.keys.outbox(account)],
            arguments: vec![self.now(), ms(LIFE).to_string().into_bytes()],
            ..Call::default()
        };
        let mut holds = Vec::with_capacity(members.len());
        for (member, lapsed_at) in members {
            let (id, model, tokens) = member_parts(&member).ok_or(StoreError::Format)?;
            let reserved_at_ms = (lapsed_at as u64).saturating_sub(life);
            let hold = LapsedHold { account, hold: OpenHold { id, model, tokens, reserved_at_ms } };
            let line = (sweep.tell)(&hold);
            call.arguments.push(member.into_bytes());
            call.arguments
                .push(line.as_deref().map(|line| keep(line, self.clock.now_ms())).unwrap_or_default());
            holds.push((hold, line));
        }
        let taken: Option<Vec<bool>> =
            self.patiently(|| self.scripts.lapse.run(&self.connection, &call)).await?;
        let taken = taken.ok_or(StoreError::Clock)?;
        for ((hold, line), _) in holds.into_iter().zip(taken).filter(|(_, taken)| *taken) {
            let id = hold.hold.id.clone();
            swept.events.extend(line.map(|line| KeptEvent { account, id, line }));
            swept.lapsed.push(hold);
        }
        Ok(())
    }

    /// Events of an account that are kept for so long that nobody seems to deliver them.
    async fn left_over(
        &self,
        account: Tag,
        sweep: &Sweep<'_>,
        events: &mut Vec<KeptEvent>,
    ) -> Result<(), StoreError> {
        let most = sweep.most_events.unwrap_or(0);
        let mut cursor = 0u64;
        while events.len() < most {
            let mut scan = redis::cmd("HSCAN");
            scan.arg(self.keys.outbox(account)).arg(cursor).arg("COUNT").arg(EVENTS);
            let (next, found): (u64, Vec<(String, String)>) =
                scan.query_async(&mut self.connection.clone()).await?;
            for (id, value) in found {
                let Some((since_ms, line)) = kept(&value) else { continue };
                if since_ms < sweep.kept_before_ms
                    && let Ok(id) = ReservationId::try_from(id)
                {
                    events.push(KeptEvent { account, id, line: line.to_owned() });
                }
            }
            cursor = next;
            if cursor == 0 {
                break;
            }
        }
        Ok(())
    }

    async fn forget_accounts(&self) -> Result<(), StoreError> {
        let mut forget = redis::cmd("ZREMRANGEBYSCORE");
        let before = self.clock.now_ms().saturating_sub(ms(ANNOUNCED_FOR));
        forget.arg(self.keys.accounts()).arg("-inf").arg(before);
        Ok(forget.query_async(&mut self.connection.clone()).await?)
    }
}

/// What is wrong with one tenant's keys is no reason to stop.
fn passable(outcome: Result<(), StoreError>) -> Result<(), StoreError> {
    match outcome {
        Err(StoreError::Format) => {
            if let Some(unsaid) = UNREADABLE.say() {
                warn!(unsaid, "a sweep passes over a tenant whose holds or usage events cannot be read");
            }
            Ok(())
        }
        outcome => outcome,
    }
}
