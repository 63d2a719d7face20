use tokengate_api::ReservationId;

use crate::store::BucketId;
use crate::tag::Tag;

/// Key names. All keys of a tenant share one hash tag, so that one script may touch them together; only
/// hashes and ids reach a key.
#[derive(Clone, Debug)]
pub struct Keys {
    pub prefix: String,
}

impl Keys {
    pub fn record(&self, account: Tag, id: &ReservationId) -> String {
        format!("{}:{{{account}}}:r:{id}", self.prefix)
    }

    pub fn open_holds(&self, account: Tag) -> String {
        format!("{}:{{{account}}}:o", self.prefix)
    }

    pub fn bucket(&self, account: Tag, bucket: BucketId) -> String {
        let home = bucket.home(account);
        format!("{}:{{{home}}}:b:{}:{}", self.prefix, bucket.limit, bucket.subject)
    }

    /// Usage events that wait for their delivery.
    pub fn outbox(&self, account: Tag) -> String {
        format!("{}:{{{account}}}:e", self.prefix)
    }

    /// Accounts that have had holds or settlements of late, with when that was last announced: what a sweep goes
    /// through.
    pub fn accounts(&self) -> String {
        format!("{}:accounts", self.prefix)
    }

    /// Held by the instance that sweeps.
    pub fn sweeper(&self) -> String {
        format!("{}:sweeper", self.prefix)
    }

    /// Used for a moment at the start.
    pub fn self_test(&self, account: Tag) -> String {
        format!("{}:{{{account}}}:t", self.prefix)
    }

    /// What an operator's change of a bucket was.
    pub fn amendment(&self, home: Tag, id: Tag) -> String {
        format!("{}:{{{home}}}:c:{id}", self.prefix)
    }

    /// One for all tenants.
    pub fn notes(&self) -> String {
        format!("{}:notes", self.prefix)
    }

    /// Top-ups of a balance.
    pub fn grants(&self, account: Tag, bucket: BucketId) -> String {
        let home = bucket.home(account);
        format!("{}:{{{home}}}:g:{}:{}", self.prefix, bucket.limit, bucket.subject)
    }
}

/// Member of the open holds: what explain counts, and what a settle can make again from the record. Without
/// tokens it is the part that a reserve knows before it is decided.
pub fn member(id: &ReservationId, model: Tag, tokens: Option<u64>) -> String {
    match tokens {
        Some(tokens) => format!("{id}:{model}:{tokens}"),
        None => format!("{id}:{model}:"),
    }
}

/// Id, model and tokens of a member.
pub fn member_parts(member: &str) -> Option<(ReservationId, Tag, u64)> {
    let mut parts = member.split(':');
    let id = ReservationId::try_from(parts.next()?.to_owned()).ok()?;
    Some((id, Tag::parse(parts.next()?)?, parts.next()?.parse().ok()?))
}

/// Tokens of a member, when it belongs to the model.
pub fn member_tokens(member: &str, of_model: Tag) -> Option<u64> {
    let mut parts = member.split(':');
    let (_, model, tokens) = (parts.next()?, parts.next()?, parts.next()?);
    if Tag::parse(model)? == of_model { tokens.parse().ok() } else { None }
}
