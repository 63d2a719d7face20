use std::fmt;

/// Line and column of the policy file, both from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    pub line: u64,
    pub column: u64,
}

/// Why a policy is refused, and where: `file:line:column: path: reason`.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub struct PolicyError {
    pub file: String,
    pub at: Option<At>,
    /// For example `limits[1].per`; empty for the document itself.
    pub path: String,
    pub reason: String,
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(At { line, column }) = self.at {
            write!(f, ":{line}:{column}")?;
        }
        if !self.path.is_empty() {
            write!(f, ": {}", self.path)?;
        }
        write!(f, ": {}", self.reason)
    }
}

/// A fault found while reading; the file's name is added at the end.
#[derive(Debug, PartialEq, Eq)]
pub struct Fault {
    pub at: Option<At>,
    pub path: String,
    pub reason: String,
}

impl Fault {
    pub fn in_file(self, file: &str) -> PolicyError {
        let (path, reason) = (on_one_line(&self.path), on_one_line(&self.reason));
        PolicyError { file: file.to_owned(), at: self.at, path, reason }
    }
}

/// Both repeat names and values of the file, in which anything can stand.
fn on_one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for char in text.chars() {
        if char.is_control() { line.extend(char.escape_default()) } else { line.push(char) }
    }
    line
}

pub type Result<T> = std::result::Result<T, Fault>;
