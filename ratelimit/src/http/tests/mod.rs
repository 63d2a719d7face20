//! The real router on a real socket.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod bad_input;
mod bounds;
mod calls;
mod extends;
mod identify;
mod operators;
mod redis;
mod tokens;

use std::net::SocketAddr;

use axum::body::Bytes;
use axum::http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};

pub use super::*;
use crate::clock::SystemClock;
use crate::policy::Policy;
use crate::release_queue::ReleaseQueue;
use crate::store::memory::MemoryStore;
use crate::store::redis::RedisStore;
use crate::store::tests::redis_server::RedisServer;
use crate::store::{Lifetimes, Store};
use crate::telemetry::Telemetry;

pub const KEY: &str = "000000000000000000000000000000000000000000000000000000000000000a";
pub const ID: &str = "0123456789abcdef0123456789abcdef";

pub fn policy() -> Policy {
    let text = format!(
        r#"
version: "7"
models: [{{name: gpt, match: ["gpt*"], max_output_tokens: 500}}]
plans: {{basic: {{models: ["*"]}}}}
keys: [{{sha256: "{KEY}", tenant: t, plan: basic}}]
limits:
  - {{name: rpd, per: [tenant, model], count: requests, algorithm: fixed_window, every: 366d, limit: 5}}
  - {{name: tpd, per: [tenant, model], count: tokens, algorithm: fixed_window, every: 366d, limit: 100}}
"#
    );
    Policy::parse("p", &text).unwrap()
}

pub struct Server {
    pub api: SocketAddr,
    pub admin: SocketAddr,
    pub quota: Arc<Quota>,
    stop: tokio::sync::oneshot::Sender<()>,
    serving: tokio::task::JoinHandle<()>,
}

impl Server {
    /// Told to stop: no new connections, what was accepted is finished.
    pub async fn stop(self) {
        self.stop.send(()).unwrap();
        self.serving.await.unwrap();
    }

    pub fn metrics(&self) -> String {
        self.quota.telemetry().metrics.text().unwrap()
    }
}

/// What a test server is made of.
pub struct Setup {
    pub policy: Policy,
    pub store: Arc<dyn Store>,
    pub bounds: Bounds,
    pub token: Option<&'static str>,
    pub admin_token: Option<&'static str>,
    pub telemetry: Telemetry,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            policy: policy(),
            store: Arc::new(MemoryStore::new(Arc::new(SystemClock), Lifetimes::default())),
            bounds: Bounds::default(),
            token: None,
            admin_token: None,
            telemetry: Telemetry::default(),
        }
    }
}

pub async fn start(setup: Setup) -> Server {
    let releases = ReleaseQueue::default();
    tokio::spawn(releases.clone().run(setup.store.clone()));
    let quota = Quota::new(setup.policy, setup.store, releases, Arc::new(SystemClock))
        .with_telemetry(setup.telemetry);
    let quota = Arc::new(quota);
    let api = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let admin = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (api_address, admin_address) = (api.local_addr().unwrap(), admin.local_addr().unwrap());
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let routes = router(quota.clone(), setup.token.and_then(Token::new), &setup.bounds);
    let connections = quota.telemetry().metrics.connections().clone();
    let serving = serve(api, routes, setup.bounds, connections, async move {
        // An end of the test stops it too.
        let _ = stopped.await;
    });
    let serving = tokio::spawn(serving);
    let routes = crate::admin::router(quota.clone(), setup.admin_token.and_then(Token::new));
    tokio::spawn(serve(admin, routes, Bounds::default(), Default::default(), std::future::pending()));
    Server { api: api_address, admin: admin_address, quota, stop, serving }
}

pub async fn in_memory() -> Server {
    start(Setup::default()).await
}

pub async fn on_redis(redis: &RedisServer) -> Server {
    on_redis_with(redis, policy()).await
}

pub async fn on_redis_with(redis: &RedisServer, policy: Policy) -> Server {
    let store = RedisStore::connect(&redis.url, "t", Arc::new(SystemClock), Lifetimes::default()).await;
    start(Setup { policy, store: Arc::new(store.unwrap()), ..Setup::default() }).await
}

pub async fn send(to: SocketAddr, http2: bool, request: Request<Full<Bytes>>) -> (StatusCode, Value) {
    let stream = TokioIo::new(TcpStream::connect(to).await.unwrap());
    let response = if http2 {
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
        tokio::spawn(connection);
        sender.send_request(request).await.unwrap()
    } else {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        sender.send_request(request).await.unwrap()
    };
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
}

pub fn request(method: Method, path: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    let uri = format!("http://quota{path}");
    let builder = Request::builder().method(method).uri(uri).header("host", "quota");
    builder.body(Full::new(body.into())).unwrap()
}

pub async fn post(to: SocketAddr, path: &str, body: &Value) -> (StatusCode, Value) {
    send(to, false, request(Method::POST, path, body.to_string())).await
}

pub async fn get(to: SocketAddr, path: &str) -> (StatusCode, Value) {
    send(to, false, request(Method::GET, path, "")).await
}

pub fn reserve_body() -> Value {
    json!({
        "id": ID, "deadline_ms": 1000, "key_hash": KEY, "model": "gpt-x", "dialect": "openai",
        "endpoint": "chat.completions", "prompt_tokens": 10, "max_output_tokens": 20, "choices": 2
    })
}

pub fn with(mut body: Value, field: &str, value: Value) -> Value {
    body[field] = value;
    body
}
