//! Who and what a request is counted for: caller, model, endpoint, address.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;

use tokengate_api::{IdentifyRequest, Reason, ReserveRequest, VerifiedIdentity};

use crate::overrides::Overrides;
use crate::policy::{Dimension, Identity, IdentityError, Limit, Policy};
use crate::store::BucketId;
use crate::tag::Tag;

/// Whom a request belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who {
    pub identity: Identity,
    /// The hash of the caller's key as the policy lists it; absent for a caller whom the proxy verified.
    pub key: Option<String>,
}

impl Who {
    /// # Errors
    /// The reason to deny with: nobody is known by this key, or what is said of the caller cannot be.
    pub fn of(policy: &Policy, request: &ReserveRequest) -> Result<Self, Reason> {
        Self::called(policy, &request.key_hash, request.identity.as_ref(), &request.asserted)
    }

    /// Whether a reserve of this caller would not be refused for who it is. What its request's headers assert is not
    /// looked at: they belong to one request.
    pub fn is_known(policy: &Policy, request: &IdentifyRequest) -> bool {
        Self::called(policy, &request.key_hash, request.identity.as_ref(), &BTreeMap::new()).is_ok()
    }

    fn called(
        policy: &Policy,
        key_hash: &str,
        verified: Option<&VerifiedIdentity>,
        asserted: &BTreeMap<String, String>,
    ) -> Result<Self, Reason> {
        if let Some(verified) = verified {
            let (user, plan) = (verified.user.as_deref(), verified.plan.as_deref());
            let identity =
                policy.keys.verified(&policy.plans, &verified.tenant, user, plan).map_err(reason)?;
            return Ok(Self { identity, key: None });
        }
        let caller = policy.keys.get(key_hash).ok_or(Reason::UnknownKey)?;
        let header = |name: &str| asserted.get(name).map(String::as_str);
        let identity = caller.identity(&policy.plans, header).map_err(reason)?;
        Ok(Self { identity, key: Some(caller.key.clone()) })
    }
}

fn reason(error: IdentityError) -> Reason {
    match error {
        IdentityError::NotAccepted => Reason::UnknownKey,
        IdentityError::BadTenant
        | IdentityError::BadUser
        | IdentityError::UnknownPlan
        | IdentityError::NoPlan => Reason::InvalidIdentity,
    }
}

/// What a limit is evaluated for.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    pub policy: &'a Policy,
    pub identity: &'a Identity,
    pub key: Option<&'a str>,
    /// Canonical name; absent on endpoints without a model.
    pub model: Option<&'a str>,
    pub endpoint: &'a str,
    pub ip: Option<&'a str>,
}

impl<'a> Subject<'a> {
    fn value(&self, dimension: Dimension) -> Option<Cow<'a, str>> {
        match dimension {
            Dimension::Tenant => Some(Cow::Borrowed(&self.identity.tenant)),
            Dimension::Plan => Some(Cow::Borrowed(&self.identity.plan)),
            Dimension::Key => self.key.map(Cow::Borrowed),
            Dimension::Model => self.model.map(Cow::Borrowed),
            Dimension::Endpoint => Some(Cow::Borrowed(self.endpoint)),
            Dimension::Ip => self.ip.map(network),
            // A machine's key counts as a user of its own: never one bucket for all of them, never none.
            Dimension::User => match (&self.identity.user, self.key) {
                (Some(user), _) => Some(Cow::Owned(self.policy.user_name(user))),
                (None, Some(key)) => Some(Cow::Owned(format!("key:{key}"))),
                (None, None) => None,
            },
        }
    }

    pub fn bucket(&self, limit: &Limit) -> BucketId {
        let value = |dimension: &Dimension| match (dimension, self.value(*dimension), &self.identity.user) {
            // A user may be called as a machine's key is.
            (Dimension::User, Some(user), Some(_)) => Some(Cow::Owned(format!("user:{user}"))),
            (_, value, _) => value,
        };
        let values: Vec<_> = limit.per.iter().map(value).collect();
        let subject = Tag::of("bucket", values.iter().map(Option::as_deref));
        BucketId { shared: limit.is_shared(), limit: limit.tag, subject }
    }

    pub fn scope(&self, limit: &Limit) -> BTreeMap<String, String> {
        let shown = |dimension: &Dimension| {
            let value = self.value(*dimension).unwrap_or(Cow::Borrowed("-"));
            let value = match (dimension, value.strip_prefix("key:")) {
                (Dimension::Key, _) => value.get(..8).unwrap_or(&value).to_owned(),
                (Dimension::User, Some(hash)) if self.identity.user.is_none() => {
                    format!("key:{}", hash.get(..8).unwrap_or(hash))
                }
                _ => value.into_owned(),
            };
            (dimension.name().to_owned(), value)
        };
        limit.per.iter().map(shown).collect()
    }
}

/// A limit that applies, and what it admits.
pub struct Applying<'p> {
    pub limit: &'p Limit,
    pub amount: u64,
    /// The amount is an override's.
    pub overridden: Option<Overridden>,
}

/// What becomes of an amount that an override sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overridden {
    pub ends_in_ms: u64,
    /// What the limit admits from then on.
    pub then: u64,
}

/// The limits that apply to a subject, with their amounts. Requests without a model use no tokens.
pub fn applying<'p>(
    policy: &'p Policy,
    overrides: &'p Overrides,
    subject: &Subject<'_>,
    now_ms: u64,
) -> impl Iterator<Item = Applying<'p>> {
    let with_model = subject.model.is_some();
    let Identity { plan, tenant, .. } = subject.identity.clone();
    policy.limits.iter().filter(move |limit| with_model || limit.applies_without_model()).filter_map(
        move |limit| {
            let then = limit.amount_for(&plan, &tenant)?;
            let set = overrides.find(&tenant, &limit.name, now_ms);
            Some(Applying {
                limit,
                amount: set.map_or(then, |one| one.amount),
                overridden: set.map(|one| Overridden { ends_in_ms: one.until.saturating_sub(now_ms), then }),
            })
        },
    )
}

/// What a limit admits: an override takes the place of what the policy says, where that says something.
pub fn amount_for(
    limit: &Limit,
    overrides: &Overrides,
    plan: &str,
    tenant: &str,
    now_ms: u64,
) -> Option<u64> {
    let amount = limit.amount_for(plan, tenant)?;
    Some(overrides.find(tenant, &limit.name, now_ms).map_or(amount, |one| one.amount))
}

/// Whether a text is an address, without a port.
pub fn is_address(text: &str) -> bool {
    text.parse::<IpAddr>().is_ok()
}

/// An address as it is counted: IPv6 by its /64, of which one customer has at least one. What is no address
/// stands for itself.
fn network(text: &str) -> Cow<'_, str> {
    match text.parse::<IpAddr>().map(|address| address.to_canonical()) {
        Ok(IpAddr::V4(address)) => Cow::Owned(address.to_string()),
        Ok(IpAddr::V6(address)) => {
            let network = u128::from(address) >> 64 << 64;
            Cow::Owned(format!("{}/64", std::net::Ipv6Addr::from(network)))
        }
        Err(_) => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_counted_by_its_network() {
        for (text, expected) in [
            ("192.0.2.7", "192.0.2.7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
            ("2001:DB8:1:2::", "2001:db8:1:2::/64"),
            ("::1", "::/64"),
            ("not an address", "not an address"),
        ] {
            assert_eq!(network(text), expected);
        }
    }
}
