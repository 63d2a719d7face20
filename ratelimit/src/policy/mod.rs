//! The policy: what is limited, per what, how much. Read once from YAML and checked whole; a policy that
//! exists can be used without further checks.

mod error;
mod fields;
mod limits;
mod models;
mod read;
mod warnings;
pub(crate) mod yaml;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use tokengate_api::{Metric, ModelInfo, model_name};

pub use error::{At, PolicyError};

use crate::tag::Tag;

/// Tokens to hold per choice when neither the client nor the model says anything.
pub const DEFAULT_OUTPUT_TOKENS: u64 = 1024;
/// The most limits one request may have to pass.
pub const MAX_LIMITS: usize = 16;

#[derive(Debug)]
pub struct Policy {
    /// The file's `version` and the first digits of its content's hash, so that two different files never
    /// look the same to a filter.
    pub version: String,
    pub key_prefix: String,
    pub models: Vec<ModelInfo>,
    pub plans: BTreeMap<String, Plan>,
    /// By SHA-256 of the API key, 64 lower-case hex digits.
    pub keys: HashMap<String, Caller>,
    pub limits: Vec<Limit>,
}

/// What the callers of a plan may use.
#[derive(Debug)]
pub struct Plan {
    /// Indices into [`Policy::models`].
    pub models: Vec<usize>,
}

/// Who a key belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    pub tenant: String,
    pub plan: String,
}

/// One rule.
#[derive(Debug)]
pub struct Limit {
    pub name: String,
    /// Names the rule's shape in keys, not its values: a raised limit keeps its count.
    pub tag: Tag,
    /// In the order of [`Dimension`].
    pub per: Vec<Dimension>,
    pub count: Metric,
    pub window_ms: u64,
    pub amount: PlanAmount,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dimension {
    Tenant,
    Plan,
    Key,
    Model,
}

impl Dimension {
    pub fn name(self) -> &'static str {
        match self {
            Self::Tenant => "tenant",
            Self::Plan => "plan",
            Self::Key => "key",
            Self::Model => "model",
        }
    }
}

/// How much, for a caller's plan.
#[derive(Debug)]
pub enum PlanAmount {
    Same(u64),
    /// A plan that is not there is unlimited.
    ByPlan(BTreeMap<String, u64>),
}

impl PlanAmount {
    pub fn of(&self, plan: &str) -> Option<u64> {
        match self {
            Self::Same(amount) => Some(*amount),
            Self::ByPlan(amounts) => amounts.get(plan).copied(),
        }
    }
}

/// The file could not be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("{file}: {source}")]
    Read { file: String, source: std::io::Error },
    #[error(transparent)]
    Policy(#[from] PolicyError),
}

impl Policy {
    pub fn load(file: &Path) -> Result<Self, LoadError> {
        let name = file.display().to_string();
        let text =
            std::fs::read_to_string(file).map_err(|source| LoadError::Read { file: name.clone(), source })?;
        Ok(Self::parse(&name, &text)?)
    }

    /// `file` is only named in errors.
    pub fn parse(file: &str, text: &str) -> Result<Self, PolicyError> {
        read::policy(text).map_err(|fault| fault.in_file(file))
    }

    /// The model of a name as a client writes it, and its index. The filter finds it in the same way.
    pub fn model(&self, raw: &str) -> Option<(usize, &ModelInfo)> {
        let found = model_name::find(raw, &self.models, |model| &model.patterns)?;
        self.models.iter().enumerate().find(|(_, model)| model.name == found.name)
    }

    /// Callers and key hashes of a tenant, in the order of their hashes.
    pub fn keys_of<'a>(&'a self, tenant: &str) -> Vec<(&'a str, &'a Caller)> {
        let mut keys: Vec<_> = self
            .keys
            .iter()
            .filter(|(_, caller)| caller.tenant == tenant)
            .map(|(hash, caller)| (hash.as_str(), caller))
            .collect();
        keys.sort_unstable_by_key(|(hash, _)| *hash);
        keys
    }

    /// `ok: 5 models, 2 plans, …`
    pub fn summary(&self) -> String {
        format!(
            "{} models, {} plans, {} keys, {} limits, version {}",
            self.models.len(),
            self.plans.len(),
            self.keys.len(),
            self.limits.len(),
            self.version
        )
    }
}
