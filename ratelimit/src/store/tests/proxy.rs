use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Stands between a store and its server, and spoils what the test wants spoilt.
#[derive(Clone, Default)]
pub struct Proxy(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// The next answer is thrown away, and its connection closed.
    drop_answer: AtomicBool,
    dropped: AtomicUsize,
    /// Answers given in the server's place to the next commands, which it never sees.
    instead: Mutex<Vec<&'static str>>,
}

impl Proxy {
    /// The URL to connect to in place of the server's.
    pub async fn before(server: &str) -> (Self, String) {
        let proxy = Self::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let server = server.trim_start_matches("redis://").to_owned();
        let accepting = proxy.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&server).await.unwrap();
                tokio::spawn(accepting.clone().carry(client, server));
            }
        });
        (proxy, url)
    }

    pub fn drop_next_answer(&self) {
        self.0.drop_answer.store(true, Ordering::SeqCst);
    }

    pub fn dropped(&self) -> usize {
        self.0.dropped.load(Ordering::SeqCst)
    }

    pub fn answer_instead(&self, answers: &[&'static str]) {
        self.0.instead.lock().unwrap().extend(answers);
    }

    async fn carry(self, mut client: TcpStream, mut server: TcpStream) {
        let (mut asked, mut answered) = (vec![0; 65_536], vec![0; 65_536]);
        loop {
            tokio::select! {
                read = client.read(&mut asked) => {
                    let Ok(length @ 1..) = read else { return };
                    let instead = self.0.instead.lock().unwrap().pop();
                    let carried = match instead {
                        Some(answer) => client.write_all(answer.as_bytes()).await,
                        None => server.write_all(&asked[..length]).await,
                    };
                    if carried.is_err() { return }
                }
                read = server.read(&mut answered) => {
                    let Ok(length @ 1..) = read else { return };
                    if self.0.drop_answer.swap(false, Ordering::SeqCst) {
                        self.0.dropped.fetch_add(1, Ordering::SeqCst);
                        return;
                    }
                    if client.write_all(&answered[..length]).await.is_err() { return }
                }
            }
        }
    }
}
