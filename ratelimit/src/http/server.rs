use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::response::Response;
use axum::serve::Listener;
use hyper::Request;
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use prometheus_client::metrics::gauge::Gauge;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tracing::debug;

use super::Bounds;
use super::overload::Counted;

/// Finds HTTP/2 peers that are gone without a word.
const PING_EVERY: Duration = Duration::from_secs(30);

/// Serves until `stop`, then finishes what was accepted. Answers go out at once, not when a segment is full.
///
/// More connections than `bounds` has room for wait in the kernel until another ends.
pub async fn serve(
    mut listener: TcpListener,
    router: Router,
    bounds: Bounds,
    connections: Gauge,
    stop: impl Future<Output = ()> + Send + 'static,
) {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(bounds.header_time);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(PING_EVERY);
    let places = Arc::new(Semaphore::new(bounds.connections.min(Semaphore::MAX_PERMITS)));
    let graceful = GracefulShutdown::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        let accepted = async {
            let place = Arc::clone(&places).acquire_owned().await.ok();
            (place, Listener::accept(&mut listener).await)
        };
        let (place, (stream, _)) = tokio::select! {
            accepted = accepted => accepted,
            () = &mut stop => break,
        };
        // Only speed is lost where this fails.
        let _ = stream.set_nodelay(true);
        let asked = Arc::new(AtomicBool::new(false));
        let service = service(router.clone(), Arc::clone(&asked));
        let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
        let connection = graceful.watch(connection);
        let counted = Counted::new(&connections);
        tokio::spawn(async move {
            tokio::select! {
                ended = connection => {
                    if let Err(error) = ended {
                        debug!(%error, "a connection ended early");
                    }
                }
                () = silent(&asked, bounds.header_time) => debug!("a connection asked for nothing"),
            }
            drop((place, counted));
        });
    }
    drop(listener);
    graceful.shutdown().await;
}

/// The router, noting that a request came.
fn service(
    router: Router,
    asked: Arc<AtomicBool>,
) -> impl Service<Request<Incoming>, Response = Response, Error = Infallible, Future: Send> {
    let inner = TowerToHyperService::new(router);
    service_fn(move |request| {
        asked.store(true, Ordering::Relaxed);
        inner.call(request)
    })
}

/// Ends when no request came for so long. Until the first one it is not known which protocol is spoken, and
/// no timeout of a protocol runs.
async fn silent(asked: &AtomicBool, time: Duration) {
    tokio::time::sleep(time).await;
    if asked.load(Ordering::Relaxed) {
        std::future::pending::<()>().await;
    }
}
