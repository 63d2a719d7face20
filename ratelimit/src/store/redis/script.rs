use std::sync::OnceLock;

use redis::{ErrorKind, FromRedisValue, RedisError, ServerErrorKind};

use super::connect::Connection;

/// Which time a script decides by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeSource {
    /// The server's own clock.
    Server,
    /// The service's clock, which a test has in its hand. Production has no way to ask for it.
    #[cfg(test)]
    Given,
}

impl TimeSource {
    fn text(self) -> &'static str {
        match self {
            Self::Server => include_str!("../lua/clock.lua"),
            #[cfg(test)]
            Self::Given => include_str!("../lua/clock_given.lua"),
        }
    }
}

/// The kinds of buckets and the files that know them.
const ALGORITHMS: [(u8, &str); 6] = [
    (b'F', include_str!("../lua/fixed_window.lua")),
    (b'C', include_str!("../lua/calendar_window.lua")),
    (b'S', include_str!("../lua/sliding_window.lua")),
    (b'T', include_str!("../lua/token_bucket.lua")),
    (b'N', include_str!("../lua/concurrency.lua")),
    (b'B', include_str!("../lua/balance.lua")),
];
const VARIANTS: usize = 1 << ALGORITHMS.len();

/// Which algorithms a call needs. Redis runs a script from its first line each time, so that one which defines
/// all of them would be slower than the one that is needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds(usize);

impl Kinds {
    pub const BALANCE: Self = Self(1 << 5);

    pub fn add(&mut self, kind: u8) {
        if let Some(position) = ALGORITHMS.iter().position(|(letter, _)| *letter == kind) {
            self.0 |= 1 << position;
        }
    }
}

const DECIDES: &str = "local corrects = false";
const CORRECTS: &str = "local corrects = true";

/// One decision as a Lua script, in as many variants as are asked for.
pub struct Script {
    time: TimeSource,
    /// What the algorithms have to know before they are defined.
    purpose: &'static str,
    body: &'static [&'static str],
    variants: [OnceLock<Text>; VARIANTS],
    #[cfg(test)]
    mutation: Option<super::Mutation>,
}

struct Text {
    text: String,
    sha1: String,
}

pub struct Scripts {
    pub reserve: Script,
    pub settle: Script,
    pub extend: Script,
    pub explain: Script,
    pub top_up: Script,
    pub lapse: Script,
    pub forget_note: Script,
    pub self_test: Script,
    pub ready: Script,
    pub time: Script,
}

impl Scripts {
    pub fn new(time: TimeSource) -> Self {
        let script = |body| Script {
            time,
            purpose: DECIDES,
            body,
            variants: [const { OnceLock::new() }; VARIANTS],
            #[cfg(test)]
            mutation: None,
        };
        const HELD: &str = include_str!("../lua/held.lua");
        const CHARGING: &str = include_str!("../lua/charging.lua");
        Self {
            reserve: script(&[HELD, CHARGING, include_str!("../lua/reserve.lua")]),
            settle: Script { purpose: CORRECTS, ..script(&[include_str!("../lua/settle.lua")]) },
            extend: script(&[HELD, CHARGING, include_str!("../lua/extend.lua")]),
            explain: script(&[HELD, include_str!("../lua/explain.lua")]),
            top_up: script(&[include_str!("../lua/top_up.lua")]),
            lapse: script(&[include_str!("../lua/lapse.lua")]),
            forget_note: script(&[include_str!("../lua/forget_note.lua")]),
            self_test: script(&[include_str!("../lua/self_test.lua")]),
            ready: script(&[include_str!("../lua/ready.lua")]),
            time: script(&[include_str!("../lua/time.lua")]),
        }
    }

    /// Puts a mistake into every script in which the text to be replaced stands.
    #[cfg(test)]
    pub fn mutate(&mut self, mutation: super::Mutation) {
        for script in [&mut self.reserve, &mut self.settle, &mut self.extend, &mut self.explain] {
            script.mutation = Some(mutation);
        }
    }
}

/// Keys and arguments of one call.
#[derive(Default)]
pub struct Call {
    pub kinds: Kinds,
    pub keys: Vec<String>,
    pub arguments: Vec<Vec<u8>>,
}

impl Script {
    fn text(&self, kinds: Kinds) -> Option<&Text> {
        let build = || {
            let needed = ALGORITHMS.iter().enumerate().filter(|(position, _)| kinds.0 & (1 << position) != 0);
            let mut parts = vec![self.time.text(), self.purpose, include_str!("../lua/common.lua")];
            parts.extend(needed.map(|(_, (_, text))| *text));
            parts.extend(self.body);
            let text = parts.join("\n");
            #[cfg(test)]
            let text = match self.mutation {
                Some(mutation) => mutation.apply(text),
                None => text,
            };
            let sha1 = redis::Script::new(&text).get_hash().to_owned();
            Text { text, sha1 }
        };
        self.variants.get(kinds.0).map(|variant| variant.get_or_init(build))
    }

    /// By hash; with the text once when the server does not know it (restart, failover, SCRIPT FLUSH).
    pub async fn run<T: FromRedisValue>(
        &self,
        connection: &Connection,
        call: &Call,
    ) -> Result<T, RedisError> {
        let mut connection = connection.clone();
        let Some(Text { text, sha1 }) = self.text(call.kinds) else {
            return Err((ErrorKind::Client, "no script for these kinds of limits").into());
        };
        match command("EVALSHA", sha1, call).query_async(&mut connection).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                command("EVAL", text, call).query_async(&mut connection).await
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
