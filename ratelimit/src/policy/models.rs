//! The section `models`.

use tokengate_api::{MissingOutputLimit, ModelInfo, OutputLimit};

use super::error::Result;
use super::fields::Item;

const TOKENIZERS: [&str; 3] = ["auto", "o200k_base", "cl100k_base"];

/// Fields of the design that are refused by name until they exist.
const NOT_YET: &[&str] = &["price_usd_per_million", "output_hold", "images", "estimates"];

pub fn read(section: &Item<'_>) -> Result<Vec<ModelInfo>> {
    let mut models: Vec<ModelInfo> = Vec::new();
    for item in section.list()? {
        let model = model(&item, &models)?;
        models.push(model);
    }
    if models.is_empty() {
        return Err(section.fault("must list at least one model"));
    }
    Ok(models)
}

fn model(item: &Item<'_>, before: &[ModelInfo]) -> Result<ModelInfo> {
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
    let output_limit = match fields.optional("output_limit") {
        None => OutputLimit::default(),
        Some(item) => output_limit(&item)?,
    };
    let reasoning = fields.optional("reasoning").map_or(Ok(false), |item| item.boolean())?;
    fields.finish(NOT_YET)?;
    Ok(ModelInfo {
        name: name.to_owned(),
        patterns: texts,
        tokenizer: tokenizer.to_owned(),
        max_output_tokens: max.map(|(amount, _)| amount),
        default_output_tokens: default.map(|(amount, _)| amount),
        output_limit,
        reasoning,
    })
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

fn output_limit(item: &Item<'_>) -> Result<OutputLimit> {
    let mut fields = item.fields()?;
    if let Some(missing) = fields.optional("missing") {
        match missing.text()? {
            "hold_default" => {}
            known @ ("write_default" | "hold_max" | "refuse") => {
                return Err(missing.unsupported(&format!("`{known}`")));
            }
            other => return Err(missing.fault(format!("unknown value `{other}`; use hold_default"))),
        }
    }
    fields.finish(&[])?;
    Ok(OutputLimit { missing: MissingOutputLimit::HoldDefault })
}
