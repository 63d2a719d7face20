//! Reads a YAML tree field by field. What nobody asked for is a fault: nothing is ignored.

use std::collections::BTreeSet;

use super::error::{At, Fault, Result};
use super::yaml::{Key, Node, Value};
use crate::limits::MAX_AMOUNT;

/// One value and how it is reached.
#[derive(Clone, Debug)]
pub struct Item<'a> {
    pub node: &'a Node,
    pub path: String,
}

impl<'a> Item<'a> {
    pub fn root(node: &'a Node) -> Self {
        Self { node, path: String::new() }
    }

    pub fn at(&self) -> At {
        self.node.at
    }

    pub fn fault(&self, reason: impl Into<String>) -> Fault {
        Fault { at: Some(self.node.at), path: self.path.clone(), reason: reason.into() }
    }

    pub fn unsupported(&self, what: &str) -> Fault {
        self.fault(format!("{what} is not supported yet"))
    }

    /// One of some words.
    pub fn one_of(&self, words: &[&str]) -> Result<&'a str> {
        let word = self.text()?;
        if words.contains(&word) {
            Ok(word)
        } else {
            let or = if words.len() > 2 { "one of " } else { "" };
            let words = words.join(if words.len() > 2 { ", " } else { " or " });
            Err(self.fault(format!("unknown value `{word}`; use {or}{words}")))
        }
    }

    fn expected(&self, what: &str) -> Fault {
        self.fault(format!("must be {what}, not {}", self.node.value.kind()))
    }

    pub fn text(&self) -> Result<&'a str> {
        match &self.node.value {
            Value::Text(text) => Ok(text),
            Value::Integer(_) | Value::Fraction | Value::Bool(_) => Err(self.expected("a string in quotes")),
            _ => Err(self.expected("a string")),
        }
    }

    /// A string that is not empty and fits a log line.
    pub fn name(&self) -> Result<&'a str> {
        let text = self.text()?;
        if text.is_empty() || text.len() > 256 || text.chars().any(char::is_control) || text.trim() != text {
            return Err(
                self.fault("must have 1 to 256 bytes, no control characters and no white space at its ends")
            );
        }
        Ok(text)
    }

    pub fn boolean(&self) -> Result<bool> {
        match self.node.value {
            Value::Bool(value) => Ok(value),
            _ => Err(self.expected("true or false")),
        }
    }

    /// A whole number from 0 to 2^52.
    pub fn amount(&self) -> Result<u64> {
        match self.node.value {
            Value::Integer(value) => match u64::try_from(value) {
                Ok(amount) if amount <= MAX_AMOUNT => Ok(amount),
                _ => Err(self.fault("must be from 0 to 2^52 (4503599627370496)")),
            },
            _ => Err(self.expected("a whole number")),
        }
    }

    pub fn list(&self) -> Result<Vec<Item<'a>>> {
        let Value::List(list) = &self.node.value else { return Err(self.expected("a list")) };
        let item = |(i, node)| Item { node, path: format!("{}[{i}]", self.path) };
        Ok(list.iter().enumerate().map(item).collect())
    }

    /// A map whose keys are names, in the order of the file.
    pub fn entries(&self) -> Result<Vec<(&'a Key, Item<'a>)>> {
        let Value::Map(map) = &self.node.value else { return Err(self.expected("a map")) };
        Ok(map.iter().map(|(key, node)| (key, Item { node, path: self.below(&key.name) })).collect())
    }

    pub fn fields(&self) -> Result<Fields<'a>> {
        Ok(Fields { entries: self.entries()?, item: self.clone(), known: BTreeSet::new() })
    }

    pub fn below(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }
}

/// A map whose keys are known. Taking a field removes it; [`Fields::finish`] refuses the rest.
pub struct Fields<'a> {
    entries: Vec<(&'a Key, Item<'a>)>,
    item: Item<'a>,
    /// What was asked for.
    known: BTreeSet<String>,
}

impl<'a> Fields<'a> {
    /// A field with a value of nothing counts as absent nowhere: it is a fault of its type.
    pub fn optional(&mut self, name: &str) -> Option<Item<'a>> {
        self.known.insert(name.to_owned());
        let index = self.entries.iter().position(|(key, _)| key.name == name)?;
        Some(self.entries.remove(index).1)
    }

    pub fn required(&mut self, name: &str) -> Result<Item<'a>> {
        self.optional(name).ok_or_else(|| self.missing(name))
    }

    pub fn missing(&self, name: &str) -> Fault {
        Fault { at: Some(self.item.at()), path: self.item.below(name), reason: "is missing".to_owned() }
    }

    pub fn missing_one_of(&self, name: &str, others: &str) -> Fault {
        let reason = format!("is missing ({others})");
        Fault { reason, ..self.missing(name) }
    }

    /// Refuses what is part of the design and not built, before anything else is missed in its place.
    pub fn refuse_not_yet(&self, not_yet: &[&str]) -> Result<()> {
        let found = self.entries.iter().find(|(key, _)| not_yet.contains(&key.name.as_str()));
        found.map_or(Ok(()), |(key, item)| {
            let reason = format!("`{}` is not supported yet", key.name);
            Err(Fault { at: Some(key.at), path: item.path.clone(), reason })
        })
    }

    /// Refuses what is left: by name when it is part of the design and not built yet.
    pub fn finish(self, not_yet: &[&str]) -> Result<()> {
        self.refuse_not_yet(not_yet)?;
        let Some((key, item)) = self.entries.into_iter().next() else { return Ok(()) };
        let known: Vec<_> = self.known.iter().map(String::as_str).collect();
        let reason = format!("unknown field; known here: {}", known.join(", "));
        Err(Fault { at: Some(key.at), path: item.path, reason })
    }
}
