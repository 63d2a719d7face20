//! The document as a whole, and its small sections.

use std::collections::{BTreeMap, HashMap};

use sha2::{Digest, Sha256};
use tokengate_api::ModelInfo;

use super::error::{Fault, Result};
use super::fields::Item;
use super::{Caller, Plan, Policy, limits, models, yaml};

pub fn policy(text: &str) -> Result<Policy> {
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
    if let Some(item) = fields.optional("unknown_model") {
        if item.entries().is_ok() {
            return Err(item.unsupported("`unknown_model` with another model"));
        }
        limits::one_of(&item, &["deny"], &["pass"])?;
    }
    if let Some(item) = fields.optional("defaults") {
        let mut defaults = item.fields()?;
        limits::enforced(&mut defaults)?;
        defaults.finish(&["output_hold", "share", "durable"])?;
    }
    let models = models::read(&fields.required("models")?)?;
    let plans_item = fields.required("plans")?;
    let plans = plans(&plans_item, &models)?;
    let keys = keys(&fields.required("keys")?, &plans)?;
    for (name, item) in plans_item.entries()? {
        if !keys.values().any(|caller| caller.plan == name.name) {
            return Err(Fault {
                at: Some(name.at),
                path: item.path,
                reason: "no key has this plan: it can never match".to_owned(),
            });
        }
    }
    let limits = limits::read(&fields.required("limits")?, &plans)?;
    fields.finish(&["tenants", "users", "endpoints", "pseudonymize", "billing", "stores", "usage_events"])?;
    let version = format!("{version}+{}", content_hash(text));
    Ok(Policy { version, key_prefix: key_prefix.to_owned(), models, plans, keys, limits })
}

fn content_hash(text: &str) -> String {
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

fn plans(section: &Item<'_>, models: &[ModelInfo]) -> Result<BTreeMap<String, Plan>> {
    let mut plans = BTreeMap::new();
    for (name, item) in section.entries()? {
        let bad =
            |reason: &str| Fault { at: Some(name.at), path: item.path.clone(), reason: reason.to_owned() };
        if name.name.is_empty() || name.name.len() > 128 || name.name.chars().any(char::is_control) {
            return Err(bad("a plan's name has 1 to 128 bytes and no control characters"));
        }
        if name.name == "default" {
            return Err(bad("`default` stands for all other plans in a limit; name the plan otherwise"));
        }
        let mut fields = item.fields()?;
        let list = fields.required("models")?;
        let mut allowed = Vec::new();
        for entry in list.list()? {
            let found = allowed_models(&entry, models)?;
            allowed.extend(found.into_iter().filter(|index| !allowed.contains(index)).collect::<Vec<_>>());
        }
        if allowed.is_empty() {
            return Err(list.fault("must list at least one model: the plan could use nothing"));
        }
        fields.finish(&["output", "output_hold", "when_tight", "limits"])?;
        plans.insert(name.name.clone(), Plan { models: allowed });
    }
    if plans.is_empty() {
        return Err(section.fault("must have at least one plan"));
    }
    Ok(plans)
}

/// Models whose canonical name an entry of a plan means: the name, or a prefix with `*` at the end.
fn allowed_models(entry: &Item<'_>, models: &[ModelInfo]) -> Result<Vec<usize>> {
    let text = entry.name()?;
    let means = |name: &str| match text.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == text,
    };
    let found: Vec<_> =
        models.iter().enumerate().filter(|(_, model)| means(&model.name)).map(|(index, _)| index).collect();
    if found.is_empty() {
        return Err(entry.fault(format!("no model is named `{text}`: it can never match")));
    }
    Ok(found)
}

fn keys(section: &Item<'_>, plans: &BTreeMap<String, Plan>) -> Result<HashMap<String, Caller>> {
    let mut keys = HashMap::new();
    for item in section.list()? {
        let mut fields = item.fields()?;
        let hash_item = fields.required("sha256")?;
        let hash = hash_item.text()?;
        if hash.len() != 64 || !hash.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)) {
            // The text is not repeated: it may be the key itself.
            return Err(hash_item
                .fault("must be 64 lower-case hex digits; make it with: printf %s \"$KEY\" | sha256sum"));
        }
        let tenant = fields.required("tenant")?.name()?;
        let plan_item = fields.required("plan")?;
        let plan = plan_item.text()?;
        if !plans.contains_key(plan) {
            return Err(plan_item.fault(format!("there is no plan `{plan}`")));
        }
        fields.finish(&["asserts", "user", "hmac_sha256", "expires"])?;
        let caller = Caller { tenant: tenant.to_owned(), plan: plan.to_owned() };
        if keys.insert(hash.to_owned(), caller).is_some() {
            return Err(hash_item.fault("this key is listed already"));
        }
    }
    if keys.is_empty() {
        return Err(section.fault("must list at least one key: nobody could call"));
    }
    Ok(keys)
}
