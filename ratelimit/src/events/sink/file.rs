use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use async_trait::async_trait;

use super::{Reopen, Sink, SinkError, joined};

/// Appends to a file. Whoever rotates it moves it away and asks for it to be opened again.
pub struct FileSink {
    path: PathBuf,
    file: Option<File>,
    reopen: Reopen,
    /// A write ended half way: the next one begins a line of its own.
    torn: bool,
}

impl FileSink {
    /// # Errors
    /// The file cannot be opened for appending.
    pub fn open(path: &Path, reopen: Reopen) -> io::Result<Self> {
        Ok(Self { file: Some(open(path)?), path: path.to_owned(), reopen, torn: false })
    }
}

#[async_trait]
impl Sink for FileSink {
    async fn write(&mut self, lines: &[String]) -> Result<(), SinkError> {
        let away = |error: io::Error, path: &Path| SinkError::Away(format!("{}: {error}", path.display()));
        let file = match self.file.take() {
            Some(file) if !self.reopen.asked() => file,
            _ => open(&self.path).map_err(|error| away(error, &self.path))?,
        };
        let text = joined(lines);
        let text = if self.torn { format!("\n{text}") } else { text };
        // A disk may take its time.
        let written = tokio::task::spawn_blocking(move || {
            let mut file = file;
            let outcome = file.write_all(text.as_bytes());
            (file, outcome)
        });
        let (file, outcome) =
            written.await.map_err(|_| SinkError::Away("the write was stopped".to_owned()))?;
        self.torn = outcome.is_err();
        if outcome.is_ok() {
            self.file = Some(file);
        }
        outcome.map_err(|error| away(error, &self.path))
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}
