use redis::aio::ConnectionManager;
use redis::{ErrorKind, FromRedisValue, RedisError, ServerErrorKind};

/// Which time a script decides by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeSource {
    /// The server's own clock.
    Server,
    /// The service's clock, which a test has in its hand. Production has no way to ask for it.
    #[cfg(test)]
    Given,
}

/// A Lua script and its hash.
pub struct Script {
    text: String,
    sha1: String,
}

pub struct Scripts {
    pub reserve: Script,
    pub settle: Script,
    pub explain: Script,
}

impl Scripts {
    pub fn new(time: TimeSource) -> Self {
        let clock = match time {
            TimeSource::Server => include_str!("../lua/clock.lua"),
            #[cfg(test)]
            TimeSource::Given => include_str!("../lua/clock_given.lua"),
        };
        let script = |body: &str| {
            let text = [clock, include_str!("../lua/fixed_window.lua"), body].join("\n");
            let sha1 = redis::Script::new(&text).get_hash().to_owned();
            Script { text, sha1 }
        };
        Self {
            reserve: script(include_str!("../lua/reserve.lua")),
            settle: script(include_str!("../lua/settle.lua")),
            explain: script(include_str!("../lua/explain.lua")),
        }
    }
}

/// Keys and arguments of one call.
#[derive(Default)]
pub struct Call {
    pub keys: Vec<String>,
    pub arguments: Vec<Vec<u8>>,
}

impl Script {
    /// By hash; with the text once when the server does not know it (restart, failover, SCRIPT FLUSH).
    pub async fn run<T: FromRedisValue>(
        &self,
        connection: &ConnectionManager,
        call: &Call,
    ) -> Result<T, RedisError> {
        let mut connection = connection.clone();
        match command("EVALSHA", &self.sha1, call).query_async(&mut connection).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                command("EVAL", &self.text, call).query_async(&mut connection).await
            }
            answer => answer,
        }
    }
}

fn command(name: &str, script: &str, call: &Call) -> redis::Cmd {
    let mut command = redis::cmd(name);
    command.arg(script).arg(call.keys.len());
    for key in &call.keys {
        command.arg(key);
    }
    for argument in &call.arguments {
        command.arg(argument.as_slice());
    }
    command
}
