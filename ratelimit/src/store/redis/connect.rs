use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::io::tcp::TcpSettings;
use redis::{Client, ErrorKind, IntoConnectionInfo, RedisError};

use super::super::StoreError;

/// How long a start waits for Redis.
const START: Duration = Duration::from_secs(3);

/// Why a Redis cannot be used. Says where it is, never with which password.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("the Redis URL cannot be read; write redis://[user:password@]host:port[/database]")]
    Url,
    #[error("TLS to Redis (rediss://) is not supported yet")]
    Tls,
    #[error("Redis at {address} cannot be used: {reason}")]
    Unusable { address: String, reason: String },
}

/// Connects, checks that the server keeps what it is told, and keeps reconnecting later on.
pub async fn connect(url: &str) -> Result<ConnectionManager, ConnectError> {
    if url.starts_with("rediss:") {
        return Err(ConnectError::Tls);
    }
    let settings = TcpSettings::default()
        .set_nodelay(true)
        // A host that has vanished must not look like a slow one for a quarter of an hour.
        .set_user_timeout(Duration::from_secs(5));
    let info = url.into_connection_info().map_err(|_| ConnectError::Url)?.set_tcp_settings(settings);
    let address = info.addr().to_string();
    let unusable = |reason: String| ConnectError::Unusable { address: address.clone(), reason };
    let client = Client::open(info).map_err(|_| ConnectError::Url)?;
    let config = ConnectionManagerConfig::new()
        .set_min_delay(Duration::from_millis(50))
        .set_max_delay(Duration::from_millis(500))
        .set_number_of_retries(2)
        .set_connection_timeout(Some(Duration::from_secs(1)))
        // Every call has its own, shorter deadline.
        .set_response_timeout(Some(Duration::from_secs(10)));
    let start = async {
        let manager = ConnectionManager::new_with_config(client, config).await?;
        let info: String = redis::cmd("INFO").arg("memory").query_async(&mut manager.clone()).await?;
        Ok::<_, RedisError>((manager, info))
    };
    let (manager, info) = tokio::time::timeout(START, start)
        .await
        .map_err(|_| unusable("no answer in time".to_owned()))?
        .map_err(|error| unusable(describe(&error)))?;
    check_memory(&info).map_err(unusable)?;
    Ok(manager)
}

/// The error of a server that answers and cannot be used all the same.
pub fn unusable(url: &str, reason: String) -> ConnectError {
    match url.into_connection_info() {
        Ok(info) => ConnectError::Unusable { address: info.addr().to_string(), reason },
        Err(_) => ConnectError::Url,
    }
}

/// A server that throws counters away when it is full gives free windows.
fn check_memory(info: &str) -> Result<(), String> {
    let value = |name: &str| {
        info.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':')).unwrap_or_default()
    };
    let bounded = !matches!(value("maxmemory"), "" | "0");
    match value("maxmemory_policy") {
        "noeviction" => Ok(()),
        policy if bounded => Err(format!("its maxmemory-policy is {policy}, it must be noeviction")),
        _ => Ok(()),
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
        } else if error.code().is_some() {
            Self::Refused(describe(&error))
        } else if matches!(error.kind(), ErrorKind::Parse | ErrorKind::UnexpectedReturnType) {
            Self::Format
        } else {
            Self::Unreachable(describe(&error))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_server_that_evicts_is_refused() {
        assert!(check_memory("maxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n").is_ok());
        assert!(check_memory("maxmemory:100\r\nmaxmemory_policy:noeviction\r\n").is_ok());
        assert!(check_memory("maxmemory:100\r\nmaxmemory_policy:volatile-ttl\r\n").is_err());
        assert!(check_memory("").is_ok());
    }
}
