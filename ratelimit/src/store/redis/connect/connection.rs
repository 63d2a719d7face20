//! The one connection that all calls share, and the next one when it is of no use any more.
//!
//! The client library's own manager does not fit a quota: it gives up every call whose connection breaks, it keeps
//! the error of a handshake for ever, and it stays with a master that was demoted.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, Pipeline, RedisFuture, RedisResult, ServerError, Value,
};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::wrong_server::is_wrong_server;
use crate::quiet::Quiet;

/// A connection that lived for so long is replaced at once.
const CALM: Duration = Duration::from_secs(2);
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

static WRONG: Quiet = Quiet::new();

/// Cheap to clone. Every command that the service sends may be repeated without harm: scripts know their ids, and the
/// others set or remove. So one whose connection broke, or that met the wrong server, is sent once more over the next
/// connection; whoever calls bounds the time.
#[derive(Clone)]
pub struct Connection(Arc<Inner>);

struct Inner {
    client: Client,
    config: AsyncConnectionConfig,
    current: ArcSwap<Attempt>,
}

type Ready = Shared<BoxFuture<'static, RedisResult<MultiplexedConnection>>>;

/// One connection, from the moment it is asked for.
struct Attempt {
    ready: Ready,
    since: Instant,
    pause: Duration,
}

/// What makes an [`Attempt`] ready: runs in a task of its own, because a handshake may take longer than each of its
/// callers waits.
type Connecting = BoxFuture<'static, ()>;

impl Attempt {
    /// Resolves the server's name and connects, after a pause.
    fn new(client: &Client, config: &AsyncConnectionConfig, pause: Duration) -> (Self, Connecting) {
        let (client, config) = (client.clone(), config.clone());
        let (done, ready) = oneshot::channel();
        let connecting = async move {
            tokio::time::sleep(pause).await;
            // Nobody waits any more where it fails.
            let _ = done.send(client.get_multiplexed_async_connection_with_config(&config).await);
        };
        let ready = async move {
            ready.await.unwrap_or_else(|_| Err((ErrorKind::Io, "the service stops connecting").into()))
        };
        let attempt = Self { ready: ready.boxed().shared(), since: Instant::now(), pause };
        (attempt, connecting.boxed())
    }

    /// How long the one after it waits: not at all, unless replacing does not help.
    fn pause_after(&self) -> Duration {
        if self.since.elapsed() >= CALM {
            Duration::ZERO
        } else {
            self.pause.saturating_mul(2).clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
        }
    }
}

impl Connection {
    /// Begins to connect.
    pub fn new(client: Client, config: AsyncConnectionConfig) -> Self {
        let (first, connecting) = Attempt::new(&client, &config, Duration::ZERO);
        tokio::spawn(connecting);
        Self(Arc::new(Inner { client, config, current: ArcSwap::from_pointee(first) }))
    }

    /// Leaves the server that is talked to: the name is resolved anew. Calls under way keep their answers.
    pub fn renew(&self) {
        self.replace(&self.0.current.load_full());
    }

    /// The connection after this one; only the first who asks makes it.
    fn replace(&self, last: &Arc<Attempt>) -> Arc<Attempt> {
        let (next, connecting) = Attempt::new(&self.0.client, &self.0.config, last.pause_after());
        let next = Arc::new(next);
        let found = self.0.current.compare_and_swap(last, Arc::clone(&next));
        if !Arc::ptr_eq(&found, last) {
            return Arc::clone(&found);
        }
        tokio::spawn(connecting);
        next
    }

    async fn send<T, F>(
        &self,
        command: impl Fn(MultiplexedConnection) -> F,
        refusal: impl Fn(&T) -> Option<&ServerError>,
    ) -> RedisResult<T>
    where
        F: Future<Output = RedisResult<T>>,
    {
        let mut attempt = self.0.current.load_full();
        let mut last = false;
        loop {
            let connection = attempt.ready.clone().await;
            let refused = connection.is_err();
            let answer = match connection {
                Ok(connection) => command(connection).await,
                Err(error) => Err(error),
            };
            match &answer {
                Err(error) if refused || error.code().is_none() => {
                    debug!(%error, "connecting to Redis again")
                }
                Err(error) => match error.code() {
                    Some(code) if is_wrong_server(code, error.detail()) => tell(code),
                    _ => return answer,
                },
                Ok(value) => match refusal(value) {
                    Some(error) => tell(error.code()),
                    None => return answer,
                },
            }
            attempt = self.replace(&attempt);
            if std::mem::replace(&mut last, true) {
                return answer;
            }
        }
    }
}

fn tell(code: &str) {
    if let Some(unsaid) = WRONG.say() {
        warn!(code, unsaid, "Redis answers like the wrong server: its address is resolved anew");
    }
}

/// The answer of a server that is the wrong one.
fn wrong(value: &Value) -> Option<&ServerError> {
    match value {
        Value::ServerError(error) => {
            Some(error).filter(|error| is_wrong_server(error.code(), error.details()))
        }
        _ => None,
    }
}

impl ConnectionLike for Connection {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        let send = move |mut connection: MultiplexedConnection| async move {
            connection.send_packed_command(command).await
        };
        self.send(send, wrong).boxed()
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        let send = move |mut connection: MultiplexedConnection| async move {
            connection.send_packed_commands(pipeline, offset, count).await
        };
        self.send(send, |values: &Vec<Value>| values.iter().find_map(wrong)).boxed()
    }

    fn get_db(&self) -> i64 {
        self.0.client.get_connection_info().redis_settings().db()
    }
}
