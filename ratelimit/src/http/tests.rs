//! The real router on a real socket.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use axum::body::Bytes;
use axum::http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::clock::SystemClock;
use crate::policy::Policy;
use crate::release_queue::ReleaseQueue;
use crate::store::memory::MemoryStore;
use crate::store::redis::RedisStore;
use crate::store::tests::redis_server::RedisServer;
use crate::store::{Lifetimes, Store};

const KEY: &str = "000000000000000000000000000000000000000000000000000000000000000a";
const ID: &str = "0123456789abcdef0123456789abcdef";

fn policy() -> Policy {
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

struct Server {
    api: SocketAddr,
    admin: SocketAddr,
}

async fn start(store: Arc<dyn Store>, token: Option<&str>) -> Server {
    let releases = ReleaseQueue::default();
    tokio::spawn(releases.clone().run(store.clone()));
    let quota = Arc::new(Quota::new(policy(), store, releases, Arc::new(SystemClock)));
    let api = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let admin = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = Server { api: api.local_addr().unwrap(), admin: admin.local_addr().unwrap() };
    let token = token.and_then(Token::new);
    tokio::spawn(serve(api, router(quota.clone(), token), std::future::pending()));
    tokio::spawn(serve(admin, crate::admin::router(quota), std::future::pending()));
    server
}

async fn in_memory() -> Server {
    start(Arc::new(MemoryStore::new(Arc::new(SystemClock), Lifetimes::default())), None).await
}

async fn send(to: SocketAddr, http2: bool, request: Request<Full<Bytes>>) -> (StatusCode, Value) {
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

fn request(method: Method, path: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    let uri = format!("http://quota{path}");
    let builder = Request::builder().method(method).uri(uri).header("host", "quota");
    builder.body(Full::new(body.into())).unwrap()
}

async fn post(to: SocketAddr, path: &str, body: &Value) -> (StatusCode, Value) {
    send(to, false, request(Method::POST, path, body.to_string())).await
}

async fn get(to: SocketAddr, path: &str) -> (StatusCode, Value) {
    send(to, false, request(Method::GET, path, "")).await
}

fn reserve_body() -> Value {
    json!({
        "id": ID, "deadline_ms": 1000, "key_hash": KEY, "model": "gpt-x", "dialect": "openai",
        "endpoint": "chat.completions", "prompt_tokens": 10, "max_output_tokens": 20, "choices": 2
    })
}

fn with(mut body: Value, field: &str, value: Value) -> Value {
    body[field] = value;
    body
}

#[tokio::test]
async fn the_whole_way_over_both_protocols() {
    for http2 in [false, true] {
        let server = in_memory().await;
        let send =
            |method, path, body: Value| send(server.api, http2, request(method, path, body.to_string()));
        let (status, models) = send(Method::GET, "/v1/models", Value::Null).await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(models["models"][0]["name"], "gpt");
        assert_eq!(models["models"][0]["match"][0], "gpt*");

        let (status, held) = send(Method::POST, "/v1/reserve", reserve_body()).await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(held["decision"], "allow");
        assert_eq!(held["policy_version"], models["policy_version"]);
        assert_eq!(held["limits"][1]["remaining"], 50);
        let (_, again) = send(Method::POST, "/v1/reserve", with(reserve_body(), "new_field", json!(1))).await;
        assert_eq!((&again["decision"], &again["account"]), (&held["decision"], &held["account"]));

        let items = json!([
            {"id": ID, "account": held["account"], "outcome": "used", "sent": true,
             "usage": {"input": 10, "output": 3, "reasoning": 2, "cache_read": 1}, "age_ms": 5, "queued_ms": 0},
            {"id": "f".repeat(32), "account": held["account"], "outcome": "released", "sent": false,
             "age_ms": 5, "queued_ms": 0},
        ]);
        let (status, settled) = send(Method::POST, "/v1/settle", items).await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(settled["results"][0], json!({"id": ID, "status": "settled"}));
        assert_eq!(settled["results"][1]["status"], "unknown");
        let (_, gone) = send(Method::POST, "/v1/reserve", reserve_body()).await;
        assert_eq!(gone["decision"], "gone");

        let (status, explained) = get(server.admin, "/v1/explain?tenant=t&model=gpt").await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(explained["limits"][0]["used"], 1);
        assert_eq!(explained["limits"][1]["used"], 16);
        assert_eq!(explained["open_holds"], 0);
        assert_eq!(explained["version"], crate::VERSION);
    }
}

#[tokio::test]
async fn refusals_are_answers() {
    let server = in_memory().await;
    for (field, value, reason) in [
        ("key_hash", json!("b".repeat(64)), "unknown_key"),
        ("model", json!("claude"), "model_not_found"),
        ("max_output_tokens", json!(500), "request_exceeds_limit"),
    ] {
        let (status, answer) = post(server.api, "/v1/reserve", &with(reserve_body(), field, value)).await;
        assert_eq!((status, &answer["decision"]), (StatusCode::OK, &json!("deny")));
        assert_eq!(answer["reason"], reason);
        assert_eq!(answer["policy_version"].as_str().unwrap().split('+').next(), Some("7"));
    }
    // An endpoint without a model.
    let mut listed = reserve_body();
    for field in ["model", "max_output_tokens"] {
        listed.as_object_mut().unwrap().remove(field);
    }
    let (_, answer) = post(server.api, "/v1/reserve", &with(listed, "prompt_tokens", json!(0))).await;
    assert_eq!(answer["decision"], "allow");
    assert_eq!(answer["limits"].as_array().unwrap().len(), 1);
    assert_eq!(answer["limits"][0]["scope"]["model"], "-");
}

#[tokio::test]
async fn bad_input_names_the_field_and_never_its_content() {
    let server = in_memory().await;
    let secret = "sk, expected: sk-secret";
    for (field, value) in [
        ("id", json!(secret)),
        ("id", json!("A".repeat(32))),
        ("attempt", json!(3)),
        ("attempt", json!(0)),
        ("attempt", json!(256)),
        ("deadline_ms", json!(-1)),
        ("deadline_ms", Value::Null),
        ("key_hash", json!(secret)),
        ("key_hash", json!({"a": secret})),
        ("model", json!([secret])),
        ("prompt_tokens", json!(1.5)),
        ("prompt_tokens", json!(secret)),
        ("max_output_tokens", json!(secret)),
        ("max_output_tokens", json!(-5)),
        ("choices", json!(0)),
        ("choices", json!(1_u64 << 32)),
        ("stream", json!(secret)),
        ("model", Value::Null),
    ] {
        let (status, answer) =
            post(server.api, "/v1/reserve", &with(reserve_body(), field, value.clone())).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{field} {value}");
        assert_eq!(answer["error"]["field"], field, "{value}");
        assert!(!answer.to_string().contains("secret"), "{answer}");
    }
    let item = json!({"id": ID, "outcome": "used", "sent": true, "age_ms": 0, "queued_ms": 0,
        "usage": {"input": 1}, "reserve": reserve_body()});
    for (field, value, named) in [
        ("outcome", json!(secret), "[0].outcome"),
        ("usage", Value::Null, "[0].usage"),
        ("usage", json!({"input": -1}), "[0].usage.input"),
        ("reserve", with(reserve_body(), "id", json!("f".repeat(32))), "[0].reserve.id"),
        ("reserve", with(reserve_body(), "key_hash", json!(secret)), "[0].reserve.key_hash"),
        ("sent", json!(1), "[0].sent"),
    ] {
        let (status, answer) =
            post(server.api, "/v1/settle", &json!([with(item.clone(), field, value)])).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{field}");
        assert_eq!(answer["error"]["field"], named);
        assert!(!answer.to_string().contains("secret"), "{answer}");
    }
    let many = Value::Array(vec![item; 257]);
    assert_eq!(post(server.api, "/v1/settle", &many).await.0, StatusCode::BAD_REQUEST);
    for body in ["", "{", "[]", "nul", "{}x", "\"\\ud800\"", "[[[[[[[["] {
        let (status, answer) =
            send(server.api, false, request(Method::POST, "/v1/reserve", body.as_bytes().to_vec())).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body}");
        assert!(answer["error"]["message"].is_string());
    }
    let deep = "[".repeat(500_000);
    let (status, _) = send(server.api, true, request(Method::POST, "/v1/settle", deep)).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn other_calls_are_refused_in_json() {
    let server = in_memory().await;
    for (method, path, body, status) in [
        (Method::GET, "/v1/other", 0, StatusCode::NOT_FOUND),
        (Method::GET, "/v1/reserve", 0, StatusCode::METHOD_NOT_ALLOWED),
        (Method::POST, "/v1/models", 0, StatusCode::METHOD_NOT_ALLOWED),
        (Method::POST, "/v1/reserve", MAX_BODY_BYTES + 1, StatusCode::PAYLOAD_TOO_LARGE),
        (Method::GET, "/v1/explain?tenant=t", 0, StatusCode::NOT_FOUND),
    ] {
        for http2 in [false, true] {
            let request = request(method.clone(), path, vec![b' '; body]);
            let (answered, answer) = send(server.api, http2, request).await;
            assert_eq!(answered, status, "{method} {path}");
            assert!(answer["error"]["message"].is_string(), "{answer}");
        }
    }
    for (path, status) in [
        ("/healthz", StatusCode::OK),
        ("/readyz", StatusCode::OK),
        ("/v1/version", StatusCode::OK),
        ("/v1/explain", StatusCode::BAD_REQUEST),
        ("/v1/explain?tenant=nobody", StatusCode::NOT_FOUND),
        ("/v1/explain?tenant=t&tenant=u", StatusCode::BAD_REQUEST),
        ("/v1/models", StatusCode::NOT_FOUND),
    ] {
        assert_eq!(get(server.admin, path).await.0, status, "{path}");
    }
}

#[tokio::test]
async fn a_token_is_asked_for_when_there_is_one() {
    let store = Arc::new(MemoryStore::new(Arc::new(SystemClock), Lifetimes::default()));
    let server = start(store, Some("s3cret")).await;
    for (values, status) in [
        (vec!["Bearer s3cret"], StatusCode::OK),
        (vec![], StatusCode::UNAUTHORIZED),
        (vec!["s3cret"], StatusCode::UNAUTHORIZED),
        (vec!["Bearer s3cre"], StatusCode::UNAUTHORIZED),
        (vec!["Bearer s3cret "], StatusCode::OK), // White space at the end is no part of a header's value.
        (vec!["Bearer s3cret", "Bearer s3cret"], StatusCode::UNAUTHORIZED),
    ] {
        let mut request = request(Method::GET, "/v1/models", "");
        for value in &values {
            request.headers_mut().append("authorization", value.parse().unwrap());
        }
        assert_eq!(send(server.api, false, request).await.0, status, "{values:?}");
    }
    assert!(!format!("{:?}", Token::new("s3cret")).contains("s3cret"));
    assert!(Token::new("").is_none());
}

/// A Redis that does not answer: refused within the filter's deadline, settles are to come again, and the
/// hold that is made when it wakes up is closed.
#[tokio::test]
async fn a_redis_that_hangs() {
    let redis = RedisServer::start();
    let store =
        RedisStore::connect(&redis.url, "t", Arc::new(SystemClock), Lifetimes::default()).await.unwrap();
    let server = start(Arc::new(store), None).await;
    let body = with(reserve_body(), "deadline_ms", json!(100));
    let (_, held) = post(server.api, "/v1/reserve", &with(body.clone(), "id", json!("f".repeat(32)))).await;
    assert_eq!(held["decision"], "allow");

    redis.signal("STOP");
    let begin = Instant::now();
    let (status, refused) = post(server.api, "/v1/reserve", &body).await;
    // 80 ms and whatever a busy machine adds.
    assert!(begin.elapsed().as_millis() < 2_000, "{:?}", begin.elapsed());
    assert_eq!((status, &refused["reason"]), (StatusCode::OK, &json!("quota_unavailable")));
    let settle = json!([{"id": "f".repeat(32), "account": held["account"], "outcome": "used", "sent": true,
        "usage": {"output": 3}, "age_ms": 5, "queued_ms": 0}]);
    assert_eq!(post(server.api, "/v1/settle", &settle).await.0, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(get(server.admin, "/readyz").await.0, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(get(server.admin, "/healthz").await.0, StatusCode::OK);

    redis.signal("CONT");
    crate::store::tests::eventually("the settle", || async {
        post(server.api, "/v1/settle", &settle).await.0 == StatusCode::OK
    })
    .await;
    crate::store::tests::eventually("the release", || async {
        let (_, explained) = get(server.admin, "/v1/explain?tenant=t&model=gpt").await;
        explained["open_holds"] == 0
            && explained["limits"][0]["used"] == 1
            && explained["limits"][1]["used"] == 3
    })
    .await;
    // The id stays closed.
    let (_, gone) = post(server.api, "/v1/reserve", &with(body, "deadline_ms", json!(5_000))).await;
    assert_eq!(gone["decision"], "gone");
}

/// The connection breaks and comes back on its own.
#[tokio::test]
async fn a_redis_that_restarts() {
    let redis = RedisServer::start();
    let store =
        RedisStore::connect(&redis.url, "t", Arc::new(SystemClock), Lifetimes::default()).await.unwrap();
    let server = start(Arc::new(store), None).await;
    assert_eq!(post(server.api, "/v1/reserve", &reserve_body()).await.1["decision"], "allow");
    redis.command::<()>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    redis.command::<()>(&["SCRIPT", "FLUSH"]);
    // A new request each time: one that failed is closed by its release.
    let calls = AtomicU32::new(0);
    crate::store::tests::eventually("the connection", || async {
        let id = format!("{:032x}", calls.fetch_add(1, Ordering::SeqCst));
        let body = with(with(reserve_body(), "id", json!(id)), "max_output_tokens", json!(1));
        post(server.api, "/v1/reserve", &body).await.1["decision"] == "allow"
    })
    .await;
}
