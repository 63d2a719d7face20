//! The document as a whole.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::callers::Keys;
use super::error::{Fault, Result};
use super::fields::Item;
use super::limits::{Context, Defaults};
use super::secret::Secret;
use super::{Environment, Policy, UnknownModel, keys, limits, models, plans, tenants, yaml};

/// Sections of the design that are refused by name until they exist.
const NOT_YET: &[&str] = &["users", "endpoints", "billing", "stores", "usage_events"];

pub fn policy(text: &str, environment: Environment<'_>) -> Result<Policy> {
    let tree = yaml::parse(text)?;
    let root = Item::root(&tree);
    let mut fields = root.fields()?;

    let version_item = fields.required("version")?;
    let version = version_item.name()?;
    if version.len() > 64 {
        return Err(version_item.fault("must have at most 64 bytes"));
    }
    let key_prefix = match fields.optional("key_prefix") {
        None => "tg1",
        Some(item) => key_prefix(&item)?,
    };
    let secret = fields.optional("key_hash").map(|item| Secret::read(&item, environment)).transpose()?;
    let pseudonymize = match fields.optional("pseudonymize") {
        None => false,
        Some(item) => match item.boolean()? {
            true if secret.is_none() => {
                return Err(item.fault("needs a secret: say `key_hash: {hmac_sha256_env: NAME}` as well"));
            }
            value => value,
        },
    };
    let defaults = match fields.optional("defaults") {
        None => Defaults::default(),
        Some(item) => {
            let mut fields = item.fields()?;
            let defaults = Defaults::default().read(&mut fields)?;
            fields.finish(&["output_hold", "share", "durable"])?;
            defaults
        }
    };
    let models_item = fields.required("models")?;
    let (models, prices) = models::read(&models_item)?;
    let model_places = models_item.list()?.iter().map(Item::at).collect();
    let unknown_model = match fields.optional("unknown_model") {
        None => UnknownModel::Deny,
        Some(item) => models::unknown(&item, &models)?,
    };
    let plans_item = fields.required("plans")?;
    let plans = plans::read(&plans_item, &models)?;
    let keys = keys::read(&mut fields, &plans, secret.as_ref())?;
    check_plans(&plans_item, &keys)?;
    let context = Context { models: &models, prices: Arc::new(prices), plans: &plans, defaults };
    let limits_item = fields.required("limits")?;
    let mut limits = limits::read(&limits_item, &context)?;
    if let Some(item) = fields.optional("tenants") {
        tenants::read(&item, &mut limits, &context, &keys)?;
    }
    limits::check_number(&limits_item, &limits, &plans, &keys)?;
    fields.finish(NOT_YET)?;
    let prices = context.prices;
    Ok(Policy {
        version: format!("{version}+{}", content_hash(text)),
        key_prefix: key_prefix.to_owned(),
        models,
        model_places,
        prices,
        unknown_model,
        plans,
        keys,
        limits,
        secret: secret.filter(|_| pseudonymize),
    })
}

/// The first digits of a file's SHA-256.
pub fn content_hash(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

fn key_prefix<'a>(item: &Item<'a>) -> Result<&'a str> {
    let text = item.text()?;
    let good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if text.is_empty() || text.len() > 32 || !text.bytes().all(good) {
        return Err(item.fault("must have 1 to 32 letters, digits, `-` or `_`"));
    }
    Ok(text)
}

/// A plan that nobody can have limits nobody.
fn check_plans(section: &Item<'_>, keys: &Keys) -> Result<()> {
    if keys.any_plan() {
        return Ok(());
    }
    for (name, item) in section.entries()? {
        if !keys.iter().any(|caller| caller.plan == name.name) {
            return Err(Fault {
                at: Some(name.at),
                path: item.path,
                reason: "no key has this plan: it can never match".to_owned(),
            });
        }
    }
    Ok(())
}
