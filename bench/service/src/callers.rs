//! What is asked: reserves and settles of many tenants, all alike.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use tokengate_api::{Outcome as Ending, ReservationId, ReserveRequest, SettleItem, Usage, VerifiedIdentity};
use tokengate_ratelimit::overrides::Overrides;
use tokengate_ratelimit::policy::Policy;
use tokengate_ratelimit::request_plan::plan_request;
use tokengate_ratelimit::store::{Answered, Closed, Closing, Hold, Settled, Settlement, StoreError};

use crate::Outcome;

/// Held: 1,250 tokens. Used: 600, so that every settle gives something back.
const PROMPT: u64 = 250;
const OUTPUT: u64 = 1000;
const USAGE: Usage = Usage { input: 210, cache_read: 40, cache_write: 0, output: 350, reasoning: 0 };

/// Ids that never come twice.
#[derive(Default)]
pub struct Ids(u64);

impl Ids {
    /// Scattered like random ones, which decides where Redis keeps them in its sorted sets.
    pub fn next(&mut self) -> ReservationId {
        self.0 += 1;
        let scattered = self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&scattered.to_be_bytes());
        bytes[8..].copy_from_slice(&self.0.to_be_bytes());
        ReservationId::from_bytes(bytes)
    }
}

pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

pub fn request(id: ReservationId, tenant: usize) -> ReserveRequest {
    ReserveRequest {
        id,
        attempt: 1,
        deadline_ms: 10_000,
        key_hash: String::new(),
        identity: Some(VerifiedIdentity { tenant: format!("tenant-{tenant}"), user: None, plan: None }),
        asserted: Default::default(),
        ip: None,
        model: Some("gpt".to_owned()),
        models: Vec::new(),
        service_tier: None,
        dialect: "openai".to_owned(),
        endpoint: "chat.completions".to_owned(),
        prompt_tokens: PROMPT,
        max_output_tokens: Some(OUTPUT),
        choices: 1,
        stream: true,
        can_clamp: false,
        request_id: None,
    }
}

/// What the service asks its store for.
pub fn hold(policy: &Policy, id: ReservationId, tenant: usize) -> Outcome<Hold> {
    let plan = plan_request(policy, &Overrides::default(), &request(id, tenant), now_ms());
    Ok(plan.map_err(|denied| format!("the policy refuses: {}", denied.reason.as_str()))?.hold)
}

pub fn settlement(hold: &Hold) -> Settlement {
    Settlement {
        id: hold.id.clone(),
        account: hold.account,
        closing: Closing::Used(USAGE),
        answered: Answered::default(),
        attempt: None,
        age_ms: 1000,
        queued_ms: 0,
        booking: None,
    }
}

pub fn reserve_body(id: ReservationId, tenant: usize) -> Outcome<Bytes> {
    Ok(serde_json::to_vec(&request(id, tenant))?.into())
}

pub fn settle_body(hold: &Hold) -> Outcome<Bytes> {
    let item = SettleItem {
        id: hold.id.clone(),
        account: Some(hold.account.to_string()),
        outcome: Ending::Used,
        sent: true,
        usage: Some(USAGE),
        model: None,
        service_tier: None,
        age_ms: 1000,
        queued_ms: 0,
        reserve: None,
    };
    Ok(serde_json::to_vec(&[item])?.into())
}

/// The one settle of a batch has replaced its hold.
pub fn replaced(answers: &Vec<Result<Closed, StoreError>>) -> bool {
    matches!(answers.as_slice(), [Ok(Closed { settled: Settled::Replaced, .. })])
}
