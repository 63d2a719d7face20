//! What a limit has a bucket for: the field `per`.

use super::error::Result;
use super::fields::{Fields, Item};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dimension {
    Tenant,
    User,
    Plan,
    Key,
    Model,
    Endpoint,
    Ip,
}

impl Dimension {
    const ALL: [Self; 7] =
        [Self::Tenant, Self::User, Self::Plan, Self::Key, Self::Model, Self::Endpoint, Self::Ip];

    pub fn name(self) -> &'static str {
        match self {
            Self::Tenant => "tenant",
            Self::User => "user",
            Self::Plan => "plan",
            Self::Key => "key",
            Self::Model => "model",
            Self::Endpoint => "endpoint",
            Self::Ip => "ip",
        }
    }
}

/// Reads `per` and `shared`. The result is in the order of [`Dimension`]; a user or a key is never looked at
/// without its tenant.
pub fn read(fields: &mut Fields<'_>) -> Result<Vec<Dimension>> {
    let item = fields.required("per")?;
    let mut per = Vec::new();
    for entry in item.list()? {
        let dimension = one(&entry)?;
        if per.contains(&dimension) {
            return Err(entry.fault(format!("`{}` is listed twice", dimension.name())));
        }
        per.push(dimension);
    }
    if !per.contains(&Dimension::Tenant) && (per.contains(&Dimension::User) || per.contains(&Dimension::Key))
    {
        per.push(Dimension::Tenant);
    }
    let of_a_tenant = per.contains(&Dimension::Tenant);
    let shared = fields.optional("shared").map_or(Ok(None), |item| Ok(item.boolean()?.then_some(item)))?;
    match shared {
        Some(shared) if of_a_tenant => {
            let reason = "`per` names a tenant (user and key imply it): such a limit is not shared; leave one of them out";
            return Err(shared.fault(reason));
        }
        None if !of_a_tenant => {
            let reason = "must contain tenant, user or key; say `shared: true` if all tenants are meant to share the limit";
            return Err(item.fault(reason));
        }
        _ => {}
    }
    per.sort_unstable();
    Ok(per)
}

fn one(entry: &Item<'_>) -> Result<Dimension> {
    let word = entry.text()?;
    Dimension::ALL.into_iter().find(|dimension| dimension.name() == word).ok_or_else(|| {
        let names = Dimension::ALL.map(Dimension::name).join(", ");
        entry.fault(format!("unknown value `{word}`; use one of {names}"))
    })
}
