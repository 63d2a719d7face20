use std::fmt;

/// Which Redis, and how to trust it.
#[derive(Clone)]
pub struct Target {
    /// `redis://` or, with TLS, `rediss://`; may hold a password.
    pub url: String,
    pub tls: TlsFiles,
}

/// Contents of PEM files.
#[derive(Clone, Default)]
pub struct TlsFiles {
    /// Authorities that may vouch for the server, instead of the machine's.
    pub ca: Option<Vec<u8>>,
    /// Certificate with its chain, and its private key, to show to the server.
    pub client: Option<(Vec<u8>, Vec<u8>)>,
}

impl TlsFiles {
    pub fn is_empty(&self) -> bool {
        self.ca.is_none() && self.client.is_none()
    }
}

impl From<&str> for Target {
    fn from(url: &str) -> Self {
        Self { url: url.to_owned(), tls: TlsFiles::default() }
    }
}

impl From<&String> for Target {
    fn from(url: &String) -> Self {
        Self::from(url.as_str())
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Target(…)")
    }
}
