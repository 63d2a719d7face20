//! A provider that speaks OpenAI's API, for `make demo`: the answer is always the same story, as long as asked
//! for, and its usage is counted with OpenAI's own vocabularies.

mod chat;
mod count;
mod error;

use std::net::SocketAddr;
use std::process::ExitCode;

use axum::extract::{DefaultBodyLimit, Path, Request};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use clap::Parser;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use error::ApiError;

const MODELS: [&str; 6] = ["gpt-4.1", "gpt-4.1-mini", "gpt-4o", "gpt-4o-mini", "gpt-3.5-turbo", "o4-mini"];
const LARGEST_BODY: usize = 64 << 20;

#[derive(Parser)]
#[command(version, about)]
struct Options {
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1:9000")]
    listen: SocketAddr,
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    let listener = match TcpListener::bind(options.listen).await {
        Ok(listener) => listener,
        Err(error) => {
            eprintln!("cannot listen on {}: {error}", options.listen);
            return ExitCode::FAILURE;
        }
    };
    eprintln!("listening on {}", options.listen);
    match axum::serve(listener, router()).with_graceful_shutdown(stopped()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn router() -> Router {
    Router::new()
        .route("/v1/chat/completions", post(chat::completions))
        .route("/v1/models", get(models))
        .route("/v1/models/{id}", get(model))
        .layer(middleware::from_fn(needs_key))
        .layer(DefaultBodyLimit::max(LARGEST_BODY))
}

/// SIGTERM, or Ctrl-C. Without the signals there is nothing to wait for.
async fn stopped() {
    let terminated = async {
        match signal(SignalKind::terminate()) {
            Ok(mut signal) => _ = signal.recv().await,
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        () = terminated => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}

/// Any bearer key will do; none will not.
async fn needs_key(request: Request, next: Next) -> Response {
    let header = request.headers().get("authorization").and_then(|value| value.to_str().ok());
    match header.and_then(|value| value.strip_prefix("Bearer ")) {
        Some(key) if !key.is_empty() && key != "-" => next.run(request).await,
        _ => ApiError::unauthorized().into_response(),
    }
}

async fn models() -> Json<Value> {
    Json(json!({ "object": "list", "data": MODELS.map(model_object) }))
}

async fn model(Path(id): Path<String>) -> Result<Json<Value>, ApiError> {
    MODELS
        .iter()
        .find(|name| **name == id)
        .map(|name| Json(model_object(name)))
        .ok_or_else(|| ApiError::no_model(&id))
}

fn model_object(name: &str) -> Value {
    json!({ "id": name, "object": "model", "created": 1_700_000_000, "owned_by": "demo" })
}
