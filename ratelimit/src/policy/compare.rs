//! What a new policy changes, as lines for the log: above all, which counts start again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::{Caller, Limit, Plan, Policy};

/// One difference between two policies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A limit has new buckets from now on: what was used before does not count any more.
    Restarts {
        limit: String,
        from: String,
        to: String,
    },
    /// A limit has another amount; its buckets stay.
    Value {
        limit: String,
        whose: String,
        from: String,
        to: String,
    },
    /// Something else is not as it was.
    Changed(String),
    Added(String),
    Removed(String),
    /// Only a new start of the service makes it true.
    NeedsRestart(String),
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Restarts { limit, from, to } => {
                write!(f, "limit `{limit}` starts again from nothing: {from} becomes {to}")
            }
            Self::Value { limit, whose, from, to } => {
                write!(f, "limit `{limit}` for {whose}: {from} becomes {to}")
            }
            Self::Changed(what) => f.write_str(what),
            Self::Added(what) => write!(f, "{what} is new"),
            Self::Removed(what) => write!(f, "{what} is gone"),
            Self::NeedsRestart(what) => write!(f, "{what}, once the service is started again"),
        }
    }
}

impl Policy {
    /// What `new` changes, in the order of the file's sections. API keys are only counted. A change of the
    /// secret cannot be seen.
    pub fn compare(old: &Self, new: &Self) -> Vec<Change> {
        let mut changes = Vec::new();
        if old.key_prefix != new.key_prefix {
            let what = format!("key_prefix: `{}` becomes `{}`", old.key_prefix, new.key_prefix);
            changes.push(Change::NeedsRestart(what));
        }
        old.compare_models(new, &mut changes);
        old.compare_plans(new, &mut changes);
        changes.extend(compare_keys(old, new));
        let limits = |policy: &'_ Self| -> BTreeMap<String, Limit> {
            policy.limits.iter().map(|limit| (limit.name.clone(), limit.clone())).collect()
        };
        pairs("limit", &limits(old), &limits(new), &mut changes, |_, old, new, changes| {
            compare_limits(old, new, changes);
        });
        changes
    }

    fn compare_models(&self, new: &Self, changes: &mut Vec<Change>) {
        let models = |policy: &'_ Self| -> BTreeMap<String, _> {
            let priced = |model: &tokengate_api::ModelInfo| {
                (model.name.clone(), (model.clone(), policy.prices.get(&model.name).cloned()))
            };
            policy.models.iter().map(priced).collect()
        };
        pairs("model", &models(self), &models(new), changes, |name, old, new, changes| {
            if old.0 != new.0 {
                changes.push(Change::Changed(format!("model `{name}` is described otherwise")));
            }
            if old.1 != new.1 {
                let what = format!("model `{name}` has another price: open requests keep the old one");
                changes.push(Change::Changed(what));
            }
        });
        let unknown = |policy: &Self| policy.model_list().unknown_model.unwrap_or_else(|| "deny".to_owned());
        if unknown(self) != unknown(new) {
            let what = format!("unknown_model: `{}` becomes `{}`", unknown(self), unknown(new));
            changes.push(Change::Changed(what));
        }
    }

    fn compare_plans(&self, new: &Self, changes: &mut Vec<Change>) {
        pairs("plan", &self.plans, &new.plans, changes, |name, old_plan, new_plan, changes| {
            let names = |policy: &Self, plan: &Plan| -> BTreeSet<String> {
                policy.models_of(plan).map(|model| model.name.clone()).collect()
            };
            let (old_names, new_names) = (names(self, old_plan), names(new, new_plan));
            for model in old_names.difference(&new_names) {
                changes.push(Change::Changed(format!("plan `{name}` may not use `{model}` any more")));
            }
            for model in new_names.difference(&old_names) {
                changes.push(Change::Changed(format!("plan `{name}` may use `{model}`")));
            }
            if old_plan.when_tight != new_plan.when_tight {
                changes.push(Change::Changed(format!(
                    "plan `{name}`: when_tight {} becomes {}",
                    old_plan.when_tight, new_plan.when_tight
                )));
            }
        });
    }
}

/// What one list lost, what it gained, and `both` for what is in the two.
fn pairs<T>(
    kind: &str,
    old: &BTreeMap<String, T>,
    new: &BTreeMap<String, T>,
    changes: &mut Vec<Change>,
    both: impl Fn(&str, &T, &T, &mut Vec<Change>),
) {
    for (name, old) in old {
        match new.get(name) {
            Some(new) => both(name, old, new, changes),
            None => changes.push(Change::Removed(format!("{kind} `{name}`"))),
        }
    }
    for name in new.keys().filter(|name| !old.contains_key(*name)) {
        changes.push(Change::Added(format!("{kind} `{name}`")));
    }
}

fn compare_keys(old: &Policy, new: &Policy) -> Option<Change> {
    let keys = |policy: &Policy| -> BTreeMap<String, Caller> {
        policy.keys.iter().map(|caller| (caller.key.clone(), caller.clone())).collect()
    };
    let (old_keys, new_keys) = (keys(old), keys(new));
    let added = new_keys.keys().filter(|key| !old_keys.contains_key(*key)).count();
    let removed = old_keys.keys().filter(|key| !new_keys.contains_key(*key)).count();
    let changed =
        new_keys.iter().filter(|(key, caller)| old_keys.get(*key).is_some_and(|old| old != *caller)).count();
    (added + removed + changed > 0)
        .then(|| Change::Changed(format!("keys: {added} new, {removed} gone, {changed} changed")))
}

fn compare_limits(old: &Limit, new: &Limit, changes: &mut Vec<Change>) {
    let name = &new.name;
    if old.tag != new.tag {
        let (from, to) = (old.describe(), new.describe());
        changes.push(Change::Restarts { limit: name.clone(), from, to });
    } else if old.shape != new.shape {
        let (from, to) = (old.shape.show(old.count), new.shape.show(new.count));
        changes.push(Change::Changed(format!("limit `{name}`: {from} becomes {to}")));
    }
    for (what, from, to) in [
        ("mode", format!("{:?}", old.mode), format!("{:?}", new.mode)),
        ("on_store_failure", format!("{:?}", old.on_store_failure), format!("{:?}", new.on_store_failure)),
    ] {
        if from != to {
            let (from, to) = (from.to_lowercase(), to.to_lowercase());
            changes.push(Change::Changed(format!("limit `{name}`: {what} {from} becomes {to}")));
        }
    }
    let mut value = |whose: String, from: String, to: String| {
        if from != to {
            changes.push(Change::Value { limit: name.clone(), whose, from, to });
        }
    };
    let show = |limit: &Limit, amount: Option<u64>| {
        amount.map_or_else(|| "unlimited".to_owned(), |amount| limit.count.show_with_unit(amount))
    };
    let plans: BTreeSet<_> = old.amounts.by_plan.keys().chain(new.amounts.by_plan.keys()).collect();
    for plan in plans {
        let of = |limit: &Limit| show(limit, limit.amounts.by_plan.get(plan).copied());
        value(format!("the plan `{plan}`"), of(old), of(new));
    }
    let tenants: BTreeSet<_> = old.amounts.by_tenant.keys().chain(new.amounts.by_tenant.keys()).collect();
    for tenant in tenants {
        let of = |limit: &Limit| match limit.amounts.by_tenant.get(tenant) {
            None => "its plan's".to_owned(),
            Some(amount) => show(limit, *amount),
        };
        value(format!("the tenant `{tenant}`"), of(old), of(new));
    }
}
