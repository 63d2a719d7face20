//! Counters. The ABI knows no labels, so a label is part of the name; `stats_tags` in Envoy's bootstrap makes
//! a label of it again. Metrics are never freed: every value comes from a fixed list.

use std::cell::RefCell;

use hashbrown::HashMap;

use super::abi;

#[derive(Default)]
pub struct Metrics {
    ids: RefCell<HashMap<String, u32>>,
}

impl Metrics {
    /// Adds to `tokengate_<name>`, with `label` as `key=value`.
    pub fn add(&self, name: &str, label: Option<(&str, &str)>, amount: u64) {
        let name = match label {
            Some((key, value)) => format!("tokengate_{name}_{key}={value}"),
            None => format!("tokengate_{name}"),
        };
        let mut ids = self.ids.borrow_mut();
        let id = match ids.get(&name) {
            Some(id) => *id,
            None => {
                let Some(id) = abi::define_counter(&name) else { return };
                ids.insert(name, id);
                id
            }
        };
        abi::increment(id, amount);
    }
}
