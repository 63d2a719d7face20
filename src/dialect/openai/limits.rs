//! How much output a request allows, under every name that some server reads.

use super::names::{LEAST, LIMITS};
use crate::dialect::BadRequest;
use crate::edits::{Edit, Edits};
use crate::json::Named;

/// What a member says of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    Null,
    /// -1: as much as the model can.
    Unlimited,
    Tokens(u64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Given {
    name: &'static str,
    value: Value,
    offset: usize,
    length: usize,
}

/// The output limits of a request, where they stand, and where one could.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutputLimits {
    given: Vec<Given>,
    /// Behind the opening brace.
    front: usize,
}

impl OutputLimits {
    pub fn read(members: &Named<'_>, front: usize) -> Result<Self, BadRequest> {
        let mut given = Vec::new();
        for name in LIMITS.into_iter().chain([LEAST]) {
            let Some(member) = members.get(name) else { continue };
            let value = match value(member.raw) {
                // Zero is the least of servers that know a least.
                Some(Value::Tokens(0)) if name != LEAST => None,
                value => value,
            };
            let value = value.ok_or_else(|| {
                super::request::bad(name, "must be a whole number of at least 1, or -1 for no limit")
            })?;
            given.push(Given { name, value, offset: member.offset, length: member.raw.len() });
        }
        Ok(Self { given, front })
    }

    /// The largest, per choice: which of them a server reads cannot be known. `None` where nothing is a limit.
    pub fn largest(&self) -> Option<u64> {
        self.tokens().any(|(name, _)| name != LEAST).then(|| self.tokens().map(|(_, tokens)| tokens).max())?
    }

    /// What is written at least, whatever the limit.
    pub fn least(&self) -> u64 {
        self.tokens().filter(|(name, _)| *name == LEAST).map(|(_, tokens)| tokens).max().unwrap_or(0)
    }

    fn tokens(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.given.iter().filter_map(|given| match given.value {
            Value::Tokens(tokens) => Some((given.name, tokens)),
            _ => None,
        })
    }

    /// Edits after which every server keeps to this limit: larger ones are lowered, no limit becomes this one, and
    /// where no name is used that all servers know it is added. A reasoning model takes no `max_tokens`; for
    /// others that name is the one that every server knows. A limit of 0 would be no request at all.
    pub fn keep_to(&self, limit: u64, is_reasoning: bool, edits: &mut Edits) {
        let limit = limit.max(1);
        let [completion, any, ..] = LIMITS;
        let is_above = |given: &&Given| match given.value {
            Value::Tokens(tokens) => tokens > limit,
            Value::Unlimited => given.name != LEAST,
            Value::Null => false,
        };
        let is_bounded =
            |given: &Given| [completion, any].contains(&given.name) && given.value != Value::Null;
        let mut replace = |given: &Given| {
            edits.push(Edit {
                offset: given.offset,
                length: given.length,
                bytes: limit.to_string().into_bytes(),
            });
        };
        self.given.iter().filter(is_above).for_each(&mut replace);
        if self.given.iter().any(is_bounded) {
            return;
        }
        let name = if is_reasoning { completion } else { any };
        match self.given.iter().find(|given| given.name == name) {
            // A second member of the name would be ambiguous.
            Some(null) => replace(null),
            None => edits.push(Edit {
                offset: self.front,
                length: 0,
                bytes: format!(r#""{name}":{limit},"#).into_bytes(),
            }),
        }
    }
}

/// A whole number from 0 on, however large, or -1.
fn value(raw: &str) -> Option<Value> {
    if raw == "null" {
        return Some(Value::Null);
    }
    if let Some(tokens) = crate::json::number(raw) {
        return Some(Value::Tokens(tokens));
    }
    if !raw.starts_with(|first: char| first == '-' || first.is_ascii_digit()) {
        return None;
    }
    let number: f64 = raw.parse().ok()?;
    match number {
        -1.0 => Some(Value::Unlimited),
        _ if number >= u64::MAX as f64 => Some(Value::Tokens(u64::MAX)),
        _ => None,
    }
}

/// For a model of which the policy wants every request to name a limit.
pub fn missing_output_limit() -> BadRequest {
    let [name, other, ..] = LIMITS;
    super::request::bad(
        name,
        &format!("is missing: requests to this model have to give '{name}' or '{other}'"),
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::json::members_named;

    fn limits(members: &str) -> Result<OutputLimits, BadRequest> {
        let text = format!("{{{members}}}");
        OutputLimits::read(&members_named(&text, &super::super::names::ACTED_ON).unwrap(), 1)
    }

    fn kept_to(limit: u64, is_reasoning: bool, members: &str) -> String {
        let mut edits = Edits::default();
        limits(members).unwrap().keep_to(limit, is_reasoning, &mut edits);
        let text = format!("{{{members}}}");
        let text = String::from_utf8(edits.apply(text.as_bytes()).unwrap()).unwrap();
        text.trim_matches(['{', '}']).to_owned()
    }

    #[test]
    fn the_largest_of_all_names_counts() {
        for (members, largest, least) in [
            ("", None, 0),
            (r#""max_tokens":5,"n_predict":16000"#, Some(16_000), 0),
            (r#""max_tokens":5,"max_new_tokens":7"#, Some(7), 0),
            (r#""max_tokens":5,"num_predict":8,"max_output_tokens":9"#, Some(9), 0),
            (r#""max_tokens":5,"min_tokens":90"#, Some(90), 90),
            (r#""n_predict":5"#, Some(5), 0),
            (r#""min_tokens":90"#, None, 90),
            (r#""max_tokens":5,"min_tokens":0"#, Some(5), 0),
            (r#""max_tokens":-1"#, None, 0),
            (r#""max_tokens":-1.0,"n_predict":-1e0"#, None, 0),
            (r#""max_tokens":-1,"max_completion_tokens":30"#, Some(30), 0),
            (r#""max_tokens":null,"n_predict":null"#, None, 0),
            (r#""max_tokens":100000000000000000000"#, Some(u64::MAX), 0),
            (r#""max_tokens":18446744073709551616"#, Some(u64::MAX), 0),
            (r#""max_tokens":1e400"#, Some(u64::MAX), 0),
            (r#""max_tokens":1e3"#, Some(1_000), 0),
        ] {
            let limits = limits(members).unwrap();
            assert_eq!((limits.largest(), limits.least()), (largest, least), "{members}");
        }
    }

    #[test]
    fn what_is_no_limit_is_refused_by_name() {
        for name in LIMITS {
            for value in ["0", "-2", "-1.5", "-1e400", "1.5", "\"5\"", "true", "[]", "{}", "-0", "1e-400"] {
                let error = limits(&format!("\"{name}\":{value}")).unwrap_err();
                assert_eq!(error.param, Some(name), "{value}");
            }
        }
        assert_eq!(limits(r#""min_tokens":-2"#).unwrap_err().param, Some("min_tokens"));
    }

    #[test]
    fn every_server_keeps_to_the_limit() {
        for (members, expected) in [
            (r#""max_tokens":50"#, r#""max_tokens":20"#),
            (r#""max_tokens":5"#, r#""max_tokens":5"#),
            (r#""max_tokens":5,"n_predict":16000"#, r#""max_tokens":5,"n_predict":20"#),
            (r#""max_tokens":5,"n_predict":-1"#, r#""max_tokens":5,"n_predict":20"#),
            (r#""max_tokens":-1"#, r#""max_tokens":20"#),
            (r#""max_completion_tokens": -1.0 ,"x":1"#, r#""max_completion_tokens": 20 ,"x":1"#),
            (r#""max_tokens":5,"min_tokens":90"#, r#""max_tokens":5,"min_tokens":20"#),
            (r#""max_tokens":5,"min_tokens":-1"#, r#""max_tokens":5,"min_tokens":-1"#),
            (r#""max_tokens":1e400"#, r#""max_tokens":20"#),
            // Servers that do not know the name would know no limit.
            (r#""n_predict":5"#, r#""max_tokens":20,"n_predict":5"#),
            (r#""n_predict":-1"#, r#""max_tokens":20,"n_predict":20"#),
            (r#""n_predict":50,"max_tokens":null"#, r#""n_predict":20,"max_tokens":20"#),
            (r#""min_tokens":90"#, r#""max_tokens":20,"min_tokens":20"#),
        ] {
            assert_eq!(kept_to(20, false, members), expected, "{members}");
        }
        assert_eq!(kept_to(20, true, r#""n_predict":5"#), r#""max_completion_tokens":20,"n_predict":5"#);
        assert_eq!(kept_to(0, false, r#""max_tokens":5"#), r#""max_tokens":1"#);
    }
}
