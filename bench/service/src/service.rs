//! The service as a process of its own, called over HTTP/2 without TLS.

use std::fs;
use std::net::TcpStream as Probe;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use crate::Outcome;
use crate::redis_server::free_port;

pub struct Service {
    child: Child,
    port: u16,
    directory: tempfile::TempDir,
}

impl Service {
    /// `redis`: where it keeps its counts; in its memory when absent.
    pub fn start(binary: &Path, policy: &str, redis: Option<&str>) -> Outcome<Self> {
        let directory = tempfile::tempdir()?;
        let file = |name: &str| directory.path().join(name);
        fs::write(file("policy.yaml"), policy)?;
        let (port, admin) = (free_port()?, free_port()?);
        let mut command = Command::new(binary);
        command.arg("serve").arg("--policy").arg(file("policy.yaml"));
        command.args([
            "--listen",
            &format!("127.0.0.1:{port}"),
            "--admin-listen",
            &format!("127.0.0.1:{admin}"),
        ]);
        match redis {
            Some(url) => command.args(["--store", "redis", "--redis-url", url]),
            None => command.args(["--store", "memory"]),
        };
        let log = fs::File::create(file("log"))?;
        let mut child = command.stdout(Stdio::null()).stderr(log).spawn()?;
        let deadline = Instant::now() + Duration::from_secs(10);
        while Probe::connect(("127.0.0.1", port)).is_err() {
            if child.try_wait()?.is_some() || Instant::now() > deadline {
                let log = fs::read_to_string(file("log"))?;
                return Err(format!("the service did not start: {log}").into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(Self { child, port, directory })
    }

    /// As many connections as an Envoy with as many workers has.
    pub async fn connect(&self, connections: usize) -> Outcome<Http> {
        let mut senders = Vec::new();
        for _ in 0..connections {
            let stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
            stream.set_nodelay(true)?;
            let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
            tokio::spawn(connection);
            senders.push(sender);
        }
        Ok(Http { senders })
    }

    /// CPU time that the process has used, in µs; a clock of 10 ms.
    pub fn cpu_us(&self) -> Outcome<f64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        // The second field is the program's name, which may hold anything.
        let fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
        let ticks = |position| -> Outcome<f64> {
            let field: Option<&str> = fields.split(' ').nth(position);
            Ok(field.ok_or("/proc/PID/stat is short")?.parse()?)
        };
        // User and system time are the 14th and 15th field; USER_HZ is 100 on Linux.
        Ok((ticks(11)? + ticks(12)?) * 10_000.0)
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub struct Http {
    senders: Vec<SendRequest<Full<Bytes>>>,
}

impl Http {
    /// The answer's body; an error for any status but 200.
    pub async fn post(&self, number: usize, path: &'static str, body: Bytes) -> Outcome<Bytes> {
        let request = Request::post(format!("http://tokengate-ratelimit{path}"))
            .header("content-type", "application/json")
            .body(Full::new(body))?;
        let mut sender = self.senders[number % self.senders.len()].clone();
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        if status != 200 {
            return Err(format!("{path} was answered {status}: {}", String::from_utf8_lossy(&body)).into());
        }
        Ok(body)
    }
}
