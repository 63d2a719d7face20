//! Which models may answer a request, and at which price each: what a settle has to know to charge the one that did.

use tokengate_api::Usage;

use super::codec::{Reader, put_rates};
use crate::limits::Rates;
use crate::tag::Tag;

/// Empty where only one model can answer, at one price: then nothing of it is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Alternatives {
    /// Tags of canonical names, the requested one first.
    pub models: Vec<Tag>,
    /// Tags of the names as the request has them, and the position of the model that each means.
    pub names: Vec<(Tag, u8)>,
    /// The tier that the request asks for, where it names one.
    pub tier: Option<Tag>,
    /// Where a limit counts cost.
    pub prices: Vec<Price>,
}

/// What one model's tokens cost in one tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Price {
    /// Position among the models.
    pub model: u8,
    /// Absent: in every tier that has no price of its own.
    pub tier: Option<Tag>,
    pub rates: Rates,
    /// The request can get this tier by what it asks for: its hold covers it.
    pub expected: bool,
}

/// What an answer says of who gave it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answered {
    /// [`Tag::named`] of the model's name in the answer.
    pub name: Option<Tag>,
    /// [`Tag::model`] of the canonical name that it means today.
    pub model: Option<Tag>,
    pub tier: Option<Tag>,
}

/// How one charge is counted, and for which model.
#[derive(Clone, Copy, Debug)]
pub struct Counted {
    pub rates: Rates,
    pub priced: bool,
    /// Position of the model that has to answer for the charge to be owed; absent: whichever does.
    pub model: Option<u8>,
}

impl Alternatives {
    pub fn is_empty(&self) -> bool {
        self.models.is_empty()
    }

    /// The position of the model that has answered: by the name that the request has for it, then by what the name
    /// means today. Nothing where the answer names none of them.
    pub fn answering(&self, answered: &Answered) -> Option<u8> {
        let by_name =
            |name| self.names.iter().find(|(known, _)| *known == name).map(|(_, position)| *position);
        let by_model = |model| {
            let position = self.models.iter().position(|known| *known == model)?;
            u8::try_from(position).ok()
        };
        answered.name.and_then(by_name).or_else(|| answered.model.and_then(by_model))
    }

    /// The answer names a model, and it is not the one that has to answer for this to be owed.
    pub fn is_anothers(&self, model: Option<u8>, answered: &Answered) -> bool {
        matches!((model, self.answering(answered)), (Some(model), Some(answering)) if model != answering)
    }

    /// What a used request counts. Who does not say that another model has answered is charged for the one it has
    /// asked for.
    pub fn of_usage(&self, counted: &Counted, usage: &Usage, answered: &Answered) -> u64 {
        let answering = self.answering(answered).unwrap_or(0);
        if counted.model.is_some_and(|model| model != answering) {
            return 0;
        }
        let price = if counted.priced { self.price(usage, answered) } else { None };
        price.unwrap_or(counted.rates).of_usage(usage)
    }

    /// The price of an answer. One that does not say its tier has the requested one's, but never costs less than
    /// without a tier.
    pub fn price(&self, usage: &Usage, answered: &Answered) -> Option<Rates> {
        let answering = self.answering(answered).unwrap_or(0);
        let of_tier = |tier: Option<Tag>| {
            let mut prices = self.prices.iter();
            prices.find(|price| price.model == answering && price.tier == tier).map(|price| price.rates)
        };
        let standard = of_tier(None);
        match answered.tier {
            Some(tier) => of_tier(Some(tier)).or(standard),
            None => {
                let asked_for = self.tier.and_then(|tier| of_tier(Some(tier)));
                [standard, asked_for].into_iter().flatten().max_by_key(|rates| rates.of_usage(usage))
            }
        }
    }

    /// What a charge holds of so many tokens: its rates, where it is priced those of the dearest that may be owed.
    pub fn of_hold(&self, counted: &Counted, prompt_tokens: u64, output_tokens: u64) -> u64 {
        let mine = |price: &&Price| {
            counted.priced && price.expected && counted.model.is_none_or(|model| model == price.model)
        };
        let amounts = self.prices.iter().filter(mine);
        amounts
            .map(|price| price.rates.of_hold(prompt_tokens, output_tokens))
            .max()
            .unwrap_or_else(|| counted.rates.of_hold(prompt_tokens, output_tokens))
    }

    /// `models u8 | tags | names u8 | (tag, position u8)… | tier | prices u8 | (model u8 | expected u8 | tier | rates)…`,
    /// a tier being 0, or 1 and its tag.
    pub fn put(&self, bytes: &mut Vec<u8>) {
        let count = |length: usize| u8::try_from(length).unwrap_or(u8::MAX);
        let put_tier = |bytes: &mut Vec<u8>, tier: Option<Tag>| {
            bytes.push(tier.is_some().into());
            bytes.extend(tier.iter().flat_map(|tag| tag.0));
        };
        bytes.push(count(self.models.len()));
        bytes.extend(self.models.iter().flat_map(|tag| tag.0));
        bytes.push(count(self.names.len()));
        for (name, position) in &self.names {
            bytes.extend(name.0);
            bytes.push(*position);
        }
        put_tier(bytes, self.tier);
        bytes.push(count(self.prices.len()));
        for price in &self.prices {
            bytes.extend([price.model, price.expected.into()]);
            put_tier(bytes, price.tier);
            put_rates(bytes, &price.rates);
        }
    }

    pub fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let models = (0..reader.byte()?).map(|_| reader.tag()).collect::<Option<Vec<_>>>()?;
        let names = (0..reader.byte()?).map(|_| Some((reader.tag()?, reader.byte()?)));
        let names = names.collect::<Option<Vec<_>>>()?;
        let tier = read_tier(reader)?;
        let prices = (0..reader.byte()?).map(|_| {
            let [model, expected] = reader.array()?;
            Some(Price { model, expected: expected != 0, tier: read_tier(reader)?, rates: reader.rates()? })
        });
        let prices = prices.collect::<Option<Vec<_>>>()?;
        (!models.is_empty()).then_some(Self { models, names, tier, prices })
    }
}

fn read_tier(reader: &mut Reader<'_>) -> Option<Option<Tag>> {
    match reader.byte()? {
        0 => Some(None),
        1 => reader.tag().map(Some),
        _ => None,
    }
}
