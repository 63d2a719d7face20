//! Whether this instance can decide, and if not, why: for whoever sends it requests.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::STORE_TIME;
use crate::store::{Store, StoreError};

/// However many ask, the store is asked once in so long.
const KEPT: Duration = Duration::from_secs(1);

/// The last answer, and when it was given.
#[derive(Default)]
pub struct Readiness(Mutex<Option<(Instant, Result<(), Unready>)>>);

impl Readiness {
    pub async fn ask(&self, store: &dyn Store) -> Result<(), Unready> {
        let mut last = self.0.lock().await;
        if let Some((at, answer)) = *last
            && at.elapsed() < KEPT
        {
            return answer;
        }
        let answer = store.ping(STORE_TIME).await.map_err(|error| Unready::from(&error));
        *last = Some((Instant::now(), answer));
        answer
    }
}

/// Why reserves cannot be decided. The text begins with one or two words that do not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unready {
    #[error("unreachable: the store does not answer")]
    Unreachable,
    #[error("clocks differ: by more than 30 s between the store and this machine")]
    Clocks,
    #[error("replica: the store is a replica, whose master has to be asked")]
    Replica,
    #[error("cluster: the store is a node of a Redis Cluster, which is not supported")]
    Cluster,
    #[error("sentinel: the store is a Sentinel, which keeps no data")]
    Sentinel,
    #[error("no permission: the store's user may not do all that docs/service.md lists")]
    NoPermission,
    #[error("loading: the store still reads what it has on disk")]
    Loading,
    #[error("cannot write: the store takes no writes, for want of replicas or of a disk")]
    CannotWrite,
    #[error("refused: the store answers with an error")]
    Refused,
    #[error("unusable: the store answers what this version cannot read")]
    Unusable,
}

impl From<&StoreError> for Unready {
    fn from(error: &StoreError) -> Self {
        match error {
            StoreError::Timeout | StoreError::Unreachable(_) => Self::Unreachable,
            StoreError::Clock => Self::Clocks,
            StoreError::Unfit("replica") => Self::Replica,
            StoreError::Unfit("cluster") => Self::Cluster,
            StoreError::Unfit("sentinel") => Self::Sentinel,
            StoreError::Refused(said) => Self::refused(said),
            _ => Self::Unusable,
        }
    }
}

impl Unready {
    /// By the words of Redis. Redis 6.2 says of a script that it may not use a command, and not NOPERM.
    fn refused(said: &str) -> Self {
        [
            (Self::NoPermission, &["NOPERM", "can't run this command", "ACL failure", "NOAUTH"][..]),
            (Self::Replica, &["READONLY", "MASTERDOWN"]),
            (Self::Loading, &["LOADING"]),
            (Self::CannotWrite, &["MISCONF", "NOREPLICAS"]),
            (Self::Cluster, &["MOVED", "ASK ", "CLUSTERDOWN", "CROSSSLOT", "TRYAGAIN", "cluster node"]),
            (Self::Sentinel, &["unknown command"]),
        ]
        .into_iter()
        .find(|(_, words)| words.iter().any(|word| said.contains(word)))
        .map_or(Self::Refused, |(reason, _)| reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_why_in_words_that_do_not_change() {
        let script = "ERR Error running script (call to f_0): @user_script:8: @user_script: 8: ";
        for (said, reason) in [
            ("NOPERM User quota has no permissions to run the 'evalsha' command", Unready::NoPermission),
            ("ERR The user executing the script can't run this command or subcommand", Unready::NoPermission),
            ("READONLY You can't write against a read only replica.", Unready::Replica),
            (&format!("{script}-READONLY You can't write against a read only replica."), Unready::Replica),
            ("MASTERDOWN Link with MASTER is down", Unready::Replica),
            ("MOVED 1 127.0.0.1:7001", Unready::Cluster),
            ("CLUSTERDOWN Hash slot not served", Unready::Cluster),
            ("ERR unknown command 'EVALSHA'", Unready::Sentinel),
            ("MISCONF Redis is configured to save RDB snapshots", Unready::CannotWrite),
            ("NOREPLICAS Not enough good replicas to write.", Unready::CannotWrite),
            ("LOADING Redis is loading the dataset in memory", Unready::Loading),
            ("BUSY Redis is busy running a script.", Unready::Refused),
        ] {
            assert_eq!(Unready::from(&StoreError::Refused(said.to_owned())), reason, "{said}");
        }
        for (error, words) in [
            (StoreError::Timeout, "unreachable: "),
            (StoreError::Clock, "clocks differ: "),
            (StoreError::Unfit("replica"), "replica: "),
            (StoreError::Unfit("cluster"), "cluster: "),
            (StoreError::Unfit("sentinel"), "sentinel: "),
            (StoreError::Format, "unusable: "),
        ] {
            assert!(Unready::from(&error).to_string().starts_with(words), "{error}");
        }
    }
}
