//! YAML text to a tree in which every key and value knows its place. No meaning is given here.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Location, Spanned};

use super::error::{At, Fault};

#[derive(Clone, Debug)]
pub struct Node {
    pub at: At,
    pub value: Value,
}

#[derive(Clone, Debug)]
pub enum Value {
    Null,
    Bool(bool),
    Integer(i128),
    Fraction,
    Text(String),
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
}

#[derive(Clone, Debug)]
pub struct Key {
    pub at: At,
    pub name: String,
}

impl Value {
    /// What an operator would call it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "true or false",
            Self::Integer(_) => "a whole number",
            Self::Fraction => "a number such as 1.5, 1e3 or 010",
            Self::Text(_) => "a string",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
        }
    }
}

/// 2^63.
const TOO_LARGE: f64 = 9_223_372_036_854_775_808.0;

/// Parses one document. Duplicate keys and wrong syntax are faults.
pub fn parse(text: &str) -> Result<Node, Fault> {
    // A node is a key, a value, a list or a map: room for a million API keys. What aliases repeat has bounds of
    // its own. `on`, `y` and the like are names.
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_nodes: 16_000_000, max_events: 48_000_000, },
        strict_booleans: true,
    };
    let parsed: Result<Spanned<Value>, _> = serde_saphyr::from_str_with_options(text, options);
    parsed.map(Node::from).map_err(|error| {
        let at = error.location().map(At::from);
        // The first line of the message without its position: ours comes first.
        let message = error.without_snippet().to_string();
        let message = message.lines().next().unwrap_or_default();
        let reason = for_operators(strip_position(message)).to_owned();
        Fault { at, path: String::new(), reason }
    })
}

/// What the parser says to programmers, for those who write policies.
fn for_operators(message: &str) -> &str {
    for (start, says) in [
        ("multiple YAML documents", "a second document begins here: a policy is one"),
        ("budget breached", "the file is too large, or its aliases repeat too much"),
        ("recursion limit", "lists and maps are nested too deep"),
        ("non-finite float", "is too large, or no number"),
        ("expected string scalar", "must be a name: a list or a map cannot be one"),
    ] {
        if message.starts_with(start) {
            return says;
        }
    }
    message
}

/// Cuts off ` at line 1, column 2` and what follows, and the parser's advice to programmers.
fn strip_position(message: &str) -> &str {
    let message = message.split(" at line ").next().unwrap_or(message);
    let message = message.split(", set DuplicateKeyPolicy").next().unwrap_or(message);
    message.trim_end_matches(['.', ' '])
}

impl From<Location> for At {
    fn from(location: Location) -> Self {
        Self { line: location.line(), column: location.column() }
    }
}

impl From<Spanned<Value>> for Node {
    fn from(spanned: Spanned<Value>) -> Self {
        Self { at: spanned.referenced.into(), value: spanned.value }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Integer(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Integer(value.into()))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Value, E> {
        Ok(Value::Integer(value))
    }

    fn visit_u128<E>(self, value: u128) -> Result<Value, E> {
        Ok(Value::Integer(i128::try_from(value).unwrap_or(i128::MAX)))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        // What is too large for the parser's whole numbers comes as a float.
        Ok(match value.abs() >= TOO_LARGE {
            true if value > 0.0 => Value::Integer(i128::MAX),
            true => Value::Integer(i128::MIN),
            false => Value::Fraction,
        })
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element::<Spanned<Value>>()? {
            list.push(item.into());
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Vec::new();
        while let Some(key) = entries.next_key::<Spanned<String>>()? {
            let value = entries.next_value::<Spanned<Value>>()?;
            map.push((Key { at: key.referenced.into(), name: key.value }, value.into()));
        }
        Ok(Value::Map(map))
    }
}
