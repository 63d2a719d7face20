//! Who a caller is: API keys, and what a key may assert about the caller behind it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::Plan;
use super::secret::Secret;

/// Who a key belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// As it stands in the policy: the key's hash, by which buckets tell keys apart.
    pub key: String,
    pub tenant: String,
    pub plan: String,
    pub user: Option<String>,
    pub asserts: Asserts,
}

/// Names of the request headers, in lower case, by which a backend says who its own caller is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asserts {
    pub user: Option<String>,
    pub plan: Option<String>,
}

/// All keys of a policy.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    sha256: HashMap<String, Caller>,
    hmac_sha256: HashMap<String, Caller>,
    secret: Option<Secret>,
    /// Callers without a key may be anybody.
    verified: Option<VerifiedIdentities>,
    /// The plans of each tenant's keys; `None`: any.
    by_tenant: HashMap<String, Option<BTreeSet<String>>>,
    /// Every key in one way of writing it: by its HMAC where there is a secret.
    listed: HashSet<String>,
}

/// Callers that the proxy has verified itself (a token's claims, a certificate) are accepted as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedIdentities {
    /// The plan of a caller that brings none.
    pub default_plan: Option<String>,
}

impl Keys {
    pub(super) fn new(secret: Option<Secret>, verified: Option<VerifiedIdentities>) -> Self {
        Self { secret, verified, ..Self::default() }
    }

    /// The caller of a key, by the SHA-256 that the filter sends (64 lower-case hex digits). With a secret,
    /// HMAC-SHA-256 over those 64 digits is looked up as well.
    pub fn get(&self, key_hash: &str) -> Option<&Caller> {
        self.sha256.get(key_hash).or_else(|| {
            let secret = self.secret.as_ref().filter(|_| !self.hmac_sha256.is_empty())?;
            self.hmac_sha256.get(&secret.hex(key_hash.as_bytes()))
        })
    }

    pub fn iter(&self) -> impl Iterator<Item = &Caller> {
        self.sha256.values().chain(self.hmac_sha256.values())
    }

    /// Adds a caller; false, and nothing, when its key is there already, in whichever way it is written.
    pub(super) fn insert(&mut self, caller: Caller, keyed: bool) -> bool {
        let one_name = match &self.secret {
            Some(secret) if !keyed => secret.hex(caller.key.as_bytes()),
            _ => caller.key.clone(),
        };
        if !self.listed.insert(one_name) {
            return false;
        }
        let plans = self.by_tenant.entry(caller.tenant.clone()).or_insert_with(|| Some(BTreeSet::new()));
        match plans {
            Some(_) if caller.asserts.plan.is_some() => *plans = None,
            Some(plans) => {
                plans.insert(caller.plan.clone());
            }
            None => {}
        }
        let keys = if keyed { &mut self.hmac_sha256 } else { &mut self.sha256 };
        keys.insert(caller.key.clone(), caller);
        true
    }

    /// The plans that a tenant's requests can have: none when nobody can be this tenant.
    pub fn plans_of<'p>(&'p self, tenant: &str, plans: &'p BTreeMap<String, Plan>) -> BTreeSet<&'p String> {
        match self.by_tenant.get(tenant) {
            _ if self.verified.is_some() && is_plain(tenant) => plans.keys().collect(),
            None => BTreeSet::new(),
            Some(None) => plans.keys().collect(),
            Some(Some(plans)) => plans.iter().collect(),
        }
    }

    /// Some callers can choose among all plans.
    pub fn any_plan(&self) -> bool {
        self.verified.is_some() || self.iter().any(|caller| caller.asserts.plan.is_some())
    }

    pub fn accepts_verified(&self) -> bool {
        self.verified.is_some()
    }

    /// Who a caller is whom the proxy has verified.
    ///
    /// # Errors
    /// The policy does not accept such callers, or not this one.
    pub fn verified(
        &self,
        plans: &BTreeMap<String, Plan>,
        tenant: &str,
        user: Option<&str>,
        plan: Option<&str>,
    ) -> Result<Identity, IdentityError> {
        let verified = self.verified.as_ref().ok_or(IdentityError::NotAccepted)?;
        if !is_plain(tenant) {
            return Err(IdentityError::BadTenant);
        }
        if user.is_some_and(|user| !is_plain(user)) {
            return Err(IdentityError::BadUser);
        }
        let plan = plan.or(verified.default_plan.as_deref()).ok_or(IdentityError::NoPlan)?;
        if !plans.contains_key(plan) {
            return Err(IdentityError::UnknownPlan);
        }
        Ok(Identity { tenant: tenant.to_owned(), plan: plan.to_owned(), user: user.map(str::to_owned) })
    }

    pub fn len(&self) -> usize {
        self.sha256.len() + self.hmac_sha256.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Whom a request is charged to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub tenant: String,
    pub plan: String,
    /// Absent: a machine's key; limits per user then count the key.
    pub user: Option<String>,
}

/// Why nobody can be charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    #[error("the policy accepts callers with a key only")]
    NotAccepted,
    #[error("the tenant is empty, longer than 128 bytes or not plain text")]
    BadTenant,
    #[error("the user is empty, longer than 128 bytes or not plain text")]
    BadUser,
    #[error("the caller has a plan that the policy does not have")]
    UnknownPlan,
    #[error("the caller has no plan and the policy no default")]
    NoPlan,
}

/// The longest asserted value, in bytes.
const MAX_ASSERTED: usize = 128;

impl Caller {
    /// The caller with what its request's headers assert, as far as its key may assert it. `header` gives the
    /// one value of a header by its lower-case name.
    ///
    /// # Errors
    /// The value cannot be what the key is allowed to assert.
    pub fn identity<'h>(
        &self,
        plans: &BTreeMap<String, Plan>,
        header: impl Fn(&str) -> Option<&'h str>,
    ) -> Result<Identity, IdentityError> {
        let asserted = |name: &Option<String>| name.as_deref().and_then(&header);
        let user = match asserted(&self.asserts.user) {
            None => self.user.clone(),
            Some(user) if is_plain(user) => Some(user.to_owned()),
            Some(_) => return Err(IdentityError::BadUser),
        };
        let plan = match asserted(&self.asserts.plan) {
            None => self.plan.clone(),
            Some(plan) if plans.contains_key(plan) => plan.to_owned(),
            Some(_) => return Err(IdentityError::UnknownPlan),
        };
        Ok(Identity { tenant: self.tenant.clone(), plan, user })
    }
}

/// What a user may be called.
pub(super) fn is_plain(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= MAX_ASSERTED
        && !text.chars().any(char::is_control)
        && text.trim() == text
}
