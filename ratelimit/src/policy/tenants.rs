//! The section `tenants`: values of single tenants in the place of their plans'.

use super::amounts;
use super::callers::Keys;
use super::count::Count;
use super::error::{Fault, Result};
use super::fields::Item;
use super::limit::Limit;
use super::limits::{Context, check_bucket};
use super::shape::Shape;

/// Writes each tenant's values into the limits.
pub fn read(section: &Item<'_>, limits: &mut [Limit], context: &Context<'_>, keys: &Keys) -> Result<()> {
    for (name, item) in section.entries()? {
        let plans = keys.plans_of(&name.name, context.plans);
        if plans.is_empty() {
            let reason = "no caller can be this tenant: it can never match".to_owned();
            return Err(Fault { at: Some(name.at), path: item.path, reason });
        }
        let mut fields = item.fields()?;
        let values = fields.required("limits")?;
        fields.finish(&[])?;
        for (limit_name, value) in values.entries()? {
            let refused =
                |reason: String| Fault { at: Some(limit_name.at), path: value.path.clone(), reason };
            let Some(limit) = limits.iter_mut().find(|limit| limit.name == limit_name.name) else {
                return Err(refused(format!("there is no limit `{}`", limit_name.name)));
            };
            if limit.is_shared() {
                return Err(refused(
                    "all tenants share this limit: one of them cannot have its own".to_owned(),
                ));
            }
            if limit.shape == Shape::Balance {
                return Err(refused("a balance has no limit: it is topped up by the operator".to_owned()));
            }
            // Written for one tenant, a zero is meant.
            let amount = amounts::value(&value, limit.count, true)?;
            if let Some(amount) = amount {
                check_bucket(&value, &limit.shape, amount)?;
                if limit.count == Count::Cost {
                    context.check_prices(&value, plans.iter().copied())?;
                }
            }
            limit.amounts.by_tenant.insert(name.name.clone(), amount);
        }
    }
    Ok(())
}
