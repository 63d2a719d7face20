//! A policy that changes while the service runs: looked for now and then, and on SIGHUP. One with a mistake
//! changes nothing.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::signal::unix::Signal;
use tracing::{info, warn};

use crate::events::sink::Reopen;
use crate::metrics::ReloadOutcome;
use crate::policy::Policy;
use crate::quota::Quota;

/// What a look at the file came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// As it was at the last look.
    Unchanged,
    /// In force from now on.
    Loaded,
    /// Not usable; the last good one stays in force.
    Refused(String),
}

/// The content of the file: a hash, or nothing when it cannot be read.
pub type Content = Option<[u8; 32]>;

/// Follows one policy file on behalf of a service.
pub struct Reloader {
    file: PathBuf,
    quota: Arc<Quota>,
    seen: Content,
}

impl Reloader {
    /// `seen` is the content from which the policy in force was loaded.
    pub fn new(file: &Path, seen: Content, quota: Arc<Quota>) -> Self {
        Self { file: file.to_owned(), quota, seen }
    }

    /// Looks at the file, and loads it when its content has changed, or in any case when `forced`.
    pub fn look(&mut self, forced: bool) -> Look {
        let content = content(&self.file);
        // A mistake is said once, not with every look.
        if content == self.seen && !forced {
            return Look::Unchanged;
        }
        self.seen = content;
        let metrics = &self.quota.telemetry().metrics;
        match self.load() {
            Ok(policy) => {
                metrics.policy(&policy.version);
                metrics.policy_read(ReloadOutcome::Loaded);
                let summary = policy.summary();
                self.quota.replace_policy(policy);
                // Said when it is so.
                info!(policy = summary, "policy loaded");
                Look::Loaded
            }
            Err(reason) => {
                metrics.policy_read(ReloadOutcome::Refused);
                warn!(reason, in_force = self.quota.policy().version, "the policy was not loaded");
                Look::Refused(reason)
            }
        }
    }

    fn load(&self) -> Result<Policy, String> {
        let policy = Policy::load(&self.file).map_err(|error| error.to_string())?;
        let in_force = self.quota.policy();
        if policy.key_prefix != in_force.key_prefix {
            return Err("key_prefix cannot change while the service runs: restart it".to_owned());
        }
        for warning in policy.warnings() {
            warn!("policy: {warning}");
        }
        for name in restarted(&in_force, &policy) {
            warn!("policy: limit {name} counts something else now: it begins anew");
        }
        Ok(policy)
    }
}

/// Limits that keep their name and not their buckets.
fn restarted<'a>(old: &Policy, new: &'a Policy) -> Vec<&'a str> {
    let tags: BTreeMap<_, _> = old.limits.iter().map(|limit| (limit.name.as_str(), limit.tag)).collect();
    let other =
        |limit: &&crate::policy::Limit| tags.get(limit.name.as_str()).is_some_and(|tag| *tag != limit.tag);
    new.limits.iter().filter(other).map(|limit| limit.name.as_str()).collect()
}

/// The hash of a file's content. The content, not the time of its last change: files are replaced by links
/// and by copies that keep their times.
pub fn content(file: &Path) -> Content {
    fs::read(file).ok().map(|bytes| Sha256::digest(bytes).into())
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
