//! How much a limit admits, by plan and tenant: the fields `limit` and `capacity`.

use std::collections::BTreeMap;

use super::Plan;
use super::count::Count;
use super::decimal;
use super::error::{Fault, Result};
use super::fields::Item;
use super::yaml::Value;

/// Who has which amount, in units of the limit's count. Absent: unlimited.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    pub by_plan: BTreeMap<String, u64>,
    /// Instead of what the plan says. `None`: unlimited.
    pub by_tenant: BTreeMap<String, Option<u64>>,
}

impl Amounts {
    pub fn of(&self, plan: &str, tenant: &str) -> Option<u64> {
        match self.by_tenant.get(tenant) {
            Some(amount) => *amount,
            None => self.by_plan.get(plan).copied(),
        }
    }

    pub fn same(plans: &BTreeMap<String, Plan>, amount: u64) -> Self {
        let by_plan = plans.keys().map(|plan| (plan.clone(), amount)).collect();
        Self { by_plan, by_tenant: BTreeMap::new() }
    }
}

/// One value for all plans, or one for each.
pub fn read(
    item: &Item<'_>,
    count: Count,
    plans: &BTreeMap<String, Plan>,
    allow_zero: bool,
) -> Result<Amounts> {
    let amounts = if is_one(item) {
        match value(item, count, allow_zero)? {
            Some(amount) => Amounts::same(plans, amount),
            None => Amounts::default(),
        }
    } else {
        by_plan(item, count, plans, allow_zero)?
    };
    if amounts.by_plan.is_empty() {
        return Err(item.fault("is unlimited for every plan: nothing would be limited"));
    }
    Ok(amounts)
}

fn by_plan(
    item: &Item<'_>,
    count: Count,
    plans: &BTreeMap<String, Plan>,
    allow_zero: bool,
) -> Result<Amounts> {
    let mut default = None;
    let mut named = BTreeMap::new();
    for (key, item) in item.entries()? {
        let amount = value(&item, count, allow_zero)?;
        if key.name == "default" {
            default = Some(amount);
        } else if plans.contains_key(&key.name) {
            named.insert(key.name.clone(), amount);
        } else {
            let reason = format!("there is no plan `{}`", key.name);
            return Err(Fault { at: Some(key.at), path: item.path, reason });
        }
    }
    let mut by_plan = BTreeMap::new();
    for plan in plans.keys() {
        let Some(amount) = named.get(plan).copied().or(default) else {
            return Err(item.fault(format!("has no value for the plan `{plan}` and no `default`")));
        };
        if let Some(amount) = amount {
            by_plan.insert(plan.clone(), amount);
        }
    }
    Ok(Amounts { by_plan, by_tenant: BTreeMap::new() })
}

/// Not a map of plans: a plan cannot be called `usd`.
fn is_one(item: &Item<'_>) -> bool {
    match &item.node.value {
        Value::Map(map) => map.iter().any(|(key, _)| key.name == "usd"),
        _ => true,
    }
}

/// An amount, or nothing for `unlimited`.
pub fn value(item: &Item<'_>, count: Count, allow_zero: bool) -> Result<Option<u64>> {
    if matches!(item.text(), Ok("unlimited")) {
        return Ok(None);
    }
    match one(item, count)? {
        0 if !allow_zero => Err(item.fault("0 admits nothing; say `allow_zero: true` if that is meant")),
        amount => Ok(Some(amount)),
    }
}

/// A whole number, or `{usd: "500.00"}` where cost is counted.
pub fn one(item: &Item<'_>, count: Count) -> Result<u64> {
    let is_map = matches!(item.node.value, Value::Map(_));
    if count != Count::Cost {
        if is_map && is_one(item) {
            return Err(item.fault(format!("money is for `count: cost`, not for `{}`", count.name())));
        }
        return item.amount();
    }
    if !is_map {
        return Err(item.fault("is money: write {usd: \"500.00\"}"));
    }
    let mut fields = item.fields()?;
    let amount = decimal::read_usd(&fields.required("usd")?)?;
    fields.finish(&[])?;
    Ok(amount)
}
