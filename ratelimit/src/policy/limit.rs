//! One rule of the policy, ready to be used.

use tokengate_api::ModelInfo;

use super::OnStoreFailure;
use super::amounts::Amounts;
use super::count::{Count, Counting};
use super::dimension::Dimension;
use super::error::At;
use super::prices::Prices;
use super::shape::Shape;
use crate::limits::{Algorithm, Rates};
use crate::tag::Tag;

#[derive(Clone, Debug)]
pub struct Limit {
    /// Where it stands in the file.
    pub at: At,
    pub name: String,
    /// Names the rule's shape in keys, not its values: a raised limit keeps its count.
    pub tag: Tag,
    /// In the order of [`Dimension`]; without a tenant, all tenants share its buckets.
    pub per: Vec<Dimension>,
    pub count: Count,
    pub shape: Shape,
    pub amounts: Amounts,
    pub mode: Mode,
    pub on_store_failure: OnStoreFailure,
    pub(super) counting: Counting,
}

/// Whether a limit refuses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    #[default]
    Enforce,
    /// Evaluated, counted and reported; never refuses.
    Shadow,
}

impl Limit {
    /// How it counts, seen from a time of the service's clock (calendar windows need one).
    pub fn algorithm_at(&self, now_ms: u64) -> Algorithm {
        self.shape.algorithm_at(now_ms)
    }

    /// What it counts of a request to a model; of money, without a tier.
    pub fn rates(&self, model: &ModelInfo) -> Rates {
        self.counting.rates(model)
    }

    /// What it holds for such a request; of money, by the dearest tier that a request for `wanted` can come to.
    pub fn hold_rates(&self, model: &ModelInfo, wanted: Option<&str>, prompt: u64, output: u64) -> Rates {
        self.counting.hold_rates(model, wanted, prompt, output)
    }

    /// By which it counts money.
    pub fn prices(&self, model: &ModelInfo) -> Option<&Prices> {
        self.counting.prices(model)
    }

    /// How much it admits, in units of its count: nano-dollars for `cost`, else whole numbers. Nothing where
    /// it does not apply (`unlimited`). A balance has no amount of its own: it admits up to the largest number.
    pub fn amount_for(&self, plan: &str, tenant: &str) -> Option<u64> {
        self.amounts.of(plan, tenant)
    }

    /// Counts requests to endpoints that have no model, too.
    pub fn applies_without_model(&self) -> bool {
        !self.count.by_usage()
    }

    pub fn enforces(&self) -> bool {
        self.mode == Mode::Enforce
    }

    /// All tenants share its buckets.
    pub fn is_shared(&self) -> bool {
        !self.per.contains(&Dimension::Tenant)
    }

    /// `tenant, model`
    pub fn show_per(&self) -> String {
        let names: Vec<_> = self.per.iter().map(|dimension| dimension.name()).collect();
        if names.is_empty() { "everybody".to_owned() } else { names.join(", ") }
    }

    /// Everything but amounts, in the policy's own words.
    pub fn describe(&self) -> String {
        let weighted = if self.counting.weights().is_some() { "weighted " } else { "" };
        let count = if self.count == Count::InFlight { "requests under way" } else { self.count.name() };
        format!("{weighted}{count} per {}, {}", self.show_per(), self.shape.show(self.count))
    }

    /// Hash of name, algorithm, shape, dimensions, count and weights; never of amounts, prices or modes.
    pub(super) fn tag_of(
        name: &str,
        shape: &Shape,
        per: &[Dimension],
        count: Count,
        counting: &Counting,
    ) -> Tag {
        let dimensions: Vec<_> = per.iter().map(|dimension| dimension.name()).collect();
        let [algorithm, shape] = shape.tag_parts();
        let mut parts =
            vec![name.to_owned(), algorithm, shape, dimensions.join(","), count.name().to_owned()];
        if let Some(rates) = counting.weights() {
            let Rates { request: _, input, cache_read, cache_write, output, reasoning, per } = rates;
            parts.push(format!("{input},{cache_read},{cache_write},{output},{reasoning}/{per}"));
        }
        Tag::of("limit", parts.iter().map(|part| Some(part.as_str())))
    }
}
