//! What tool definitions cost: a published rule, for definitions as simple as its examples and for the models
//! that it was published for.

use super::Encoding;
use crate::json::{Member, elements, members, text};

const PROPERTIES: u64 = 3;
const PROPERTY: u64 = 3;
const CHOICE: u64 = 3;
/// What a list of choices takes off.
const CHOICES: u64 = 3;
/// Once for all tools.
const END: u64 = 12;

/// Tokens of a function beside its texts; `None` for a model that the rule is not for.
pub fn per_function(model: &str) -> Option<u64> {
    let is = |prefix: &str| model.starts_with(prefix);
    if is("gpt-4o") {
        Some(7)
    } else if model == "gpt-4" || is("gpt-4-") || is("gpt-3.5-turbo") || is("gpt-35-turbo") {
        Some(10)
    } else {
        None
    }
}

/// Tokens of the value of `tools`; `None` where the rule says nothing of what is in it.
pub fn tokens(encoding: Encoding, per_function: u64, raw: &str) -> Option<u64> {
    let tools = elements(raw).ok()?;
    if tools.is_empty() {
        return Some(0);
    }
    let tools = tools.into_iter().map(|tool| function(encoding, per_function, tool));
    tools.sum::<Option<u64>>().map(|tokens| tokens + END)
}

fn function(encoding: Encoding, per_function: u64, tool: &str) -> Option<u64> {
    let [kind, function] = get(tool, ["type", "function"], &[])?;
    (text(kind)? == "function").then_some(())?;
    let [name, description, parameters] = get(function, ["name", "description", "parameters"], &["strict"])?;
    let [kind, properties] = get(parameters, ["type", "properties"], &["required", "additionalProperties"])?;
    (text(kind)? == "object").then_some(())?;
    let properties = members(properties).ok()?;
    let line = format!("{}:{}", text(name)?, sentence(description)?);
    let head = per_function + encoding.count(&line) + if properties.is_empty() { 0 } else { PROPERTIES };
    properties
        .iter()
        .map(|member| property(encoding, member))
        .sum::<Option<u64>>()
        .map(|tokens| head + tokens)
}

fn property(encoding: Encoding, member: &Member<'_>) -> Option<u64> {
    let [kind, description] = get(member.raw, ["type", "description"], &["enum"])?;
    let line = format!("{}:{}:{}", member.key, text(kind)?, sentence(description)?);
    let choices = match get(member.raw, ["enum"], &["type", "description"]) {
        None => 0,
        Some([choices]) => {
            let choices = elements(choices).ok().filter(|choices| !choices.is_empty())?;
            let choice = |raw| Some(CHOICE + encoding.count(&text(raw)?));
            choices.into_iter().map(choice).sum::<Option<u64>>()?.saturating_sub(CHOICES)
        }
    };
    Some(PROPERTY + encoding.count(&line) + choices)
}

/// The values of an object that has all of `wanted` and beside them none but `others`, each once.
fn get<'a, const N: usize>(raw: &'a str, wanted: [&str; N], others: &[&str]) -> Option<[&'a str; N]> {
    let all = members(raw).ok()?;
    let is_known = |key: &str| wanted.contains(&key) || others.contains(&key);
    let is_first = |at: usize, key: &str| all.iter().take(at).all(|before| before.key != key);
    all.iter().enumerate().all(|(at, m)| is_known(&m.key) && is_first(at, &m.key)).then_some(())?;
    let mut found = [""; N];
    for (slot, name) in found.iter_mut().zip(wanted) {
        *slot = all.iter().find(|member| member.key == name)?.raw;
    }
    Some(found)
}

/// A description, of which a last full stop does not count.
fn sentence(raw: &str) -> Option<String> {
    let mut text = text(raw)?;
    if text.ends_with('.') {
        text.pop();
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEATHER: &str = r#"[{"type": "function", "function": {"name": "get_current_weather",
        "description": "Get the current weather in a given location", "parameters": {"type": "object",
        "properties": {
            "location": {"type": "string", "description": "The city and state, e.g. San Francisco, CA"},
            "unit": {"type": "string", "description": "The unit of temperature to return",
                "enum": ["celsius", "fahrenheit"]}},
        "required": ["location"]}}}]"#;

    #[test]
    fn the_published_example() {
        // Its two messages: 3 for the reply, 3 for each, and their texts.
        let messages = |encoding: Encoding| {
            let texts = [
                "system",
                "You are a helpful assistant that can answer to questions about the weather.",
                "user",
                "What's the weather like in San Francisco?",
            ];
            9 + texts.into_iter().map(|text| encoding.count(text)).sum::<u64>()
        };
        for (model, encoding, whole) in [
            ("gpt-4", Encoding::Cl100kBase, 105),
            ("gpt-3.5-turbo-0125", Encoding::Cl100kBase, 105),
            ("gpt-4o", Encoding::O200kBase, 101),
            ("gpt-4o-mini", Encoding::O200kBase, 101),
        ] {
            let tools = per_function(model).and_then(|each| tokens(encoding, each, WEATHER));
            assert_eq!(tools.map(|tools| tools + messages(encoding)), Some(whole), "{model}");
        }
        for model in ["gpt-4.1", "gpt-5", "o3", "gpt-4.5-preview", "other"] {
            assert_eq!(per_function(model), None, "{model}");
        }
    }

    #[test]
    fn a_last_full_stop_does_not_count() {
        let with = WEATHER.replace("given location\"", "given location.\"");
        let count = |raw: &str| tokens(Encoding::O200kBase, 7, raw);
        assert_eq!(count(&with), count(WEATHER));
        assert_eq!(count("[]"), Some(0));
    }

    #[test]
    fn what_the_rule_does_not_cover() {
        for (from, to) in [
            (r#""type": "function""#, r#""type": "custom""#),
            (r#""type": "function","#, ""),
            (r#""name": "get_current_weather","#, ""),
            (r#""description": "Get the current weather in a given location","#, ""),
            (r#""required""#, r#""$defs""#),
            (r#""type": "object""#, r#""type": "array""#),
            (r#""type": "object""#, r#""type": "object", "type": "object""#),
            (r#"["celsius", "fahrenheit"]"#, "[1]"),
            (r#"["celsius", "fahrenheit"]"#, "[]"),
            (r#""enum""#, r#""anyOf""#),
            (r#""enum""#, r#""default": 1, "enum""#),
            (
                r#""type": "string", "description": "The unit of"#,
                r#""type": ["string"], "description": "The unit of"#,
            ),
        ] {
            let other = WEATHER.replace(from, to);
            assert_ne!(other, WEATHER, "{from}");
            assert_eq!(tokens(Encoding::O200kBase, 7, &other), None, "{other}");
        }
        for raw in ["{}", "[1]", "[{}]", "\"tools\"", "5"] {
            assert_eq!(tokens(Encoding::O200kBase, 7, raw), None, "{raw}");
        }
    }
}
