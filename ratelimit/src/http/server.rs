use std::future::Future;

use axum::Router;
use tokio::net::TcpListener;

/// Serves until `stop`, then finishes what was accepted. Answers go out at once, not when a segment is full.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    use axum::serve::ListenerExt;
    let listener = listener.tap_io(|stream| {
        // Only speed is lost where this fails.
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, router).with_graceful_shutdown(stop).await
}
