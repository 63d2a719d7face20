//! The release of a reserve of which nothing was sent: its id, and what tells the service whose it was.

use std::collections::BTreeMap;

use tokengate_api::{Outcome, ReservationId, ReserveRequest, SettleItem, VerifiedIdentity};

use crate::paths::LISTED;

pub struct Release {
    pub id: ReservationId,
    whose: Whose,
}

enum Whose {
    /// The answer was seen.
    Account(String),
    Caller(Box<Caller>),
    Unknown,
}

/// Of the reserve, what names its caller.
struct Caller {
    attempt: u8,
    key_hash: String,
    identity: Option<VerifiedIdentity>,
    asserted: BTreeMap<String, String>,
}

impl Release {
    /// `None` for a settle of something that was sent.
    pub fn of(item: &mut SettleItem) -> Option<Self> {
        if item.outcome != Outcome::Released || item.sent {
            return None;
        }
        let whose = match (item.account.take(), item.reserve.take()) {
            (Some(account), _) => Whose::Account(account),
            (None, Some(ReserveRequest { attempt, key_hash, identity, asserted, .. })) => {
                Whose::Caller(Box::new(Caller { attempt, key_hash, identity, asserted }))
            }
            (None, None) => Whose::Unknown,
        };
        Some(Self { id: item.id.clone(), whose })
    }

    pub fn item(&self, age_ms: u64, queued_ms: u64) -> SettleItem {
        let (account, reserve) = match &self.whose {
            Whose::Account(account) => (Some(account.clone()), None),
            Whose::Caller(caller) => (None, Some(caller.reserve(&self.id))),
            Whose::Unknown => (None, None),
        };
        SettleItem {
            id: self.id.clone(),
            account,
            outcome: Outcome::Released,
            sent: false,
            usage: None,
            model: None,
            service_tier: None,
            age_ms,
            queued_ms,
            reserve,
        }
    }
}

impl Caller {
    /// A release books nothing, so that all but the caller is left out.
    fn reserve(&self, id: &ReservationId) -> ReserveRequest {
        ReserveRequest {
            id: id.clone(),
            attempt: self.attempt,
            deadline_ms: 1,
            key_hash: self.key_hash.clone(),
            identity: self.identity.clone(),
            asserted: self.asserted.clone(),
            ip: None,
            model: None,
            models: Vec::new(),
            service_tier: None,
            dialect: "openai".to_owned(),
            endpoint: LISTED.to_owned(),
            prompt_tokens: 0,
            max_output_tokens: None,
            choices: 1,
            stream: false,
            can_clamp: false,
            request_id: None,
        }
    }
}
