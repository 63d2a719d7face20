//! Where usage events go.

mod file;
mod http;

#[cfg(test)]
mod tests;

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use tokio::io::AsyncWriteExt;

pub use self::file::FileSink;
pub use self::http::HttpSink;

/// Why events were not taken.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SinkError {
    /// For now: they should come again.
    #[error("{0}")]
    Away(String),
    /// For good.
    #[error("{0}")]
    Refused(String),
}

/// What `--events` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SinkKind {
    None,
    Stdout,
    File(std::path::PathBuf),
    Http(hyper::Uri),
}

impl FromStr for SinkKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => return Ok(Self::None),
            "stdout" => return Ok(Self::Stdout),
            _ => {}
        }
        if let Some(path) = text.strip_prefix("file:").filter(|path| !path.is_empty()) {
            return Ok(Self::File(path.into()));
        }
        match text.parse::<hyper::Uri>() {
            Ok(uri) if matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some() => {
                Ok(Self::Http(uri))
            }
            _ => Err("write none, stdout, file:PATH, http://HOST/PATH or https://HOST/PATH".to_owned()),
        }
    }
}

/// A place that takes events.
#[async_trait]
pub trait Sink: Send {
    /// Takes all lines, or says that they are to come again.
    async fn write(&mut self, lines: &[String]) -> Result<(), SinkError>;
}

/// One line each on standard output.
pub struct StdoutSink;

#[async_trait]
impl Sink for StdoutSink {
    async fn write(&mut self, lines: &[String]) -> Result<(), SinkError> {
        let mut stdout = tokio::io::stdout();
        let written = async {
            stdout.write_all(joined(lines).as_bytes()).await?;
            stdout.flush().await
        };
        written.await.map_err(|error| SinkError::Away(error.to_string()))
    }
}

/// Newline-delimited JSON.
fn joined(lines: &[String]) -> String {
    let mut text = String::with_capacity(lines.iter().map(|line| line.len() + 1).sum());
    for line in lines {
        text.push_str(line);
        text.push('\n');
    }
    text
}

/// Tells a file sink that its file was moved away.
#[derive(Clone, Debug, Default)]
pub struct Reopen(Arc<AtomicBool>);

impl Reopen {
    pub fn ask(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    fn asked(&self) -> bool {
        self.0.swap(false, Ordering::SeqCst)
    }
}
