//! `--config FILE`: its values take the place of the defaults, so that flags and the environment still win.

use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches, Command};

use crate::policy::yaml::{self, Node, Value};

const CONFIG: &str = "config";

/// The arguments cannot be used.
#[derive(Debug)]
pub enum ArgumentsError {
    /// Said by clap, in its own way; asking for help is one.
    Clap(clap::Error),
    /// One line.
    File(String),
}

impl From<clap::Error> for ArgumentsError {
    fn from(error: clap::Error) -> Self {
        Self::Clap(error)
    }
}

/// Reads the arguments once to find the file, then again with the file's values as defaults.
pub fn matches(command: Command, arguments: &[std::ffi::OsString]) -> Result<ArgMatches, ArgumentsError> {
    // What the file may give is not missing yet.
    let lenient = command.clone().mut_subcommand("serve", |serve| serve.mut_args(|arg| arg.required(false)));
    let first = lenient.try_get_matches_from(arguments)?;
    let file = first.subcommand_matches("serve").and_then(|serve| serve.get_one::<PathBuf>(CONFIG).cloned());
    let Some(file) = file else {
        return Ok(command.try_get_matches_from(arguments)?);
    };
    let settings = read(&command, &file).map_err(ArgumentsError::File)?;
    let command = command.mut_subcommand("serve", |serve| {
        settings.into_iter().fold(serve, |serve, (id, value)| {
            serve.mut_arg(id, |arg| arg.required(false).default_value(value))
        })
    });
    Ok(command.try_get_matches_from(arguments)?)
}

/// Names of arguments with their values.
fn read(command: &Command, file: &Path) -> Result<Vec<(String, String)>, String> {
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file).map_err(|error| format!("{name}: {error}"))?;
    let root = yaml::parse(&text).map_err(|fault| fault.in_file(&name).to_string())?;
    let entries = match root.value {
        Value::Map(entries) => entries,
        Value::Null => Vec::new(),
        _ => return Err(format!("{name}: must be a map of settings")),
    };
    let mut settings = Vec::new();
    for (key, node) in entries {
        let at = |reason: String| format!("{name}:{}:{}: {}: {reason}", key.at.line, key.at.column, key.name);
        let value =
            scalar(&node).ok_or_else(|| at(format!("must be one value, not {}", node.value.kind())))?;
        let id = check(command, &key.name, &value).map_err(at)?;
        settings.push((id, value));
    }
    Ok(settings)
}

fn scalar(node: &Node) -> Option<String> {
    match &node.value {
        Value::Text(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Bool(bool) => Some(bool.to_string()),
        Value::Null | Value::Fraction | Value::List(_) | Value::Map(_) => None,
    }
}

/// The argument's name when there is such a setting and the value can be one of it.
fn check(command: &Command, name: &str, value: &str) -> Result<String, String> {
    let serve = command.find_subcommand("serve").ok_or("there are no settings")?;
    let arg = serve
        .get_arguments()
        .find(|arg| arg.get_long() == Some(name) && !["help", CONFIG].contains(&name))
        .ok_or("is not a setting of the file; `tokengate-ratelimit serve --help` lists them")?;
    // The value alone, read by the argument's own rules. What clap says of it repeats it: it may be a secret.
    let id = arg.get_id().to_string();
    let alone = Arg::new(id.clone()).long(name.to_owned()).value_parser(arg.get_value_parser().clone());
    Command::new("serve")
        .no_binary_name(true)
        .arg(alone)
        .try_get_matches_from([format!("--{name}={value}")])
        .map(|_| id)
        .map_err(|_| "is not a value of this setting; see `tokengate-ratelimit serve --help`".to_owned())
}
