//! A policy that changes while the service runs: looked for now and then, and on SIGHUP. One with a mistake
//! changes nothing.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::Signal;
use tracing::{info, warn};

use crate::events::sink::Reopen;
use crate::metrics::ReloadOutcome;
use crate::policy::{Change, Policy, Poll, Watch};
use crate::quota::Quota;

/// What a look at the file came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// As it was at the last look.
    Unchanged,
    /// Another text, which may still be being written: the next look will tell.
    Settling,
    /// In force from now on.
    Loaded,
    /// Not usable; the last good one stays in force.
    Refused(String),
}

/// Follows one policy file on behalf of a service.
pub struct Reloader {
    watch: Watch,
    quota: Arc<Quota>,
}

impl Reloader {
    /// `watch` follows the file from the text from which the policy in force was read.
    pub fn new(watch: Watch, quota: Arc<Quota>) -> Self {
        Self { watch, quota }
    }

    /// Looks at the file, and loads it when its content has changed, or in any case when `forced`.
    pub fn look(&mut self, forced: bool) -> Look {
        let read = match if forced { self.watch.read_now() } else { self.watch.poll() } {
            Poll::Unchanged => return Look::Unchanged,
            Poll::Settling => return Look::Settling,
            Poll::Changed(policy) => self.acceptable(&policy).map(|()| policy),
            Poll::Refused(error) => Err(error.to_string()),
        };
        let metrics = &self.quota.telemetry().metrics;
        let in_force = self.quota.policy();
        match read {
            Ok(policy) => {
                for warning in policy.warnings() {
                    warn!("policy: {warning}");
                }
                for change in Policy::compare(&in_force, &policy) {
                    match change {
                        Change::Restarts { .. } => warn!("policy: {change}"),
                        _ => info!("policy: {change}"),
                    }
                }
                let (version, summary) = (policy.version.clone(), policy.summary());
                self.quota.replace_policy(*policy);
                metrics.policy(&version);
                metrics.policy_read(ReloadOutcome::Loaded);
                info!(policy = summary, "policy loaded");
                Look::Loaded
            }
            Err(reason) => {
                metrics.policy_read(ReloadOutcome::Refused);
                warn!(reason, in_force = in_force.version, "the policy was not loaded");
                Look::Refused(reason)
            }
        }
    }

    fn acceptable(&self, policy: &Policy) -> Result<(), String> {
        if policy.key_prefix == self.quota.policy().key_prefix {
            Ok(())
        } else {
            Err("key_prefix cannot change while the service runs: restart it".to_owned())
        }
    }
}

/// Looks every `pause` (none: never by itself) and at every SIGHUP, for ever. A SIGHUP opens the file of the
/// usage events again, too.
pub async fn follow(
    mut reloader: Reloader,
    pause: Option<Duration>,
    mut hangups: Signal,
    reopen: Option<Reopen>,
) {
    loop {
        let forced = tokio::select! {
            came = hangups.recv() => {
                if came.is_none() {
                    return;
                }
                info!("SIGHUP: reading the policy again");
                if let Some(reopen) = &reopen {
                    reopen.ask();
                }
                true
            }
            () = elapsed(pause) => false,
        };
        // A large policy takes its time.
        let looked = tokio::task::spawn_blocking(move || {
            reloader.look(forced);
            reloader
        });
        match looked.await {
            Ok(back) => reloader = back,
            Err(_) => return,
        }
    }
}

async fn elapsed(pause: Option<Duration>) {
    match pause {
        Some(pause) => tokio::time::sleep(pause).await,
        None => std::future::pending().await,
    }
}
