//! Usage events that wait in the store, and the accounts that a sweep has to look at for them.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokengate_api::ReservationId;

use super::super::StoreError;
use super::super::lifetimes::ms;
use super::RedisStore;
use crate::tag::Tag;

/// An event that nobody could deliver for so long is lost: memory is not without end.
pub const LIFE: Duration = Duration::from_secs(7 * 86_400);

/// An account is announced again after so long.
const ANNOUNCE_EVERY: Duration = Duration::from_secs(600);

/// What has been announced for so long and not again has neither events nor holds any more.
pub const ANNOUNCED_FOR: Duration = LIFE.saturating_add(Duration::from_secs(86_400));

/// So many accounts are remembered as announced; beyond it they are announced again.
const MOST: usize = 100_000;

/// Until when accounts need not be announced again, in milliseconds by the service's clock.
#[derive(Default)]
pub struct Announced(Mutex<HashMap<Tag, u64>>);

impl Announced {
    fn has(&self, account: Tag, now_ms: u64) -> bool {
        let announced = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        announced.get(&account).is_some_and(|until| now_ms < *until)
    }

    fn done(&self, account: Tag, now_ms: u64) {
        let mut announced = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if announced.len() >= MOST {
            announced.clear();
        }
        announced.insert(account, now_ms.saturating_add(ms(ANNOUNCE_EVERY)));
    }
}

impl RedisStore {
    /// Sees to it that sweeps look at an account. A failure is not one of the call: what follows will fail as
    /// well, or the next call announces it.
    pub(super) async fn announce(&self, account: Tag) {
        let now_ms = self.clock.now_ms();
        if self.announced.has(account, now_ms) {
            return;
        }
        let key = self.keys.accounts();
        let mut announce = redis::pipe();
        // Never back: an instance whose clock is behind must not have an account forgotten.
        announce.cmd("ZADD").arg(&key).arg("GT").arg(now_ms).arg(account.to_string()).ignore();
        announce.cmd("PEXPIRE").arg(&key).arg(ms(ANNOUNCED_FOR)).ignore();
        if announce.query_async::<()>(&mut self.connection.clone()).await.is_ok() {
            self.announced.done(account, now_ms);
        }
    }

    pub(super) async fn try_forget(&self, events: &[(Tag, ReservationId)]) -> Result<(), StoreError> {
        let mut by_account = BTreeMap::<_, Vec<_>>::new();
        for (account, id) in events {
            by_account.entry(account).or_default().push(id.as_str());
        }
        let mut forget = redis::pipe();
        for (account, ids) in by_account {
            forget.cmd("HDEL").arg(self.keys.outbox(*account)).arg(ids).ignore();
        }
        Ok(forget.query_async(&mut self.connection.clone()).await?)
    }
}

/// An event as it is kept: since when, and its line.
pub fn keep(line: &str, now_ms: u64) -> Vec<u8> {
    format!("{now_ms} {line}").into_bytes()
}

/// Since when an event is kept, and its line.
pub fn kept(value: &str) -> Option<(u64, &str)> {
    let (since, line) = value.split_once(' ')?;
    Some((since.parse().ok()?, line))
}
