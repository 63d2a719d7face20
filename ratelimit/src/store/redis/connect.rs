//! The way to a server: TLS or not, with which credentials, and whether it can be trusted with counts.

mod connection;
mod server_info;
mod target;
mod watch;
mod wrong_server;

#[cfg(test)]
mod tests;

use std::time::Duration;

pub use connection::Connection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, ErrorKind, IntoConnectionInfo, RedisError,
    TlsCertificates,
};
pub use server_info::Unfit;
pub use target::{Target, TlsFiles};
pub use watch::{Watch, ask, ask_kind};

use super::super::StoreError;

/// Why a Redis cannot be used. Says where it is, never with which password.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error(
        "the Redis URL cannot be read; write redis://[user:password@]host:port[/database], or rediss:// for TLS"
    )]
    Url,
    #[error("certificates are given and the Redis URL is without TLS; write rediss://")]
    TlsUnused,
    #[error(
        "the certificates for Redis cannot be used; they must be PEM, and the key must be that of the certificate"
    )]
    Certificates,
    #[error("Redis at {address} cannot be used: {reason}")]
    Unusable { address: String, reason: String },
}

/// The way to a server; begins to connect.
pub fn connect(target: &Target) -> Result<Connection, ConnectError> {
    let tls = target.url.starts_with("rediss:");
    if !tls && !target.tls.is_empty() {
        return Err(ConnectError::TlsUnused);
    }
    let settings = TcpSettings::default()
        .set_nodelay(true)
        // A host that has vanished must not look like a slow one for a quarter of an hour.
        .set_user_timeout(Duration::from_secs(5));
    let info =
        target.url.as_str().into_connection_info().map_err(|_| ConnectError::Url)?.set_tcp_settings(settings);
    let client = if tls {
        let TlsFiles { ca, client } = target.tls.clone();
        let client_tls = client.map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key });
        let certificates = TlsCertificates { client_tls, root_cert: ca };
        Client::build_with_tls(info, certificates).map_err(|_| ConnectError::Certificates)?
    } else {
        Client::open(info).map_err(|_| ConnectError::Url)?
    };
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(Duration::from_secs(1)))
        // Every call has its own, shorter deadline.
        .set_response_timeout(Some(Duration::from_secs(10)));
    Ok(Connection::new(client, config))
}

/// The error of a server that answers and cannot be used all the same.
pub fn unusable(target: &Target, reason: String) -> ConnectError {
    match target.url.as_str().into_connection_info() {
        Ok(info) => ConnectError::Unusable { address: info.addr().to_string(), reason },
        Err(_) => ConnectError::Url,
    }
}

/// One short line without addresses or credentials.
fn describe(error: &RedisError) -> String {
    match (error.kind(), error.code()) {
        (ErrorKind::AuthenticationFailed, _) => "it refused the credentials".to_owned(),
        (_, Some(code)) => match error.detail() {
            Some(detail) => format!("{code} {detail}"),
            None => code.to_owned(),
        },
        (_, None) => error.to_string(),
    }
}

impl From<RedisError> for StoreError {
    fn from(error: RedisError) -> Self {
        if error.is_timeout() {
            Self::Timeout
        } else if error.code() == Some("WRONGTYPE") {
            Self::Format
        } else if error.code().is_some() {
            Self::Refused(describe(&error))
        } else if matches!(error.kind(), ErrorKind::Parse | ErrorKind::UnexpectedReturnType) {
            Self::Format
        } else {
            Self::Unreachable(describe(&error))
        }
    }
}
