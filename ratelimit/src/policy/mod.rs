//! The policy: what is limited, per what, how much. Read once from YAML and checked whole; a policy that
//! exists can be used without further checks.

mod amounts;
pub mod calendar;
mod callers;
mod compare;
mod count;
mod decimal;
mod dimension;
mod duration;
mod error;
mod estimate;
mod explain;
mod fields;
mod keys;
mod limit;
mod limits;
mod models;
mod plans;
mod prices;
mod read;
mod secret;
mod shape;
mod tenants;
mod warnings;
mod watch;
pub(crate) mod yaml;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use tokengate_api::{ModelInfo, ModelList, model_name};

pub use crate::store::OnStoreFailure;
pub use amounts::Amounts;
pub use callers::{Asserts, Caller, Identity, IdentityError, Keys, VerifiedIdentities};
pub use compare::Change;
pub use count::Count;
pub use dimension::Dimension;
pub use error::{At, PolicyError};
pub use estimate::{Assumed, default_output};
pub use limit::{Limit, Mode};
pub use prices::{Prices, Wanted, normal as normal_tier};
pub use shape::Shape;
pub use warnings::Warning;
pub use watch::{Poll, Watch};

use secret::Secret;

/// Dollars as a decimal text, as whole nano-dollars; nothing when it is not one.
pub fn nano_dollars(text: &str) -> Option<u64> {
    decimal::scaled(text, decimal::NANO_DOLLARS)
}

/// Tokens to hold per choice when neither the client nor the model says anything.
pub const DEFAULT_OUTPUT_TOKENS: u64 = 1024;
/// The most limits one request may have to pass.
pub const MAX_LIMITS: usize = 16;

/// The values of environment variables, by name.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

#[derive(Debug)]
pub struct Policy {
    /// The file's `version` and the first digits of its content's hash, so that two different files never
    /// look the same to a filter.
    pub version: String,
    pub key_prefix: String,
    pub models: Vec<ModelInfo>,
    /// What tokens cost, by canonical model name.
    pub prices: Arc<BTreeMap<String, Prices>>,
    pub unknown_model: UnknownModel,
    pub plans: BTreeMap<String, Plan>,
    pub keys: Keys,
    pub limits: Vec<Limit>,
    /// Where each of the models stands in the file.
    model_places: Vec<At>,
    /// Present when users are shown by pseudonyms only.
    secret: Option<Secret>,
}

/// What the callers of a plan may use.
#[derive(Debug)]
pub struct Plan {
    pub at: At,
    /// Indices into [`Policy::models`].
    pub models: Vec<usize>,
    pub when_tight: WhenTight,
}

/// What becomes of a request whose output limit does not fit, and a smaller one would.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenTight {
    #[default]
    Deny,
    /// Its output limit is lowered, to this many tokens per choice at least.
    Clamp { min_tokens: u64 },
}

impl fmt::Display for WhenTight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deny => f.write_str("deny"),
            Self::Clamp { min_tokens } => write!(f, "clamp to {min_tokens} tokens at least"),
        }
    }
}

/// What a name that no model matches means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownModel {
    Deny,
    /// Index into [`Policy::models`].
    As(usize),
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
    /// Reads a file; secrets come from this process's environment.
    ///
    /// # Errors
    /// The file cannot be read, or is not a policy: then with line and column.
    pub fn load(file: &Path) -> Result<Self, LoadError> {
        let text = Self::read_file(file)?;
        Ok(Self::parse(&file.display().to_string(), &text)?)
    }

    fn read_file(file: &Path) -> Result<String, LoadError> {
        let named = |source| LoadError::Read { file: file.display().to_string(), source };
        std::fs::read_to_string(file).map_err(named)
    }

    /// `file` is only named in errors; secrets come from this process's environment.
    pub fn parse(file: &str, text: &str) -> Result<Self, PolicyError> {
        Self::parse_with(file, text, &|name| std::env::var(name).ok())
    }

    pub fn parse_with(file: &str, text: &str, environment: Environment<'_>) -> Result<Self, PolicyError> {
        read::policy(text, environment).map_err(|fault| fault.in_file(file))
    }

    /// The model of a name as a client writes it, and its index. The filter finds it in the same way.
    pub fn model(&self, raw: &str) -> Option<(usize, &ModelInfo)> {
        let index = match model_name::find(raw, &self.models, |model| &model.patterns) {
            Some(found) => self.models.iter().position(|model| model.name == found.name)?,
            None => match self.unknown_model {
                // An empty or endless name names nothing.
                UnknownModel::As(index) if !model_name::spellings(raw).is_empty() => index,
                _ => return None,
            },
        };
        Some((index, self.models.get(index)?))
    }

    /// What the filter is told.
    pub fn model_list(&self) -> ModelList {
        let asserts = self.keys.iter().map(|caller| &caller.asserts);
        let headers: BTreeSet<_> =
            asserts.flat_map(|asserts| [&asserts.user, &asserts.plan]).flatten().cloned().collect();
        let unknown_model = match self.unknown_model {
            UnknownModel::Deny => None,
            UnknownModel::As(index) => self.models.get(index).map(|model| model.name.clone()),
        };
        ModelList {
            policy_version: self.version.clone(),
            models: self.models.clone(),
            unknown_model,
            asserted_headers: headers.into_iter().collect(),
        }
    }

    /// A user as buckets, answers and logs name it: as it is, or 16 hex digits that only the holder of the
    /// secret can compute.
    pub fn user_name(&self, user: &str) -> String {
        match &self.secret {
            None => user.to_owned(),
            Some(secret) => secret.hex(format!("user\0{user}").as_bytes()).chars().take(16).collect(),
        }
    }

    /// Callers of a tenant with the names of their keys, in the order of those.
    pub fn keys_of<'a>(&'a self, tenant: &str) -> Vec<(&'a str, &'a Caller)> {
        let of_tenant = self.keys.iter().filter(|caller| caller.tenant == tenant);
        let mut keys: Vec<_> = of_tenant.map(|caller| (caller.key.as_str(), caller)).collect();
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
