use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A real server on a free port, which ends with the test.
pub struct RedisServer {
    child: Child,
    directory: tempfile::TempDir,
    port: u16,
    pub url: String,
}

impl RedisServer {
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// With words of its command line added.
    pub fn start_with(settings: &[&str]) -> Self {
        // Between choosing a port and using it another process may take it: then another one.
        for _ in 0..5 {
            if let Some(server) = Self::try_start(settings) {
                return server;
            }
        }
        panic!("redis-server did not start on any of five ports");
    }

    fn try_start(settings: &[&str]) -> Option<Self> {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let directory = tempfile::tempdir().unwrap();
        let child = Self::launch(port, directory.path(), settings);
        let mut server = Self { child, directory, port, url: format!("redis://127.0.0.1:{port}") };
        server.answers().then_some(server)
    }

    /// A Sentinel that watches nothing.
    pub fn start_sentinel(file: &Path) -> Self {
        let file = file.to_str().unwrap();
        for _ in 0..5 {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let child = Command::new("redis-server")
                .args([file, "--sentinel", "--port", &port.to_string(), "--bind", "127.0.0.1"])
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            let directory = tempfile::tempdir().unwrap();
            let mut server = Self { child, directory, port, url: format!("redis://127.0.0.1:{port}") };
            if server.answers() {
                return server;
            }
        }
        panic!("a Sentinel did not start on any of five ports");
    }

    fn launch(port: u16, directory: &Path, settings: &[&str]) -> Child {
        Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .args(["--daemonize", "no", "--dir"])
            .arg(directory)
            .args(settings)
            .stdout(Stdio::null())
            .spawn()
            .expect("the tests of the Redis store need `redis-server` in PATH (apt-get install redis-server)")
    }

    /// Whether it answers, as soon as it does; not when its process ends first.
    fn answers(&mut self) -> bool {
        let client = redis::Client::open(self.url.as_str()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while Instant::now() < deadline && self.child.try_wait().unwrap().is_none() {
            let answered = client
                .get_connection_with_timeout(Duration::from_secs(2))
                .and_then(|mut connection| redis::cmd("PING").query::<String>(&mut connection));
            if answered.is_ok() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }

    /// Makes it a replica of another one, or a master again.
    pub fn follow(&self, master: Option<&Self>) {
        match master {
            Some(master) => self.command::<()>(&["REPLICAOF", "127.0.0.1", &master.port.to_string()]),
            None => self.command::<()>(&["REPLICAOF", "NO", "ONE"]),
        }
    }

    /// Closes the connections of everybody but this one.
    pub fn kill_connections(&self) {
        self.command::<()>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    }

    /// Ends the process as an operator does.
    pub fn stop(&mut self) {
        self.signal("TERM");
        self.child.wait().unwrap();
    }

    /// Starts another process at the same address, with what the one before has left on disk.
    pub fn start_again(&mut self, settings: &[&str]) {
        self.child = Self::launch(self.port, self.directory.path(), settings);
        assert!(self.answers(), "redis-server did not start again");
    }

    /// Stops the process where it stands (`STOP`), or lets it go on (`CONT`).
    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &pid]).status().unwrap().success());
    }

    /// Takes the directory away that snapshots are written to.
    pub fn lose_directory(&self) {
        std::fs::remove_dir_all(self.directory.path()).unwrap();
    }

    pub fn command<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let mut connection = redis::Client::open(self.url.as_str()).unwrap().get_connection().unwrap();
        let mut command = redis::cmd(words[0]);
        for word in &words[1..] {
            command.arg(*word);
        }
        command.query(&mut connection).unwrap()
    }

    /// One connection for many commands.
    pub fn connection(&self) -> redis::Connection {
        redis::Client::open(self.url.as_str()).unwrap().get_connection().unwrap()
    }

    /// Every key with its kind, content and end of life.
    pub fn dump(&self) -> String {
        let mut keys: Vec<String> = self.command(&["KEYS", "*"]);
        keys.sort();
        let mut text = String::new();
        for key in keys {
            let kind: String = self.command(&["TYPE", &key]);
            let content: Vec<Vec<u8>> = match kind.as_str() {
                "string" => vec![self.command(&["GET", &key])],
                "hash" => self.command(&["HGETALL", &key]),
                _ => self.command(&["ZRANGE", &key, "0", "-1", "WITHSCORES"]),
            };
            let ends: i64 = self.command(&["PEXPIRETIME", &key]);
            text.push_str(&format!("{key} {kind} {content:?} {ends}\n"));
        }
        text
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
