//! The way to a server: TLS or not, with which credentials, and whether it can be trusted with counts.

mod server_info;
mod target;
mod watch;

#[cfg(test)]
mod tests;

use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::io::tcp::TcpSettings;
use redis::{Client, ClientTlsConfig, ErrorKind, IntoConnectionInfo, RedisError, TlsCertificates};
pub use target::{Target, TlsFiles};
pub use watch::Watch;

use super::super::StoreError;

/// How long a start waits for Redis.
const START: Duration = Duration::from_secs(3);

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

/// Connects, checks that the server keeps what it is told, and keeps reconnecting later on.
pub async fn connect(target: &Target) -> Result<ConnectionManager, ConnectError> {
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
    let address = info.addr().to_string();
    let unusable = |reason: String| ConnectError::Unusable { address: address.clone(), reason };
    let client = if tls {
        let TlsFiles { ca, client } = target.tls.clone();
        let client_tls = client.map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key });
        let certificates = TlsCertificates { client_tls, root_cert: ca };
        Client::build_with_tls(info, certificates).map_err(|_| ConnectError::Certificates)?
    } else {
        Client::open(info).map_err(|_| ConnectError::Url)?
    };
    let config = ConnectionManagerConfig::new()
        .set_min_delay(Duration::from_millis(50))
        .set_max_delay(Duration::from_millis(500))
        .set_number_of_retries(2)
        .set_connection_timeout(Some(Duration::from_secs(1)))
        // Every call has its own, shorter deadline.
        .set_response_timeout(Some(Duration::from_secs(10)));
    let start = async {
        let mut manager = ConnectionManager::new_with_config(client, config).await?;
        let info = watch::read(&mut manager).await?;
        Ok::<_, RedisError>((manager, info))
    };
    let (manager, info) = tokio::time::timeout(START, start)
        .await
        .map_err(|_| unusable("no answer in time".to_owned()))?
        .map_err(|error| unusable(describe(&error)))?;
    match info.evicts {
        Some(policy) => Err(unusable(format!("its maxmemory-policy is {policy}, it must be noeviction"))),
        None => Ok(manager),
    }
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
