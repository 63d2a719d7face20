use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Stands between a store and its server, and spoils what the test wants spoilt.
#[derive(Clone, Default)]
pub struct Proxy(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// Where new connections lead.
    server: Mutex<String>,
    /// So many answers are thrown away, and their connections closed.
    drop_answers: AtomicUsize,
    dropped: AtomicUsize,
    /// So many connections are closed as soon as they are there.
    refuse: AtomicUsize,
    accepted: AtomicUsize,
    /// Answers given in the server's place to the next scripts, which it never sees.
    instead: Mutex<Vec<&'static str>>,
}

/// One less, if there are any.
fn take_one(counter: &AtomicUsize) -> bool {
    counter.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
}

impl Proxy {
    /// The URL to connect to in place of the server's.
    pub async fn before(server: &str) -> (Self, String) {
        let proxy = Self::default();
        proxy.turn_to(server);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let accepting = proxy.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                accepting.0.accepted.fetch_add(1, Ordering::SeqCst);
                if take_one(&accepting.0.refuse) {
                    continue;
                }
                let address = accepting.0.server.lock().unwrap().clone();
                if let Ok(server) = TcpStream::connect(address).await {
                    tokio::spawn(accepting.clone().carry(client, server));
                }
            }
        });
        (proxy, url)
    }

    /// From now on new connections lead there; those that are open stay where they are.
    pub fn turn_to(&self, server: &str) {
        *self.0.server.lock().unwrap() = server.trim_start_matches("redis://").to_owned();
    }

    pub fn drop_next_answer(&self) {
        self.drop_answers(1);
    }

    pub fn drop_answers(&self, number: usize) {
        self.0.drop_answers.store(number, Ordering::SeqCst);
    }

    pub fn dropped(&self) -> usize {
        self.0.dropped.load(Ordering::SeqCst)
    }

    pub fn refuse(&self, connections: usize) {
        self.0.refuse.store(connections, Ordering::SeqCst);
    }

    /// Connections that came, refused ones too.
    pub fn accepted(&self) -> usize {
        self.0.accepted.load(Ordering::SeqCst)
    }

    /// The last one comes first.
    pub fn answer_instead(&self, answers: &[&'static str]) {
        self.0.instead.lock().unwrap().extend(answers);
    }

    fn instead_of(&self, asked: &[u8]) -> Option<&'static str> {
        let runs_a_script = asked.windows(7).any(|word| word == b"EVALSHA");
        if runs_a_script { self.0.instead.lock().unwrap().pop() } else { None }
    }

    async fn carry(self, mut client: TcpStream, mut server: TcpStream) {
        let (mut asked, mut answered) = (vec![0; 65_536], vec![0; 65_536]);
        loop {
            tokio::select! {
                read = client.read(&mut asked) => {
                    let Ok(length @ 1..) = read else { return };
                    let carried = match self.instead_of(&asked[..length]) {
                        Some(answer) => client.write_all(answer.as_bytes()).await,
                        None => server.write_all(&asked[..length]).await,
                    };
                    if carried.is_err() { return }
                }
                read = server.read(&mut answered) => {
                    let Ok(length @ 1..) = read else { return };
                    if take_one(&self.0.drop_answers) {
                        self.0.dropped.fetch_add(1, Ordering::SeqCst);
                        return;
                    }
                    if client.write_all(&answered[..length]).await.is_err() { return }
                }
            }
        }
    }
}
