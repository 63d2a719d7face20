//! The section `models`.

use std::collections::BTreeMap;

use tokengate_api::{MissingOutputLimit, ModelInfo, OutputLimit, UsageChunk};

use super::UnknownModel;
use super::error::Result;
use super::fields::Item;
use super::prices::{self, Prices};

const TOKENIZERS: [&str; 7] =
    ["auto", "o200k_base", "cl100k_base", "llama3", "qwen2", "deepseek_v3", "mistral"];

/// Fields of the design that are refused by name until they exist.
const NOT_YET: &[&str] = &["output_hold", "images", "estimates"];

/// The models, and prices by canonical name of those that have any.
pub fn read(section: &Item<'_>) -> Result<(Vec<ModelInfo>, BTreeMap<String, Prices>)> {
    let mut models: Vec<ModelInfo> = Vec::new();
    let mut prices = BTreeMap::new();
    for item in section.list()? {
        let (model, price) = model(&item, &models)?;
        if let Some(price) = price {
            prices.insert(model.name.clone(), price);
        }
        models.push(model);
    }
    if models.is_empty() {
        return Err(section.fault("must list at least one model"));
    }
    Ok((models, prices))
}

/// `deny`, or `{as: NAME}` with the name of a model.
pub fn unknown(item: &Item<'_>, models: &[ModelInfo]) -> Result<UnknownModel> {
    if item.entries().is_err() {
        item.one_of(&["deny"]).map_err(|fault| item.fault(format!("{} or {{as: NAME}}", fault.reason)))?;
        return Ok(UnknownModel::Deny);
    }
    let mut fields = item.fields()?;
    let name_item = fields.required("as")?;
    let name = name_item.text()?;
    fields.finish(&[])?;
    match models.iter().position(|model| model.name == name) {
        Some(index) => Ok(UnknownModel::As(index)),
        None => Err(name_item.fault(format!("no model is named `{name}`"))),
    }
}

fn model(item: &Item<'_>, before: &[ModelInfo]) -> Result<(ModelInfo, Option<Prices>)> {
    let mut fields = item.fields()?;
    let name_item = fields.required("name")?;
    let name = name_item.name()?;
    if before.iter().any(|other| other.name == name) {
        return Err(name_item.fault(format!("a model named `{name}` is there already")));
    }
    if name == "-" || name.contains('*') {
        return Err(name_item.fault("`-` and `*` cannot be part of a model's own name"));
    }

    let match_item = fields.required("match")?;
    let patterns = match_item.list()?;
    if patterns.is_empty() {
        return Err(match_item.fault("must list at least one name: the model can never match"));
    }
    let mut texts: Vec<String> = Vec::new();
    for pattern in patterns {
        let text = pattern.name()?;
        check_pattern(&pattern, text)?;
        let equal = |patterns: &[String]| patterns.iter().any(|other| other == text);
        let owner = before.iter().find(|other| equal(&other.patterns)).map(|other| other.name.as_str());
        if let Some(owner) = owner.or_else(|| equal(&texts).then_some(name)) {
            return Err(pattern.fault(format!("`{text}` already belongs to the model `{owner}`")));
        }
        texts.push(text.to_owned());
    }

    let tokenizer = match fields.optional("tokenizer") {
        None => "auto",
        Some(item) => match item.text()? {
            text if TOKENIZERS.contains(&text) => text,
            text => return Err(item.unsupported(&format!("tokenizer `{text}`"))),
        },
    };
    let mut positive = |name: &str| match fields.optional(name) {
        None => Ok(None),
        Some(item) => match item.amount()? {
            0 => Err(item.fault("must be at least 1")),
            amount => Ok(Some((amount, item))),
        },
    };
    let max = positive("max_output_tokens")?;
    let default = positive("default_output_tokens")?;
    if let (Some((max, _)), Some((default, item))) = (&max, &default)
        && default > max
    {
        return Err(item.fault(format!("is above max_output_tokens ({max})")));
    }
    let max_output_tokens = max.map(|(amount, _)| amount);
    let default_output_tokens = default.map(|(amount, _)| amount);
    let output_limit = match fields.optional("output_limit") {
        None => OutputLimit::default(),
        Some(item) => output_limit(&item, max_output_tokens, default_output_tokens)?,
    };
    let reasoning = fields.optional("reasoning").map_or(Ok(false), |item| item.boolean())?;
    let price = fields.optional("price_usd_per_million").map(|item| prices::read(&item)).transpose()?;
    let usage_chunk = match fields.optional("usage_chunk") {
        None => UsageChunk::Ask,
        Some(item) => match item.one_of(&["ask", "never"])? {
            "never" => UsageChunk::Never,
            _ => UsageChunk::Ask,
        },
    };
    fields.finish(NOT_YET)?;
    let model = ModelInfo {
        name: name.to_owned(),
        patterns: texts,
        tokenizer: tokenizer.to_owned(),
        max_output_tokens,
        default_output_tokens,
        output_limit,
        reasoning,
        usage_chunk,
    };
    Ok((model, price))
}

/// A client's name is compared in lower case, so a pattern has to be written like that.
fn check_pattern(item: &Item<'_>, text: &str) -> Result<()> {
    if text.strip_suffix('*').unwrap_or(text).contains('*') {
        return Err(item.fault("`*` may only stand at the end"));
    }
    let lower = text.to_lowercase();
    if lower != text {
        return Err(item.fault(format!("`{text}` can never match: write it in lower case, `{lower}`")));
    }
    Ok(())
}

fn output_limit(item: &Item<'_>, max: Option<u64>, default: Option<u64>) -> Result<OutputLimit> {
    let mut fields = item.fields()?;
    let Some(missing) = fields.optional("missing") else {
        fields.finish(&[])?;
        return Ok(OutputLimit::default());
    };
    fields.finish(&[])?;
    let needs = |name: &str| missing.fault(format!("needs `{name}` of the model"));
    let missing = match missing.one_of(&["hold_default", "write_default", "hold_max", "refuse"])? {
        "write_default" if default.is_none() => return Err(needs("default_output_tokens")),
        "hold_max" if max.is_none() => return Err(needs("max_output_tokens")),
        "write_default" => MissingOutputLimit::WriteDefault,
        "hold_max" => MissingOutputLimit::HoldMax,
        "refuse" => MissingOutputLimit::Refuse,
        _ => MissingOutputLimit::HoldDefault,
    };
    Ok(OutputLimit { missing })
}
