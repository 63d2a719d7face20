//! A port that is asked for more than it will do.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use tokengate_api::ReservationId;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Semaphore, oneshot};

use super::*;
use crate::store::{
    Amended, Amendment, BucketId, Closed, Explained, Extended, Extension, Hold, Meter, OpenHolds, Reserved,
    Settlement, StoreError, Sweep, Swept, TellSettled, TopUp, ToppedUp,
};
use crate::tag::Tag;

/// A store whose reserves wait until the test lets them go.
struct Gate {
    store: MemoryStore,
    arrived: Semaphore,
    go: Mutex<VecDeque<oneshot::Receiver<()>>>,
}

impl Gate {
    /// Room for as many reserves as there are senders.
    fn new<const N: usize>() -> (Arc<Self>, [oneshot::Sender<()>; N]) {
        let store = MemoryStore::new(Arc::new(SystemClock), Lifetimes::default());
        let gate = Self { store, arrived: Semaphore::new(0), go: Mutex::default() };
        let senders = std::array::from_fn(|_| {
            let (sender, receiver) = oneshot::channel();
            gate.go.lock().unwrap().push_back(receiver);
            sender
        });
        (Arc::new(gate), senders)
    }

    async fn arrived(&self, reserves: u32) {
        self.arrived.acquire_many(reserves).await.unwrap().forget();
    }
}

#[async_trait]
impl Store for Gate {
    async fn reserve(&self, hold: &Hold, within: Duration) -> Result<Reserved, StoreError> {
        let go = self.go.lock().unwrap().pop_front().unwrap();
        self.arrived.add_permits(1);
        go.await.unwrap();
        self.store.reserve(hold, within).await
    }

    async fn settle(
        &self,
        batch: &[Settlement],
        tell: TellSettled<'_>,
        within: Duration,
    ) -> Vec<Result<Closed, StoreError>> {
        self.store.settle(batch, tell, within).await
    }

    async fn delivered(&self, events: &[(Tag, ReservationId)], within: Duration) -> Result<(), StoreError> {
        self.store.delivered(events, within).await
    }

    async fn sweep(&self, sweep: &Sweep<'_>, within: Duration) -> Result<Swept, StoreError> {
        self.store.sweep(sweep, within).await
    }

    async fn explain(
        &self,
        account: Tag,
        model: Tag,
        meters: &[Meter],
        within: Duration,
    ) -> Result<Explained, StoreError> {
        self.store.explain(account, model, meters, within).await
    }

    async fn extend(&self, batch: &[Extension], within: Duration) -> Vec<Result<Extended, StoreError>> {
        self.store.extend(batch, within).await
    }

    async fn top_up(&self, top_up: &TopUp, within: Duration) -> Result<ToppedUp, StoreError> {
        self.store.top_up(top_up, within).await
    }

    async fn reset(&self, account: Tag, bucket: BucketId, within: Duration) -> Result<bool, StoreError> {
        self.store.reset(account, bucket, within).await
    }

    async fn open_holds(&self, account: Tag, most: usize, within: Duration) -> Result<OpenHolds, StoreError> {
        self.store.open_holds(account, most, within).await
    }

    async fn amend(&self, amendment: &Amendment, within: Duration) -> Result<Amended, StoreError> {
        self.store.amend(amendment, within).await
    }

    async fn notes(&self, within: Duration) -> Result<Vec<String>, StoreError> {
        self.store.notes(within).await
    }

    async fn note(&self, name: Tag, text: Option<&str>, within: Duration) -> Result<(), StoreError> {
        self.store.note(name, text, within).await
    }

    async fn ping(&self, within: Duration) -> Result<(), StoreError> {
        self.store.ping(within).await
    }
}

fn gated(gate: Arc<Gate>, bounds: Bounds) -> Setup {
    Setup { store: gate, bounds, ..Setup::default() }
}

fn reserve_text() -> String {
    let body = reserve_body().to_string();
    format!(
        "POST /v1/reserve HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

#[tokio::test]
async fn more_calls_than_places_are_refused_before_their_body() {
    let (gate, [first, second]) = Gate::new();
    let server = start(gated(gate.clone(), Bounds { calls: 2, ..Bounds::default() })).await;
    let api = server.api;
    let call = move || tokio::spawn(async move { post(api, "/v1/reserve", &reserve_body()).await });
    let (one, two) = (call(), call());
    gate.arrived(2).await;
    assert!(server.metrics().contains("tokengate_ratelimit_calls_in_flight 2\n"));

    // Its body never comes, and need not.
    let mut stream = TcpStream::connect(api).await.unwrap();
    stream.write_all(b"POST /v1/settle HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.contains("retry-after: 1\r\n") && answer.contains("\"error\""), "{answer}");
    assert!(server.metrics().contains("tokengate_ratelimit_refused_calls_total{cause=\"calls\"} 1\n"));

    first.send(()).unwrap();
    second.send(()).unwrap();
    for call in [one, two] {
        assert_eq!(call.await.unwrap().1["decision"], "allow");
    }
    // The places are free again.
    assert!(server.metrics().contains("tokengate_ratelimit_calls_in_flight 0\n"));
    assert_eq!(get(api, "/v1/models").await.0, StatusCode::OK);
}

#[tokio::test]
async fn a_caller_who_leaves_frees_its_place() {
    let (gate, [go]) = Gate::new();
    let server = start(gated(gate.clone(), Bounds { calls: 1, ..Bounds::default() })).await;
    let mut stream = TcpStream::connect(server.api).await.unwrap();
    stream.write_all(reserve_text().as_bytes()).await.unwrap();
    gate.arrived(1).await;
    drop(stream);
    crate::store::tests::eventually("the place", || async {
        get(server.api, "/v1/models").await.0 == StatusCode::OK
    })
    .await;
    // The decision itself went on.
    go.send(()).unwrap();
}

#[tokio::test]
async fn a_stop_finishes_what_was_accepted() {
    let (gate, [go]) = Gate::new();
    let server = start(gated(gate.clone(), Bounds::default())).await;
    let api = server.api;
    let call = tokio::spawn(async move { post(api, "/v1/reserve", &reserve_body()).await });
    gate.arrived(1).await;
    let stopped = tokio::spawn(server.stop());
    // No new connection is taken, while the call is still under way.
    crate::store::tests::eventually("the listener", || async { TcpStream::connect(api).await.is_err() })
        .await;
    assert!(!stopped.is_finished() && !call.is_finished());
    go.send(()).unwrap();
    let (status, answer) = call.await.unwrap();
    assert_eq!((status, &answer["decision"]), (StatusCode::OK, &json!("allow")));
    stopped.await.unwrap();
}

/// Time stands still but where nothing else is left to do: then the next timeout comes at once.
#[tokio::test(start_paused = true)]
async fn slow_callers_are_let_go() {
    let server = in_memory().await;
    for (sent, status) in [
        (
            "POST /v1/reserve HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{",
            Some("HTTP/1.1 408"),
        ),
        // It will not be read, so it is not waited for.
        (
            "POST /v1/reserve HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 99999999999\r\n\r\n{",
            Some("HTTP/1.1 413"),
        ),
        (
            "POST /v1/reserve HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-le",
            None,
        ),
        ("", None),
    ] {
        let mut stream = TcpStream::connect(server.api).await.unwrap();
        stream.write_all(sent.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        let answer = String::from_utf8(answer).unwrap();
        match status {
            Some(status) => assert!(answer.starts_with(status), "{answer}"),
            None => assert!(!answer.contains("200"), "{answer}"),
        }
    }
    assert!(server.metrics().contains("tokengate_ratelimit_refused_calls_total{cause=\"slow_body\"} 1\n"));
}

#[tokio::test]
async fn a_connection_too_many_waits() {
    let server =
        start(Setup { bounds: Bounds { connections: 1, ..Bounds::default() }, ..Setup::default() }).await;
    let request = b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\r\n";
    let mut first = TcpStream::connect(server.api).await.unwrap();
    first.write_all(request).await.unwrap();
    let mut answer = [0; 12];
    first.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    let mut second = TcpStream::connect(server.api).await.unwrap();
    second.write_all(request).await.unwrap();
    // The first call of another port comes and goes; the second connection still waits.
    assert_eq!(get(server.admin, "/healthz").await.0, StatusCode::OK);
    assert!(server.metrics().contains("tokengate_ratelimit_connections 1\n"));
    drop(first);
    second.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
}
