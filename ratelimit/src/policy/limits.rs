//! The section `limits`.

use std::collections::BTreeMap;

use tokengate_api::Metric;

use super::error::{Fault, Result};
use super::fields::{Fields, Item};
use super::{Dimension, Limit, MAX_LIMITS, Plan, PlanAmount};
use crate::tag::Tag;

/// Fields of the design that are refused by name until they exist.
const NOT_YET: &[&str] = &[
    "calendar",
    "time_zone",
    "week_starts",
    "refill",
    "leak",
    "capacity",
    "lease",
    "shared",
    "share",
    "min_instances",
    "weights",
    "durable",
    "when",
    "sub_windows",
];

const MAX_WINDOW_MS: u64 = 366 * 86_400_000;

pub fn read(section: &Item<'_>, plans: &BTreeMap<String, Plan>) -> Result<Vec<Limit>> {
    let mut limits: Vec<Limit> = Vec::new();
    for item in section.list()? {
        let limit = limit(&item, &limits, plans)?;
        limits.push(limit);
    }
    if limits.is_empty() {
        return Err(section.fault("must list at least one limit: nothing would be limited"));
    }
    for plan in plans.keys() {
        let applying = limits.iter().filter(|limit| limit.amount.of(plan).is_some()).count();
        if applying > MAX_LIMITS {
            let reason = format!("{applying} limits apply to the plan `{plan}`, at most {MAX_LIMITS} can");
            return Err(section.fault(reason));
        }
    }
    Ok(limits)
}

fn limit(item: &Item<'_>, before: &[Limit], plans: &BTreeMap<String, Plan>) -> Result<Limit> {
    let mut fields = item.fields()?;
    let name_item = fields.required("name")?;
    let name = name_item.name()?;
    if before.iter().any(|other| other.name == name) {
        return Err(name_item.fault(format!("a limit named `{name}` is there already")));
    }
    let algorithm = fields.required("algorithm")?;
    one_of(
        &algorithm,
        &["fixed_window"],
        &["sliding_window", "token_bucket", "leaky_bucket", "concurrency", "balance"],
    )?;
    let count = match one_of(
        &fields.required("count")?,
        &["requests", "tokens"],
        &["attempts", "input_tokens", "output_tokens", "cost"],
    )? {
        "requests" => Metric::Requests,
        _ => Metric::Tokens,
    };
    let per = per(&fields.required("per")?)?;
    for refused in NOT_YET {
        // Before `every` is missed: `calendar` stands in its place.
        refuse_not_yet(&mut fields, refused)?;
    }
    let window_ms = duration_ms(&fields.required("every")?)?;
    enforced(&mut fields)?;
    let allow_zero = fields.optional("allow_zero").map_or(Ok(false), |item| item.boolean())?;
    let amount = amounts(&fields.required("limit")?, plans, allow_zero)?;
    fields.finish(&[])?;

    let every = window_ms.to_string();
    let dimensions: Vec<_> = per.iter().map(|dimension| dimension.name()).collect();
    let dimensions = dimensions.join(",");
    let metric = if count == Metric::Requests { "requests" } else { "tokens" };
    let tag = Tag::of("limit", [name, "fixed_window", &every, &dimensions, metric].map(Some));
    Ok(Limit { name: name.to_owned(), tag, per, count, window_ms, amount })
}

fn refuse_not_yet(fields: &mut Fields<'_>, name: &str) -> Result<()> {
    match fields.optional(name) {
        None => Ok(()),
        Some(item) => Err(item.unsupported(&format!("`{name}`"))),
    }
}

/// `mode` and `on_store_failure`, of a limit or as defaults: only what is built.
pub fn enforced(fields: &mut Fields<'_>) -> Result<()> {
    if let Some(item) = fields.optional("mode") {
        one_of(&item, &["enforce"], &["shadow"])?;
    }
    if let Some(item) = fields.optional("on_store_failure") {
        one_of(&item, &["closed"], &["open", "local"])?;
    }
    Ok(())
}

/// A word that is built, or a fault that tells a word of the design from any other.
pub fn one_of<'a>(item: &Item<'a>, built: &[&str], not_yet: &[&str]) -> Result<&'a str> {
    let word = item.text()?;
    if built.contains(&word) {
        Ok(word)
    } else if not_yet.contains(&word) {
        Err(item.unsupported(&format!("`{word}`")))
    } else {
        Err(item.fault(format!("unknown value `{word}`; use {}", built.join(" or "))))
    }
}

fn per(item: &Item<'_>) -> Result<Vec<Dimension>> {
    let mut per = Vec::new();
    for entry in item.list()? {
        let dimension =
            match one_of(&entry, &["tenant", "model", "plan", "key"], &["user", "endpoint", "ip"])? {
                "tenant" => Dimension::Tenant,
                "plan" => Dimension::Plan,
                "key" => Dimension::Key,
                _ => Dimension::Model,
            };
        if per.contains(&dimension) {
            return Err(entry.fault(format!("`{}` is listed twice", dimension.name())));
        }
        per.push(dimension);
    }
    if !per.contains(&Dimension::Tenant) && !per.contains(&Dimension::Key) {
        return Err(
            item.fault("must contain tenant or key; a limit shared by all tenants is not supported yet")
        );
    }
    per.sort_unstable();
    Ok(per)
}

/// `1s`, `1m`, `24h`, `7d`
fn duration_ms(item: &Item<'_>) -> Result<u64> {
    let text = item.text()?;
    let fault = || item.fault(format!("`{text}` is not a duration; write 1s, 1m, 24h or 7d"));
    let split = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(fault)?;
    let (digits, unit) = text.split_at_checked(split).ok_or_else(fault)?;
    let number: u64 = digits.parse().map_err(|_| fault())?;
    let unit_ms = match unit {
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(fault()),
    };
    match number.checked_mul(unit_ms) {
        Some(ms) if (1..=MAX_WINDOW_MS).contains(&ms) => Ok(ms),
        _ => Err(item.fault("must be from 1s to 366d")),
    }
}

fn amounts(item: &Item<'_>, plans: &BTreeMap<String, Plan>, allow_zero: bool) -> Result<PlanAmount> {
    let Ok(entries) = item.entries() else {
        return one_amount(item, allow_zero).map(PlanAmount::Same);
    };
    let mut default = None;
    let mut by_plan = BTreeMap::new();
    for (key, value) in entries {
        if key.name == "usd" && !plans.contains_key("usd") {
            return Err(value.unsupported("`usd`"));
        }
        let amount = if matches!(value.text(), Ok("unlimited")) {
            None
        } else {
            Some(one_amount(&value, allow_zero)?)
        };
        if key.name == "default" {
            default = Some(amount);
        } else if plans.contains_key(&key.name) {
            by_plan.insert(key.name.clone(), amount);
        } else {
            let reason = format!("there is no plan `{}`", key.name);
            return Err(Fault { at: Some(key.at), path: value.path, reason });
        }
    }
    for plan in plans.keys().filter(|plan| !by_plan.contains_key(*plan)).cloned().collect::<Vec<_>>() {
        let Some(amount) = default else {
            return Err(item.fault(format!("has no value for the plan `{plan}` and no `default`")));
        };
        by_plan.insert(plan, amount);
    }
    let limited: BTreeMap<_, _> =
        by_plan.into_iter().filter_map(|(plan, amount)| Some((plan, amount?))).collect();
    if limited.is_empty() {
        return Err(item.fault("is unlimited for every plan: nothing would be limited"));
    }
    Ok(PlanAmount::ByPlan(limited))
}

fn one_amount(item: &Item<'_>, allow_zero: bool) -> Result<u64> {
    match item.amount()? {
        0 if !allow_zero => Err(item.fault("0 admits nothing; say `allow_zero: true` if that is meant")),
        amount => Ok(amount),
    }
}
