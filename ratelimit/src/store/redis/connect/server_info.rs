//! What a server says of itself, and what follows from it. Pure.

/// The answer to INFO, and whether snapshots are configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    /// New with every start of the server.
    pub run_id: String,
    /// The policy by which it throws keys away when its memory is full, when there is a bound and it does.
    pub evicts: Option<String>,
    /// It writes to disk what it is told.
    pub persists: bool,
    pub replicas: u64,
}

impl ServerInfo {
    /// `snapshots`: the value of `save`; absent where the server does not say it, which counts as set.
    pub fn read(info: &str, snapshots: Option<&str>) -> Self {
        let value = |name: &str| {
            info.lines()
                .find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'))
                .unwrap_or_default()
        };
        let bounded = !matches!(value("maxmemory"), "" | "0");
        let policy = value("maxmemory_policy");
        let evicts = bounded && !matches!(policy, "noeviction" | "");
        Self {
            run_id: value("run_id").to_owned(),
            evicts: evicts.then(|| policy.to_owned()),
            persists: value("aof_enabled") == "1" || snapshots != Some(""),
            replicas: value("connected_slaves").parse().unwrap_or(0),
        }
    }

    /// A restart forgets everything.
    pub fn forgets(&self) -> bool {
        !self.persists && self.replicas == 0
    }
}

/// Something an operator has to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// It throws counters away when it is full: free windows.
    Evicts { policy: String },
    /// A restart would forget windows of this length, in milliseconds.
    Forgets { longest_window_ms: u64 },
    /// Another process answers than before.
    Restarted,
    /// What was written before is gone.
    Wiped,
}

/// Windows shorter than this are over before anybody could make use of a restart.
const LONG_WINDOW_MS: u64 = 3_600_000;

/// What is new since the last look. `marked`: the marker that was left behind is still there.
pub fn findings(
    before: Option<&ServerInfo>,
    now: &ServerInfo,
    marked: bool,
    longest_window_ms: u64,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let before_was = |what: fn(&ServerInfo) -> bool| before.is_some_and(what);
    if before.is_some_and(|before| before.run_id != now.run_id) {
        findings.push(Finding::Restarted);
    }
    if before.is_some() && !marked {
        findings.push(Finding::Wiped);
    }
    if let Some(policy) = now.evicts.clone().filter(|_| !before_was(|before| before.evicts.is_some())) {
        findings.push(Finding::Evicts { policy });
    }
    if now.forgets() && longest_window_ms >= LONG_WINDOW_MS && !before_was(ServerInfo::forgets) {
        findings.push(Finding::Forgets { longest_window_ms });
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_a_server_says() {
        let info = "# Server\r\nrun_id:abc\r\n# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n\
            aof_enabled:0\r\nconnected_slaves:2\r\n";
        let expected = ServerInfo { run_id: "abc".to_owned(), evicts: None, persists: false, replicas: 2 };
        assert_eq!(ServerInfo::read(info, Some("")), expected);
        assert!(ServerInfo::read(info, Some("3600 1")).persists);
        assert!(ServerInfo::read(info, None).persists);
        assert!(ServerInfo::read("aof_enabled:1", Some("")).persists);
        let evicts = |policy: &str| {
            ServerInfo::read(&format!("maxmemory:100\r\nmaxmemory_policy:{policy}\r\n"), None).evicts
        };
        assert_eq!(evicts("noeviction"), None);
        assert_eq!(evicts("volatile-ttl").as_deref(), Some("volatile-ttl"));
        assert_eq!(ServerInfo::read("", None).evicts, None);
    }

    #[test]
    fn says_what_is_new_and_only_once() {
        let info = |run_id: &str, persists: bool| ServerInfo {
            run_id: run_id.to_owned(),
            evicts: None,
            persists,
            replicas: 0,
        };
        let (solid, loose) = (info("1", true), info("1", false));
        let day = 86_400_000;
        assert_eq!(findings(None, &solid, false, day), []);
        assert_eq!(findings(None, &loose, true, day), [Finding::Forgets { longest_window_ms: day }]);
        assert_eq!(findings(None, &loose, true, 60_000), []);
        assert_eq!(findings(Some(&loose), &loose, true, day), []);
        assert_eq!(findings(Some(&solid), &info("2", true), true, day), [Finding::Restarted]);
        assert_eq!(
            findings(Some(&loose), &info("2", false), false, day),
            [Finding::Restarted, Finding::Wiped]
        );
        assert_eq!(findings(Some(&solid), &solid, false, day), [Finding::Wiped]);
        let evicting = ServerInfo { evicts: Some("allkeys-lru".to_owned()), ..solid.clone() };
        let finding = Finding::Evicts { policy: "allkeys-lru".to_owned() };
        assert_eq!(findings(Some(&solid), &evicting, true, day), [finding]);
        assert_eq!(findings(Some(&evicting), &evicting, true, day), []);
        let replicated = ServerInfo { replicas: 1, ..loose };
        assert_eq!(findings(None, &replicated, true, day), []);
    }
}
