use std::future::Future;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tracing::{info, warn};
use tracing_subscriber::EnvFilter;

use super::args::{ServeArgs, StoreKind};
use super::events::{EventsError, Outbox, outlet};
use super::secret::Secret;
use crate::clock::SystemClock;
use crate::http::{Hosts, Token};
use crate::metrics::{Metrics, TimedStore};
use crate::policy::{self, LoadError, Policy};
use crate::quota::{self, Quota};
use crate::release_queue::ReleaseQueue;
use crate::reload::{self, Reloader};
use crate::store::memory::MemoryStore;
use crate::store::redis::{ConnectError, RedisStore, Target, TlsFiles, Watch};
use crate::store::{Lifetimes, Store};
use crate::telemetry::Telemetry;
use crate::{GIT_HASH, VERSION};

#[derive(Debug, thiserror::Error)]
pub(super) enum ServeError {
    #[error(transparent)]
    Policy(#[from] LoadError),
    #[error("the log filter `{0}` cannot be read")]
    LogFilter(String),
    #[error(
        "--admin-listen {0} can be reached from elsewhere and there is no --admin-token: set one, or listen on 127.0.0.1"
    )]
    OpenAdmin(SocketAddr),
    #[error(
        "--listen {0} can be reached from elsewhere and there is no --token: set one, and let the filters bring it (quota.token_env), or listen on 127.0.0.1"
    )]
    OpenFilters(SocketAddr),
    #[error("cannot listen on {address}: {source}")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error("--redis-cert and --redis-key belong together: one of them is missing")]
    HalfCertificate,
    #[error("{file}: {source}")]
    Certificate { file: String, source: std::io::Error },
    #[error(transparent)]
    Redis(#[from] ConnectError),
    #[error(transparent)]
    Events(#[from] EventsError),
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

pub(super) fn serve(args: ServeArgs) -> Result<(), ServeError> {
    let filter =
        EnvFilter::builder().parse(&args.log).map_err(|_| ServeError::LogFilter(args.log.clone()))?;
    let terminal = std::io::stderr().is_terminal();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(terminal)
        // A full disk or a reader that has died must not end the service; it would be told where nothing can be.
        .log_internal_errors(false)
        .init();
    if !args.admin_listen.ip().is_loopback() && token(args.admin_token.as_ref()).is_none() {
        return Err(ServeError::OpenAdmin(args.admin_listen));
    }
    if !args.listen.ip().is_loopback() && token(args.token.as_ref()).is_none() {
        return Err(ServeError::OpenFilters(args.listen));
    }
    let (policy, watch) = policy::Watch::load(&args.policy)?;
    for warning in policy.warnings() {
        warn!("policy: {warning}");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(run(args, policy, watch));
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome
}

async fn run(args: ServeArgs, policy: Policy, policy_file: policy::Watch) -> Result<(), ServeError> {
    // Before anybody can be told that it runs: from here on a signal is no accident.
    let (stop_signal, hangups) = (stop_signal()?, signal(SignalKind::hangup())?);
    let listener = listen(args.listen).await?;
    let admin_listener = listen(args.admin_listen).await?;
    let metrics = Arc::new(Metrics::default());
    metrics.policy(&policy.version);
    let outlet = outlet(&args, &metrics)?;
    let (store, watch) = open_store(&args, &policy, &metrics).await?;
    let telemetry = Telemetry {
        metrics: Arc::clone(&metrics),
        events: outlet.as_ref().map(|outlet| outlet.events.clone()),
    };
    let reopen = outlet.as_ref().map(|outlet| outlet.reopen.clone());
    let outbox = outlet.map(|outlet| outlet.start(Arc::clone(&store), args.store));
    let releases = ReleaseQueue::default();
    let sender = tokio::spawn(releases.clone().run(Arc::clone(&store)));
    let (filters, operators) = (token(args.token.as_ref()), token(args.admin_token.as_ref()));
    let asked = |token: &Option<Token>| if token.is_some() { "asked for" } else { "none" };
    info!(
        version = VERSION,
        git_hash = GIT_HASH,
        policy = policy.summary(),
        listen = %listener.local_addr()?,
        admin_listen = %admin_listener.local_addr()?,
        store = ?args.store,
        token = asked(&filters),
        admin_token = asked(&operators),
        "ready"
    );

    let quota = Arc::new(
        Quota::new(policy, store, releases.clone(), Arc::new(SystemClock)).with_telemetry(telemetry),
    );
    if let Err(error) = quota.refresh_overrides().await {
        warn!(%error, "the overrides could not be read yet: tenants have what the policy says");
    }
    tokio::spawn(crate::overrides::follow(Arc::clone(&quota)));
    tokio::spawn(quota::sweep::follow(Arc::clone(&quota), Duration::from_millis(args.sweep_ms)));
    if let Some(watch) = watch {
        let quota = Arc::clone(&quota);
        tokio::spawn(watch.run(Arc::clone(&metrics), move || longest_window_ms(&quota.policy())));
    }
    let (stop, stopping) = tokio::sync::watch::channel(false);
    let hosts = |token: &Option<Token>| match token {
        Some(_) => Hosts::any(),
        None => Hosts::loopback_and(args.allowed_hosts.as_ref().map_or(&[], |names| names.0.as_slice())),
    };
    let (filters_hosts, operators_hosts) = (hosts(&filters), hosts(&operators));
    let bounds = args.bounds();
    let api = crate::http::router(Arc::clone(&quota), filters, filters_hosts, &bounds);
    let connections = metrics.connections().clone();
    let mut api =
        tokio::spawn(crate::http::serve(listener, api, bounds, connections, told(stopping.clone())));
    let admin = crate::admin::router(Arc::clone(&quota), operators, operators_hosts);
    let mut admin =
        tokio::spawn(crate::http::serve(admin_listener, admin, bounds, Default::default(), told(stopping)));

    let pause = (args.policy_poll_ms > 0).then(|| Duration::from_millis(args.policy_poll_ms));
    let reloader = Reloader::new(policy_file, quota);
    let follower = tokio::spawn(reload::follow(reloader, pause, hangups, reopen));

    tokio::select! {
        name = stop_signal => info!(signal = name, "stopping"),
        ended = &mut api => return Err(ended_early(ended)),
        ended = &mut admin => return Err(ended_early(ended)),
    }
    let _ = stop.send(true);
    drain(Duration::from_millis(args.drain_timeout_ms), api, admin, &releases, outbox.as_ref()).await;
    follower.abort();
    sender.abort();
    Ok(())
}

/// Waits for what was accepted. Connections that stay open are cut: filters send again what was not answered.
async fn drain(
    time: Duration,
    api: JoinHandle<()>,
    admin: JoinHandle<()>,
    releases: &ReleaseQueue,
    outbox: Option<&Outbox>,
) {
    let drained = async {
        let _ = tokio::join!(api, admin);
        while !releases.is_empty() || outbox.is_some_and(|outbox| !outbox.is_empty()) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    if tokio::time::timeout(time, drained).await.is_err() {
        info!("stopped with connections, releases or usage events left");
    }
    if let Some(outbox) = outbox {
        outbox.end();
    }
}

fn ended_early(ended: Result<(), tokio::task::JoinError>) -> ServeError {
    ServeError::Io(std::io::Error::other(match ended {
        Ok(()) => "a port was closed".to_owned(),
        Err(error) => error.to_string(),
    }))
}

fn token(secret: Option<&Secret>) -> Option<Token> {
    secret.and_then(|secret| Token::new(&secret.0))
}

async fn listen(address: SocketAddr) -> Result<TcpListener, ServeError> {
    TcpListener::bind(address).await.map_err(|source| ServeError::Listen { address, source })
}

async fn open_store(
    args: &ServeArgs,
    policy: &Policy,
    metrics: &Arc<Metrics>,
) -> Result<(Arc<dyn Store>, Option<Watch>), ServeError> {
    let mut watch = None;
    let lifetimes = Lifetimes::default();
    let clock = Arc::new(SystemClock);
    let store: Arc<dyn Store> = match args.store {
        StoreKind::Memory => Arc::new(MemoryStore::new(clock, lifetimes)),
        StoreKind::Redis => {
            let target = Target { url: args.redis_url.0.clone(), tls: tls_files(args)? };
            let store = RedisStore::connect(target, &policy.key_prefix, clock, lifetimes).await?;
            watch = Some(store.watch());
            Arc::new(store)
        }
    };
    Ok((Arc::new(TimedStore::new(store, Arc::clone(metrics))), watch))
}

/// A store that forgets is worst for these.
fn longest_window_ms(policy: &Policy) -> u64 {
    policy.limits.iter().filter_map(|limit| limit.shape.window_ms()).max().unwrap_or(0)
}

fn tls_files(args: &ServeArgs) -> Result<TlsFiles, ServeError> {
    let read = |file: &std::path::PathBuf| {
        std::fs::read(file)
            .map_err(|source| ServeError::Certificate { file: file.display().to_string(), source })
    };
    let client = match (&args.redis_cert, &args.redis_key) {
        (None, None) => None,
        (Some(certificate), Some(key)) => Some((read(certificate)?, read(key)?)),
        _ => return Err(ServeError::HalfCertificate),
    };
    Ok(TlsFiles { ca: args.redis_ca.as_ref().map(read).transpose()?, client })
}

async fn told(mut stopping: tokio::sync::watch::Receiver<bool>) {
    // An error means that the sender is gone: then everything stops.
    let _ = stopping.wait_for(|stop| *stop).await;
}

/// Resolves to the name of the signal that ends the service.
fn stop_signal() -> std::io::Result<impl Future<Output = &'static str>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        }
    })
}
