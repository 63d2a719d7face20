//! Notices that the policy's file says something else. The caller decides how often to look.

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::{Environment, LoadError, Policy};

/// Follows one file by its content. A text is taken when two looks in a row have found it, so that a file that is
/// just being written, and could by chance be a smaller policy, is not.
#[derive(Debug)]
pub struct Watch {
    file: PathBuf,
    /// What was last taken, or refused.
    known: Seen,
    /// What the last look found, when it was not known.
    found: Option<Seen>,
}

/// A file's content, as far as it matters whether it is the same.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Content([u8; 32]),
    Unreadable(std::io::ErrorKind),
}

/// What a look has found.
#[derive(Debug)]
pub enum Poll {
    /// Nothing to do.
    Unchanged,
    /// Another text: the next look will tell.
    Settling,
    /// A new policy, to be used from now on.
    Changed(Box<Policy>),
    /// A text that is no policy, or no text: told once. The last good policy stays.
    Refused(LoadError),
}

impl Watch {
    /// Follows a file from the text that was read from it at the start.
    pub fn new(file: &Path, text: &str) -> Self {
        Self { file: file.to_owned(), known: Seen::Content(Sha256::digest(text).into()), found: None }
    }

    /// Reads a policy and begins to follow its file.
    ///
    /// # Errors
    /// As [`Policy::load`].
    pub fn load(file: &Path) -> Result<(Policy, Self), LoadError> {
        let text = Policy::read_file(file)?;
        let policy = Policy::parse(&file.display().to_string(), &text)?;
        Ok((policy, Self::new(file, &text)))
    }

    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Looks once, with secrets from this process's environment. Reads the whole file each time: it is small, and
    /// its times can lie.
    pub fn poll(&mut self) -> Poll {
        self.poll_with(&|name| std::env::var(name).ok())
    }

    pub fn poll_with(&mut self, environment: Environment<'_>) -> Poll {
        let (seen, read) = self.look();
        if seen == self.known {
            self.found = None;
            return Poll::Unchanged;
        }
        if self.found.as_ref() != Some(&seen) {
            self.found = Some(seen);
            return Poll::Settling;
        }
        self.taken(seen, read, environment)
    }

    /// Takes the text as it is now, also when it is the known one.
    pub fn read_now(&mut self) -> Poll {
        let (seen, read) = self.look();
        self.taken(seen, read, &|name| std::env::var(name).ok())
    }

    fn look(&self) -> (Seen, std::io::Result<String>) {
        let read = std::fs::read_to_string(&self.file);
        let seen = match &read {
            Ok(text) => Seen::Content(Sha256::digest(text).into()),
            Err(error) => Seen::Unreadable(error.kind()),
        };
        (seen, read)
    }

    fn taken(&mut self, seen: Seen, read: std::io::Result<String>, environment: Environment<'_>) -> Poll {
        self.known = seen;
        self.found = None;
        let file = self.file.display().to_string();
        let parsed = match read {
            Ok(text) => Policy::parse_with(&file, &text, environment).map_err(LoadError::Policy),
            Err(source) => Err(LoadError::Read { file, source }),
        };
        match parsed {
            Ok(policy) => Poll::Changed(Box::new(policy)),
            Err(error) => Poll::Refused(error),
        }
    }
}
