use std::sync::Arc;

use rustls::RootCertStore;
use tokio::task::JoinHandle;
use tracing::{info, warn};

use super::args::{ServeArgs, StoreKind, size};
use crate::clock::SystemClock;
use crate::events::sink::{FileSink, HttpSink, Reopen, Sink, SinkKind, StdoutSink};
use crate::events::{Events, PseudonymKey, Queue, send};
use crate::metrics::{EventOutcome, Metrics};
use crate::store::Store;

/// Bytes of `--events-key`.
const SHORTEST_KEY: usize = 16;

/// Why usage events cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum EventsError {
    #[error("--events needs --events-key: the secret by which tenants become pseudonyms")]
    KeyMissing,
    #[error(
        "--events-key is too short: {SHORTEST_KEY} bytes at least, or tenants can be guessed from their pseudonyms"
    )]
    KeyShort,
    #[error("--events file:{path}: {source}")]
    File { path: String, source: std::io::Error },
    #[error("--events-token has characters that cannot stand in a header")]
    Token,
}

/// The way of usage events out of the service.
pub struct Outlet {
    pub events: Events,
    queue: Queue,
    pub reopen: Reopen,
    sink: Box<dyn Sink>,
}

impl Outlet {
    /// Starts to send.
    pub fn start(self, store: Arc<dyn Store>, kind: StoreKind) -> Outbox {
        let at_the_end = match kind {
            StoreKind::Memory => EventOutcome::Abandoned,
            StoreKind::Redis => EventOutcome::Left,
        };
        let sender = tokio::spawn(send(self.queue.clone(), self.sink, store));
        Outbox { queue: self.queue, sender, at_the_end }
    }
}

/// Usage events on their way.
pub struct Outbox {
    queue: Queue,
    sender: JoinHandle<()>,
    /// What becomes of those that are still waiting.
    at_the_end: EventOutcome,
}

impl Outbox {
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Gives up what is left.
    pub fn end(&self) {
        self.sender.abort();
        let events = self.queue.abandon(self.at_the_end);
        match self.at_the_end {
            _ if events == 0 => {}
            EventOutcome::Left => {
                info!(events, "usage events are left to the other instances, or to the next one")
            }
            _ => warn!(events, "usage events could not be written before the end, and are lost"),
        }
    }
}

/// Opens the sink; nothing when no events are wanted.
pub fn outlet(args: &ServeArgs, metrics: &Arc<Metrics>) -> Result<Option<Outlet>, EventsError> {
    let reopen = Reopen::default();
    let sink: Box<dyn Sink> = match &args.events {
        SinkKind::None => return Ok(None),
        SinkKind::Stdout => Box::new(StdoutSink),
        SinkKind::File(path) => {
            let file = FileSink::open(path, reopen.clone())
                .map_err(|source| EventsError::File { path: path.display().to_string(), source })?;
            Box::new(file)
        }
        SinkKind::Http(uri) => {
            let token = args.events_token.as_ref().map(|token| token.0.as_str());
            let sink = HttpSink::new(uri.clone(), token, system_tls()).map_err(|_| EventsError::Token)?;
            Box::new(sink)
        }
    };
    let secret = args.events_key.as_ref().map_or("", |secret| secret.0.as_str());
    let key = PseudonymKey::new(secret).ok_or(EventsError::KeyMissing)?;
    if secret.len() < SHORTEST_KEY {
        return Err(EventsError::KeyShort);
    }
    let queue = Queue::new(size(args.events_queue), Arc::clone(metrics));
    let events = Events::new(key, Arc::new(SystemClock), queue.clone());
    Ok(Some(Outlet { events, queue, reopen, sink }))
}

/// Trusts the authorities that this machine trusts.
fn system_tls() -> rustls::ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth()
}
