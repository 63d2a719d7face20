//! Amounts that operators set for one tenant until some time, in the place of the policy's. The store keeps them, so
//! that all instances follow them and none is forgotten by a restart.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::quiet::Quiet;
use crate::quota::Quota;
use crate::tag::Tag;

/// How long another instance may decide without a change.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// One that ended so long ago is removed when another is set.
const FORGOTTEN_AFTER_MS: u64 = 3_600_000;

static UNREADABLE: Quiet = Quiet::new();
static AWAY: Quiet = Quiet::new();

/// One tenant's amount of one limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Override {
    pub tenant: String,
    pub limit: String,
    /// In what the limit counts; nano-dollars where that is cost.
    pub amount: u64,
    /// Milliseconds since the Unix epoch, by the service's clock.
    pub until: u64,
}

impl Override {
    /// Under which the store keeps it.
    pub fn name(tenant: &str, limit: &str) -> Tag {
        Tag::of("override", [Some(tenant), Some(limit)])
    }
}

/// All overrides as they were last read.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Overrides(BTreeMap<Tag, Noted>);

/// An override and the store's note of it.
#[derive(Debug, PartialEq, Eq)]
struct Noted {
    set: Override,
    text: String,
}

impl Overrides {
    /// From the store's notes. What is none of ours is left alone.
    pub fn read(notes: &[String]) -> Self {
        let mut read = BTreeMap::new();
        for note in notes {
            match serde_json::from_str::<Override>(note) {
                Ok(set) => {
                    let name = Override::name(&set.tenant, &set.limit);
                    read.insert(name, Noted { set, text: note.clone() });
                }
                Err(_) => {
                    if let Some(unsaid) = UNREADABLE.say() {
                        warn!(unsaid, "the store has an override that this version cannot read");
                    }
                }
            }
        }
        Self(read)
    }

    /// The one in force.
    pub fn find(&self, tenant: &str, limit: &str, now_ms: u64) -> Option<&Override> {
        if self.0.is_empty() {
            return None;
        }
        self.0.get(&Override::name(tenant, limit)).map(|noted| &noted.set).filter(|one| one.until > now_ms)
    }

    pub fn in_force(&self, now_ms: u64) -> impl Iterator<Item = &Override> {
        self.0.values().map(|noted| &noted.set).filter(move |one| one.until > now_ms)
    }

    /// Names and notes of those that nobody will miss.
    pub fn forgotten(&self, now_ms: u64) -> impl Iterator<Item = (Tag, &str)> {
        let over = move |one: &Override| one.until.saturating_add(FORGOTTEN_AFTER_MS) < now_ms;
        self.0
            .iter()
            .filter(move |(_, noted)| over(&noted.set))
            .map(|(name, noted)| (*name, noted.text.as_str()))
    }
}

/// Looks for changes that other instances have made, for ever. While the store is away the last ones stay.
pub async fn follow(quota: Arc<Quota>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if let Err(error) = quota.refresh_overrides().await
            && let Some(unsaid) = AWAY.say()
        {
            warn!(%error, unsaid, "the overrides could not be read; the last ones stay in force");
        }
    }
}
