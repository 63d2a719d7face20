//! A Redis of our own, and what it says about itself.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;

use crate::Outcome;

pub struct RedisServer {
    child: Child,
    port: u16,
    _directory: tempfile::TempDir,
}

pub fn free_port() -> Outcome<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

impl RedisServer {
    /// Without persistence, so that nothing but the scripts is measured.
    pub fn start() -> Outcome<Self> {
        let port = free_port()?;
        let directory = tempfile::tempdir()?;
        let mut child = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .arg("--dir")
            .arg(directory.path())
            .stdout(Stdio::null())
            .spawn()?;
        let deadline = Instant::now() + Duration::from_secs(10);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if child.try_wait()?.is_some() || Instant::now() > deadline {
                return Err("redis-server did not start".into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(Self { child, port, _directory: directory })
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub async fn connect(&self) -> Outcome<MultiplexedConnection> {
        Ok(redis::Client::open(self.url())?.get_multiplexed_async_connection().await?)
    }

    /// Sees every command of every connection from now on.
    pub fn monitor(&self) -> Outcome<Monitor> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"MONITOR\r\n")?;
        let mut lines = BufReader::new(stream);
        lines.read_line(&mut String::new())?;
        Ok(Monitor { lines })
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub struct Monitor {
    lines: BufReader<TcpStream>,
}

impl Monitor {
    /// All `EVALSHA` up to now, as words. `redis` is used to find the end.
    pub async fn evalshas(mut self, redis: &mut MultiplexedConnection) -> Outcome<Vec<Vec<Vec<u8>>>> {
        const END: &str = "end-of-recording";
        redis::cmd("ECHO").arg(END).query_async::<()>(redis).await?;
        let mut found = Vec::new();
        loop {
            let mut line = String::new();
            self.lines.read_line(&mut line)?;
            // Time and client, then the words in quotes. What scripts do has `lua` for a client.
            let (head, words) = line.split_once("] ").ok_or("MONITOR says what is not understood")?;
            let words = unquoted(words.trim_end())?;
            match words.first().map(Vec::as_slice) {
                Some(b"ECHO") if words.get(1).is_some_and(|word| word == END.as_bytes()) => return Ok(found),
                Some(b"EVALSHA") if !head.ends_with("lua") => found.push(words),
                _ => {}
            }
        }
    }
}

/// Words as MONITOR writes them: in double quotes, with C's escapes.
fn unquoted(text: &str) -> Outcome<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match (&mut word, byte) {
            (None, b'"') => word = Some(Vec::new()),
            (None, _) => {}
            (Some(_), b'"') => words.extend(word.take()),
            (Some(word), b'\\') => word.push(match bytes.next() {
                Some(b'n') => b'\n',
                Some(b'r') => b'\r',
                Some(b't') => b'\t',
                Some(b'a') => 7,
                Some(b'b') => 8,
                Some(b'x') => {
                    let digits = [bytes.next().unwrap_or(0), bytes.next().unwrap_or(0)];
                    u8::from_str_radix(std::str::from_utf8(&digits)?, 16)?
                }
                Some(byte) => byte,
                None => return Err("MONITOR's line ends in an escape".into()),
            }),
            (Some(word), byte) => word.push(byte),
        }
    }
    Ok(words)
}

/// A number of INFO.
async fn info(redis: &mut MultiplexedConnection, section: &str, fields: &[&str]) -> Outcome<f64> {
    let text: String = redis::cmd("INFO").arg(section).query_async(redis).await?;
    let mut sum = 0.0;
    for field in fields {
        let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        sum += value.ok_or("INFO lacks a field")?.trim().parse::<f64>()?;
    }
    Ok(sum)
}

/// CPU time that the server has used, in µs.
pub async fn cpu_us(redis: &mut MultiplexedConnection) -> Outcome<f64> {
    Ok(info(redis, "cpu", &["used_cpu_user", "used_cpu_sys"]).await? * 1e6)
}

/// Bytes that the server has allocated, but for what its connections take.
pub async fn used_memory(redis: &mut MultiplexedConnection) -> Outcome<f64> {
    let clients = info(redis, "memory", &["mem_clients_normal"]).await?;
    Ok(info(redis, "memory", &["used_memory"]).await? - clients)
}

pub async fn flush(redis: &mut MultiplexedConnection) -> Outcome<()> {
    Ok(redis::cmd("FLUSHALL").arg("SYNC").query_async(redis).await?)
}

pub async fn version(redis: &mut MultiplexedConnection) -> Outcome<String> {
    let text: String = redis::cmd("INFO").arg("server").query_async(redis).await?;
    let version = text.lines().find_map(|line| line.strip_prefix("redis_version:"));
    Ok(version.unwrap_or("?").trim().to_owned())
}
