//! Whether a server can be counted on, looked at before anybody is told that the service runs.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::RedisStore;
use super::connect::{ConnectError, Target, Unfit, ask, unusable};
use super::script::Call;
use crate::store::{Store, StoreError};
use crate::tag::Tag;

/// How long a start waits for a Redis that is not there yet, still loads, or is about to become the master.
const START: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(100);

/// Why a server cannot be used, and whether that may pass by itself.
struct Refusal {
    reason: String,
    passes: bool,
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        let passes = match &error {
            StoreError::Timeout | StoreError::Unreachable(_) => true,
            StoreError::Refused(said) => {
                let passing = ["LOADING", "READONLY", "MASTERDOWN", "NOREPLICAS", "TRYAGAIN", "BUSY"];
                passing.iter().any(|code| said.contains(code))
            }
            _ => false,
        };
        Self { reason: error.to_string(), passes }
    }
}

impl RedisStore {
    /// Repeats what may pass until the time of a start is over.
    pub(super) async fn started(&self, target: &Target) -> Result<(), ConnectError> {
        let end = Instant::now() + START;
        let mut said = None;
        loop {
            match timeout(end.saturating_duration_since(Instant::now()), self.look_once()).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(refusal)) if !refusal.passes => return Err(unusable(target, refusal.reason)),
                Ok(Err(refusal)) => said = Some(refusal.reason),
                Err(_) => {
                    let reason = said.unwrap_or_else(|| "no answer in time".to_owned());
                    return Err(unusable(target, reason));
                }
            }
            sleep(PAUSE.min(end.saturating_duration_since(Instant::now()))).await;
        }
    }

    /// It is of the right kind, keeps what it is told, allows every command, and its clock agrees with ours.
    async fn look_once(&self) -> Result<(), Refusal> {
        let info = ask(&mut self.connection.clone()).await.map_err(|error| {
            let refusal = Refusal::from(StoreError::from(error));
            match Unfit::said(&refusal.reason) {
                Some(unfit) => Refusal { reason: unfit.to_string(), passes: false },
                None => refusal,
            }
        })?;
        if let Some(unfit) = info.unfit {
            // A master may be in the making.
            return Err(Refusal { reason: unfit.to_string(), passes: unfit == Unfit::Replica });
        }
        if let Some(policy) = info.evicts {
            let reason = format!("its maxmemory-policy is {policy}, it must be noeviction");
            return Err(Refusal { reason, passes: false });
        }
        let nobody = Tag::of("self-test", []);
        let call = Call { keys: vec![self.keys.self_test(nobody)], ..Call::default() };
        self.patiently(|| self.scripts.self_test.run::<()>(&self.connection, &call)).await?;
        Ok(self.explain(nobody, nobody, &[], Duration::from_secs(2)).await.map(|_| ())?)
    }
}
