use std::future::Future;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing::{info, warn};
use tracing_subscriber::EnvFilter;

use super::{ServeArgs, StoreKind};
use crate::clock::SystemClock;
use crate::http::Token;
use crate::policy::{LoadError, Policy};
use crate::quota::Quota;
use crate::release_queue::ReleaseQueue;
use crate::store::memory::MemoryStore;
use crate::store::redis::{ConnectError, RedisStore};
use crate::store::{Lifetimes, Store};
use crate::{GIT_HASH, VERSION};

/// How long a stopping service waits for calls under way and for releases.
const DRAIN: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub(super) enum ServeError {
    #[error(transparent)]
    Policy(#[from] LoadError),
    #[error("the log filter `{0}` cannot be read")]
    LogFilter(String),
    #[error("cannot listen on {address}: {source}")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error(transparent)]
    Redis(#[from] ConnectError),
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

pub(super) fn serve(args: ServeArgs) -> Result<(), ServeError> {
    let filter =
        EnvFilter::builder().parse(&args.log).map_err(|_| ServeError::LogFilter(args.log.clone()))?;
    let terminal = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(terminal).init();
    let policy = Policy::load(&args.policy)?;
    for warning in policy.warnings() {
        warn!("policy: {warning}");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(run(args, policy));
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome
}

async fn run(args: ServeArgs, policy: Policy) -> Result<(), ServeError> {
    let listener = listen(args.listen).await?;
    let admin_listener = listen(args.admin_listen).await?;
    let store = open_store(&args, &policy).await?;
    let releases = ReleaseQueue::default();
    let token = args.token.as_ref().and_then(|token| Token::new(&token.0));
    let sender = tokio::spawn(releases.clone().run(Arc::clone(&store)));
    info!(
        version = VERSION,
        git_hash = GIT_HASH,
        policy = policy.summary(),
        listen = %listener.local_addr()?,
        admin_listen = %admin_listener.local_addr()?,
        store = ?args.store,
        token = if token.is_some() { "asked for" } else { "none" },
        "ready"
    );

    let quota = Arc::new(Quota::new(policy, store, releases.clone(), Arc::new(SystemClock)));
    let (stop, stopping) = watch::channel(false);
    let api = crate::http::router(Arc::clone(&quota), token);
    let mut api = tokio::spawn(crate::http::serve(listener, api, told(stopping.clone())));
    let admin = crate::admin::router(quota);
    let mut admin = tokio::spawn(crate::http::serve(admin_listener, admin, told(stopping)));

    let signal = stop_signal()?;
    tokio::select! {
        name = signal => info!(signal = name, "stopping"),
        ended = &mut api => return ended.unwrap_or_else(|error| Err(std::io::Error::other(error))).map_err(Into::into),
        ended = &mut admin => return ended.unwrap_or_else(|error| Err(std::io::Error::other(error))).map_err(Into::into),
    }
    let _ = stop.send(true);
    // Connections that stay open are cut: filters send again what was not answered.
    let drained = async {
        let _ = tokio::join!(api, admin);
        while !releases.is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    if tokio::time::timeout(DRAIN, drained).await.is_err() {
        info!("stopped with connections or releases still open");
    }
    sender.abort();
    Ok(())
}

async fn listen(address: SocketAddr) -> Result<TcpListener, ServeError> {
    TcpListener::bind(address).await.map_err(|source| ServeError::Listen { address, source })
}

async fn open_store(args: &ServeArgs, policy: &Policy) -> Result<Arc<dyn Store>, ServeError> {
    let lifetimes = Lifetimes::default();
    match args.store {
        StoreKind::Memory => Ok(Arc::new(MemoryStore::new(Arc::new(SystemClock), lifetimes))),
        StoreKind::Redis => {
            let clock = Arc::new(SystemClock);
            let url = &args.redis_url.0;
            Ok(Arc::new(RedisStore::connect(url, &policy.key_prefix, clock, lifetimes).await?))
        }
    }
}

async fn told(mut stopping: watch::Receiver<bool>) {
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
