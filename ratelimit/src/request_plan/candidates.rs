//! The models that may answer a request: the one it asks for, and those it names to take its place.

use tokengate_api::{ModelInfo, Reason, ReserveRequest};

use super::Denied;
use crate::limits::Rates;
use crate::policy::{Limit, Plan, Policy, normal_tier};
use crate::store::{Alternatives, Price};
use crate::tag::Tag;

/// The requested model first, none twice; empty on endpoints without a model.
pub struct Candidates<'p> {
    models: Vec<&'p ModelInfo>,
    /// Of the names as the request has them, and whom each means.
    names: Vec<(Tag, u8)>,
    tier: Option<&'p str>,
}

impl<'p> Candidates<'p> {
    /// Without `plan` the request was let through without being asked about: whatever it names is charged, and what
    /// nobody knows, beside the model it asks for, cannot be.
    ///
    /// # Errors
    /// A model that is unknown, or that the plan does not contain.
    pub fn of(policy: &'p Policy, plan: Option<&Plan>, request: &'p ReserveRequest) -> Result<Self, Denied> {
        let mut found = Self { models: Vec::new(), names: Vec::new(), tier: request.service_tier.as_deref() };
        let Some(requested) = &request.model else { return Ok(found) };
        found.add(policy, plan, requested).map_err(Denied::from)?;
        for alternative in &request.models {
            match found.add(policy, plan, alternative) {
                Err(_) if plan.is_none() => {}
                Err(reason) => return Err(Denied { reason, model: Some(alternative.clone()) }),
                Ok(()) => {}
            }
        }
        Ok(found)
    }

    fn add(&mut self, policy: &'p Policy, plan: Option<&Plan>, name: &str) -> Result<(), Reason> {
        let (index, model) = policy.model(name).ok_or(Reason::ModelNotFound)?;
        if plan.is_some_and(|plan| !plan.models.contains(&index)) {
            return Err(Reason::ModelNotAllowed);
        }
        let position = match self.models.iter().position(|known| known.name == model.name) {
            Some(position) => position,
            None => {
                self.models.push(model);
                self.models.len() - 1
            }
        };
        if let (Ok(position), Some(name)) = (u8::try_from(position), Tag::named(name)) {
            self.names.push((name, position));
        }
        Ok(())
    }

    pub fn requested(&self) -> Option<&'p ModelInfo> {
        self.models.first().copied()
    }

    pub fn are_several(&self) -> bool {
        self.models.len() > 1
    }

    pub fn iter(&self) -> impl Iterator<Item = (u8, &'p ModelInfo)> {
        (0..u8::MAX).zip(self.models.iter().copied())
    }

    /// What a settle has to know; nothing where one model can answer at one price. `priced` is a limit that counts
    /// money, if one applies.
    pub fn alternatives(&self, priced: Option<&Limit>) -> Alternatives {
        let prices = priced.map(|limit| self.prices(limit)).unwrap_or_default();
        if !self.are_several() && prices.len() < 2 {
            return Alternatives::default();
        }
        let tier = self.tier.map(normal_tier).filter(|tier| !tier.is_empty());
        Alternatives {
            models: self.models.iter().map(|model| Tag::model(Some(&model.name))).collect(),
            names: if self.are_several() { self.names.clone() } else { Vec::new() },
            tier: tier.as_deref().map(Tag::tier),
            prices,
        }
    }

    fn prices(&self, limit: &Limit) -> Vec<Price> {
        let mut prices = Vec::new();
        for (position, model) in self.iter() {
            match limit.prices(model) {
                Some(of_model) => {
                    let wanted = of_model.wanted(self.tier);
                    prices.extend(of_model.all(wanted).map(|(tier, rates, expected)| Price {
                        model: position,
                        tier: tier.map(Tag::tier),
                        rates: *rates,
                        expected,
                    }));
                }
                None => {
                    let rates = limit.rates(model);
                    prices.push(Price { model: position, tier: None, rates, expected: true });
                }
            }
        }
        prices
    }

    /// By what a charge is held, for one of the models or for whichever answers: the dearest at so many tokens. Where
    /// less output may be granted, at no number of them less than any of them.
    pub fn rates(&self, limit: &Limit, only: Option<u8>, tokens: (u64, u64), clamps: bool) -> Rates {
        let mine = self.iter().filter(|(position, _)| only.is_none_or(|only| only == *position));
        let (prompt, output) = tokens;
        let mut all = Vec::new();
        for (_, model) in mine {
            match limit.prices(model) {
                Some(prices) => {
                    let wanted = prices.wanted(self.tier);
                    all.extend(
                        prices.all(wanted).filter(|(_, _, expected)| *expected).map(|(_, rates, _)| *rates),
                    );
                }
                None => all.push(limit.rates(model)),
            }
        }
        let Some(dearest) = all.iter().copied().max_by_key(|rates| rates.of_hold(prompt, output)) else {
            return Rates::REQUESTS;
        };
        let dearer_with_less = |rates: &Rates| rates.of_hold(prompt, 0) > dearest.of_hold(prompt, 0);
        if clamps && all.iter().any(dearer_with_less) {
            return all.iter().fold(dearest, Rates::larger);
        }
        dearest
    }
}
