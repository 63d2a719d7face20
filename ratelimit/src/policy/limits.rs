//! The section `limits`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokengate_api::ModelInfo;

use super::OnStoreFailure;
use super::amounts::{self, Amounts};
use super::callers::Keys;
use super::count::{self, Count};
use super::error::Result;
use super::fields::{Fields, Item};
use super::limit::{Limit, Mode};
use super::prices::Prices;
use super::shape::{self, Shape};
use super::{MAX_LIMITS, Plan, dimension};
use crate::limits::{Algorithm, MAX_AMOUNT};

/// Fields of the design that are refused by name until they exist.
const NOT_YET: &[&str] = &["share", "min_instances", "durable", "when"];

/// What the other sections say that a limit needs to be read.
pub struct Context<'a> {
    pub models: &'a [ModelInfo],
    pub prices: Arc<BTreeMap<String, Prices>>,
    pub plans: &'a BTreeMap<String, Plan>,
    pub defaults: Defaults,
}

/// `mode` and `on_store_failure` where a limit does not say them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Defaults {
    mode: Mode,
    on_store_failure: OnStoreFailure,
}

impl Defaults {
    /// Takes both fields, of a limit or of the section `defaults`.
    pub fn read(self, fields: &mut Fields<'_>) -> Result<Self> {
        let mode = match fields.optional("mode") {
            None => self.mode,
            Some(item) if item.one_of(&["enforce", "shadow"])? == "shadow" => Mode::Shadow,
            Some(_) => Mode::Enforce,
        };
        let on_store_failure = match fields.optional("on_store_failure") {
            None => self.on_store_failure,
            Some(item) if matches!(item.text(), Ok("local")) => return Err(item.unsupported("`local`")),
            Some(item) if item.one_of(&["closed", "open"])? == "open" => OnStoreFailure::Open,
            Some(_) => OnStoreFailure::Closed,
        };
        Ok(Self { mode, on_store_failure })
    }
}

pub fn read(section: &Item<'_>, context: &Context<'_>) -> Result<Vec<Limit>> {
    let mut limits: Vec<Limit> = Vec::new();
    for item in section.list()? {
        let limit = limit(&item, &limits, context)?;
        limits.push(limit);
    }
    if limits.is_empty() {
        return Err(section.fault("must list at least one limit: nothing would be limited"));
    }
    Ok(limits)
}

/// Refuses more limits than one request may have to pass, tenants' own values included.
pub fn check_number(
    section: &Item<'_>,
    limits: &[Limit],
    plans: &BTreeMap<String, Plan>,
    keys: &Keys,
) -> Result<()> {
    let refused = |applying: usize, whose: String| {
        section.fault(format!("{applying} limits apply to the {whose}, at most {MAX_LIMITS} can"))
    };
    for plan in plans.keys() {
        let applying = limits.iter().filter(|limit| limit.amounts.by_plan.contains_key(plan)).count();
        if applying > MAX_LIMITS {
            return Err(refused(applying, format!("plan `{plan}`")));
        }
    }
    let tenants: BTreeSet<_> = limits.iter().flat_map(|limit| limit.amounts.by_tenant.keys()).collect();
    for tenant in tenants {
        for plan in keys.plans_of(tenant, plans) {
            let applying = limits.iter().filter(|limit| limit.amounts.of(plan, tenant).is_some()).count();
            if applying > MAX_LIMITS {
                return Err(refused(applying, format!("tenant `{tenant}`")));
            }
        }
    }
    Ok(())
}

fn limit(item: &Item<'_>, before: &[Limit], context: &Context<'_>) -> Result<Limit> {
    let mut fields = item.fields()?;
    let name_item = fields.required("name")?;
    let name = name_item.name()?;
    if before.iter().any(|other| other.name == name) {
        return Err(name_item.fault(format!("a limit named `{name}` is there already")));
    }
    fields.refuse_not_yet(NOT_YET)?;
    let per = dimension::read(&mut fields)?;
    let (shape, count) = shape::read(&mut fields)?;
    let counting = count::counting(count, &mut fields, &context.prices)?;
    let Defaults { mode, on_store_failure } = context.defaults.read(&mut fields)?;
    let amounts = read_amounts(&mut fields, &shape, count, context)?;
    if count == Count::Cost {
        context.check_prices(&name_item, amounts.by_plan.keys())?;
    }
    fields.finish(&[])?;
    let tag = Limit::tag_of(name, &shape, &per, count, &counting);
    Ok(Limit {
        at: item.at(),
        name: name.to_owned(),
        tag,
        per,
        count,
        shape,
        amounts,
        mode,
        on_store_failure,
        counting,
    })
}

fn read_amounts(
    fields: &mut Fields<'_>,
    shape: &Shape,
    count: Count,
    context: &Context<'_>,
) -> Result<Amounts> {
    let allow_zero = fields.optional("allow_zero").map_or(Ok(false), |item| item.boolean())?;
    if *shape == Shape::Balance {
        if let Some(item) = fields.optional("limit") {
            return Err(item.fault("a balance has no limit: it is topped up by the operator"));
        }
        return match fields.optional("plans") {
            None => Ok(Amounts::same(context.plans, MAX_AMOUNT)),
            Some(item) => balance_plans(&item, context.plans),
        };
    }
    let (field, other) = match shape {
        Shape::TokenBucket { .. } => ("capacity", "limit"),
        _ => ("limit", "capacity"),
    };
    if let Some(item) = fields.optional(other) {
        return Err(item.fault(format!("is called `{field}` with this algorithm")));
    }
    let item = fields.required(field)?;
    let amounts = amounts::read(&item, count, context.plans, allow_zero)?;
    for amount in amounts.by_plan.values() {
        check_bucket(&item, shape, *amount)?;
    }
    Ok(amounts)
}

/// A bucket counts in fractions; what it holds at most must still be exact.
pub fn check_bucket(item: &Item<'_>, shape: &Shape, capacity: u64) -> Result<()> {
    let Algorithm::TokenBucket { den, .. } = shape.algorithm_at(0) else { return Ok(()) };
    if capacity.checked_mul(den).is_none_or(|scaled| scaled > MAX_AMOUNT) {
        let largest = MAX_AMOUNT.checked_div(den).unwrap_or(0);
        let reason = format!(
            "is too large to be counted exactly beside this refill, which is a multiple of 1/{den} per ms (at most \
             {largest}); choose an amount and a time that divide each other"
        );
        return Err(item.fault(reason));
    }
    Ok(())
}

fn balance_plans(item: &Item<'_>, plans: &BTreeMap<String, Plan>) -> Result<Amounts> {
    let mut amounts = Amounts::default();
    for entry in item.list()? {
        let name = entry.text()?;
        if !plans.contains_key(name) {
            return Err(entry.fault(format!("there is no plan `{name}`")));
        }
        if amounts.by_plan.insert(name.to_owned(), MAX_AMOUNT).is_some() {
            return Err(entry.fault(format!("`{name}` is listed twice")));
        }
    }
    if amounts.by_plan.is_empty() {
        return Err(item.fault("must list at least one plan: nothing would be limited"));
    }
    Ok(amounts)
}

impl Context<'_> {
    /// A cost that is not known would be a cost of nothing.
    pub fn check_prices<'p>(
        &self,
        item: &Item<'_>,
        mut plans: impl Iterator<Item = &'p String>,
    ) -> Result<()> {
        let unpriced = |name: &'p String| {
            let models = self.plans.get(name)?.models.iter().filter_map(|index| self.models.get(*index));
            let unpriced = models.into_iter().find(|model| !self.prices.contains_key(&model.name));
            Some((name, &unpriced?.name))
        };
        match plans.find_map(unpriced) {
            None => Ok(()),
            Some((plan, model)) => Err(item.fault(format!(
                "counts cost, and the model `{model}` of the plan `{plan}` has no price_usd_per_million"
            ))),
        }
    }
}
