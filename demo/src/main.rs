//! `tokengate-demo-upstream`: what `make demo` puts behind the gateway, so that trying it out needs no account
//! with a provider. It speaks the OpenAI API, says the same words whatever it is asked, and counts their
//! tokens as OpenAI does. Nothing of tokengate may enter here: the gateway has to work with any provider.

mod answer;
mod chat;
mod count;
mod error;
mod models;
mod request;
mod server;

use std::net::SocketAddr;
use std::process::ExitCode;

use axum::serve::ListenerExt;
use clap::Parser;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// A demo provider that speaks the OpenAI API.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    /// Where to listen, plain HTTP.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9000")]
    listen: SocketAddr,
}

#[tokio::main]
async fn main() -> ExitCode {
    match serve(Cli::parse().listen).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("tokengate-demo-upstream: {message}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(address: SocketAddr) -> Result<(), String> {
    // Before anything is said to be ready: from then on a signal must stop us in order.
    let stop = stopped().map_err(|error| format!("cannot wait for signals: {error}"))?;
    let listener =
        TcpListener::bind(address).await.map_err(|error| format!("cannot listen on {address}: {error}"))?;
    eprintln!("tokengate-demo-upstream: ready on {address}");
    // Each event of a stream is a small write that should leave at once; failing that, it is only slower.
    let listener = listener.tap_io(|connection| {
        let _ = connection.set_nodelay(true);
    });
    axum::serve(listener, server::router())
        .with_graceful_shutdown(stop)
        .await
        .map_err(|error| format!("cannot go on: {error}"))
}

/// Ends at the first SIGINT or SIGTERM.
fn stopped() -> std::io::Result<impl Future<Output = ()>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}
