//! The settings of `serve`. Each can be a flag, an environment variable or a line of the file that `--config`
//! names; `docs/service.md` has them as a table that a test makes from here.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::host_names::HostNames;
use super::secret::Secret;
use crate::events::sink::SinkKind;
use crate::http::Bounds;

#[derive(Debug, Args)]
pub struct ServeArgs {
    /// A file with settings, YAML: `listen: 0.0.0.0:8090`, one line for each, named like the flags. A flag wins
    /// over the environment, the environment over the file.
    #[arg(long, value_name = "FILE", env = "TOKENGATE_CONFIG", help_heading = "Settings")]
    pub config: Option<PathBuf>,

    /// What to log on stderr: error, warn, info, debug, or a filter as tracing-subscriber reads it.
    #[arg(
        long,
        value_name = "FILTER",
        env = "TOKENGATE_LOG",
        default_value = "info",
        help_heading = "Settings"
    )]
    pub log: String,

    /// The policy, YAML: models, plans, keys and limits. Read again on SIGHUP and when it changes; a policy
    /// with a mistake is reported and changes nothing.
    #[arg(long, value_name = "FILE", env = "TOKENGATE_POLICY", help_heading = "Policy")]
    pub policy: PathBuf,

    /// How often to look whether the policy file has changed, in milliseconds. 0: only on SIGHUP.
    #[arg(
        long,
        value_name = "MS",
        env = "TOKENGATE_POLICY_POLL_MS",
        default_value_t = 5000,
        help_heading = "Policy"
    )]
    pub policy_poll_ms: u64,

    /// Where filters call: HTTP/1.1 or HTTP/2 without TLS. Meant for a private network. Other than on a loopback address
    /// only with --token.
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        env = "TOKENGATE_LISTEN",
        default_value = "127.0.0.1:8090",
        help_heading = "Ports"
    )]
    pub listen: SocketAddr,

    /// Bearer token that filters must bring; best given by the environment. May be left out only when their port is on a
    /// loopback address.
    #[arg(
        long,
        value_name = "TOKEN",
        env = "TOKENGATE_TOKEN",
        hide_env_values = true,
        help_heading = "Ports"
    )]
    pub token: Option<Secret>,

    /// Where operators look and change things by hand: /healthz, /readyz, /metrics, /openapi.json, /v1/explain and
    /// what docs/service.md lists.
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        env = "TOKENGATE_ADMIN_LISTEN",
        default_value = "127.0.0.1:8091",
        help_heading = "Ports"
    )]
    pub admin_listen: SocketAddr,

    /// Bearer token for everything on the admin port but /healthz and /readyz. May be left out only when that
    /// port is on a loopback address.
    #[arg(
        long,
        value_name = "TOKEN",
        env = "TOKENGATE_ADMIN_TOKEN",
        hide_env_values = true,
        help_heading = "Ports"
    )]
    pub admin_token: Option<Secret>,

    /// Names by which ports that ask for no token may be called, beside loopback ones and tokengate-ratelimit, which is
    /// what filters say: host names or addresses, commas in between. Calls by other names get 403, so that no web page
    /// can use a port through a name of its own.
    #[arg(long, value_name = "NAMES", env = "TOKENGATE_ALLOWED_HOSTS", help_heading = "Ports")]
    pub allowed_hosts: Option<HostNames>,

    /// Calls of filters that are answered at the same time. More get 503 with Retry-After, before their body is
    /// read.
    #[arg(
        long,
        value_name = "N",
        env = "TOKENGATE_MAX_CALLS",
        default_value_t = 4096,
        value_parser = at_least_one(),
        help_heading = "Bounds"
    )]
    pub max_calls: u64,

    /// Connections on each port. More wait until another ends.
    #[arg(
        long,
        value_name = "N",
        env = "TOKENGATE_MAX_CONNECTIONS",
        default_value_t = 4096,
        value_parser = at_least_one(),
        help_heading = "Bounds"
    )]
    pub max_connections: u64,

    /// The largest body of a call. A full batch of 256 settles with their reserves has about 200,000 bytes.
    #[arg(
        long,
        value_name = "BYTES",
        env = "TOKENGATE_MAX_BODY_BYTES",
        default_value_t = 1_048_576,
        value_parser = at_least_one(),
        help_heading = "Bounds"
    )]
    pub max_body_bytes: u64,

    /// How long the body of a call may take to arrive, in milliseconds.
    #[arg(
        long,
        value_name = "MS",
        env = "TOKENGATE_BODY_TIMEOUT_MS",
        default_value_t = 5000,
        value_parser = at_least_one(),
        help_heading = "Bounds"
    )]
    pub body_timeout_ms: u64,

    /// HTTP/1.1: how long a connection may be without a request's complete headers, in milliseconds. Idle
    /// connections are closed after it, so it should be longer than the idle timeout of the callers.
    #[arg(
        long,
        value_name = "MS",
        env = "TOKENGATE_HEADER_TIMEOUT_MS",
        default_value_t = 60_000,
        value_parser = at_least_one(),
        help_heading = "Bounds"
    )]
    pub header_timeout_ms: u64,

    /// How long a stopping service waits for calls under way, releases and usage events, in milliseconds.
    #[arg(
        long,
        value_name = "MS",
        env = "TOKENGATE_DRAIN_TIMEOUT_MS",
        default_value_t = 5000,
        help_heading = "Bounds"
    )]
    pub drain_timeout_ms: u64,

    /// Where the counts live. Memory: in this process, lost when it ends.
    #[arg(long, value_enum, env = "TOKENGATE_STORE", default_value = "memory", help_heading = "Store")]
    pub store: StoreKind,

    /// Redis 6.2 or newer: redis://[user:password@]host:port[/database], or rediss:// for TLS.
    #[arg(
        long,
        value_name = "URL",
        env = "TOKENGATE_REDIS_URL",
        hide_env_values = true,
        default_value = "redis://127.0.0.1:6379",
        help_heading = "Store"
    )]
    pub redis_url: Secret,

    /// Certificates (PEM) of the authorities that may vouch for Redis, instead of the system's. With rediss://.
    #[arg(long, value_name = "FILE", env = "TOKENGATE_REDIS_CA", help_heading = "Store")]
    pub redis_ca: Option<PathBuf>,

    /// Certificate (PEM) to show to Redis, with its chain. With rediss://.
    #[arg(long, value_name = "FILE", env = "TOKENGATE_REDIS_CERT", help_heading = "Store")]
    pub redis_cert: Option<PathBuf>,

    /// Private key (PEM) of that certificate.
    #[arg(long, value_name = "FILE", env = "TOKENGATE_REDIS_KEY", help_heading = "Store")]
    pub redis_key: Option<PathBuf>,

    /// How often to look for holds that nobody settled, and for usage events that waited twice as long because an
    /// instance ended before it could deliver them, in milliseconds. One instance at a time does it.
    #[arg(
        long,
        value_name = "MS",
        env = "TOKENGATE_SWEEP_MS",
        default_value_t = 60_000,
        value_parser = at_least_one(),
        help_heading = "Store"
    )]
    pub sweep_ms: u64,

    /// Where to send one JSON line for each settlement: none, stdout, file:PATH (appended; opened again on
    /// SIGHUP), http://HOST/PATH or https://HOST/PATH (posted in batches).
    #[arg(
        long,
        value_name = "SINK",
        env = "TOKENGATE_EVENTS",
        default_value = "none",
        help_heading = "Usage events"
    )]
    pub events: SinkKind,

    /// Secret by which tenants become pseudonyms in usage events, 16 bytes or more. Needed with a sink; keep it,
    /// or the same tenant gets another pseudonym.
    #[arg(
        long,
        value_name = "SECRET",
        env = "TOKENGATE_EVENTS_KEY",
        hide_env_values = true,
        help_heading = "Usage events"
    )]
    pub events_key: Option<Secret>,

    /// Bearer token for an http or https sink.
    #[arg(
        long,
        value_name = "TOKEN",
        env = "TOKENGATE_EVENTS_TOKEN",
        hide_env_values = true,
        help_heading = "Usage events"
    )]
    pub events_token: Option<Secret>,

    /// Usage events that may wait for their sink. Beyond it the oldest are dropped and counted.
    #[arg(
        long,
        value_name = "N",
        env = "TOKENGATE_EVENTS_QUEUE",
        default_value_t = 100_000,
        value_parser = at_least_one(),
        help_heading = "Usage events"
    )]
    pub events_queue: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StoreKind {
    Memory,
    Redis,
}

fn at_least_one() -> clap::builder::RangedU64ValueParser<u64> {
    clap::value_parser!(u64).range(1..)
}

impl ServeArgs {
    pub fn bounds(&self) -> Bounds {
        Bounds {
            calls: size(self.max_calls),
            connections: size(self.max_connections),
            body_bytes: size(self.max_body_bytes),
            body_time: Duration::from_millis(self.body_timeout_ms),
            header_time: Duration::from_millis(self.header_timeout_ms),
        }
    }
}

pub fn size(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
