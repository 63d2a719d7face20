//! The section `plans`.

use std::collections::BTreeMap;

use tokengate_api::ModelInfo;

use super::callers::is_plain;
use super::error::{Fault, Result};
use super::fields::Item;
use super::{Plan, WhenTight};

pub fn read(section: &Item<'_>, models: &[ModelInfo]) -> Result<BTreeMap<String, Plan>> {
    let mut plans = BTreeMap::new();
    for (name, item) in section.entries()? {
        let bad =
            |reason: &str| Fault { at: Some(name.at), path: item.path.clone(), reason: reason.to_owned() };
        if !is_plain(&name.name) {
            return Err(bad(
                "a plan's name has 1 to 128 bytes, no control characters and no white space at its ends",
            ));
        }
        if name.name == "default" {
            return Err(bad("`default` stands for all other plans in a limit; name the plan otherwise"));
        }
        if name.name == "usd" {
            return Err(bad("`usd` stands for money in a limit; name the plan otherwise"));
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
        let when_tight = fields.optional("output").map(|item| output(&item)).transpose()?.unwrap_or_default();
        fields.finish(&["output_hold", "limits"])?;
        plans.insert(name.name.clone(), Plan { at: name.at, models: allowed, when_tight });
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

/// `{when_tight: clamp, min_tokens: 256}`
fn output(item: &Item<'_>) -> Result<WhenTight> {
    let mut fields = item.fields()?;
    let clamp = match fields.optional("when_tight") {
        None => false,
        Some(item) => item.one_of(&["deny", "clamp"])? == "clamp",
    };
    let min_tokens = match fields.optional("min_tokens") {
        None => 1,
        Some(item) if !clamp => return Err(item.fault("only `when_tight: clamp` lowers an output limit")),
        Some(item) => match item.amount()? {
            0 => return Err(item.fault("must be at least 1")),
            tokens => tokens,
        },
    };
    fields.finish(&["hold"])?;
    Ok(if clamp { WhenTight::Clamp { min_tokens } } else { WhenTight::Deny })
}
