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
    /// Why nothing can be counted there, whatever it answers to single commands.
    pub unfit: Option<Unfit>,
}

/// A server of a kind that this service cannot count on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    #[error(
        "it is a Sentinel, which keeps no data; give the address of the master itself, or of a proxy in front of it"
    )]
    Sentinel,
    #[error("it is a node of a Redis Cluster, which is not supported; give a server with cluster-enabled no")]
    Cluster,
    #[error("it is a replica, and what is written to one is lost; give the address of its master")]
    Replica,
}

impl Unfit {
    /// In one word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Sentinel => "sentinel",
            Self::Cluster => "cluster",
            Self::Replica => "replica",
        }
    }

    /// By what a server says that does not even let a database be chosen.
    pub fn said(error: &str) -> Option<Self> {
        if error.contains("SELECT is not allowed in cluster mode") {
            Some(Self::Cluster)
        } else if error.contains("unknown command 'SELECT'") || error.contains("unknown command `SELECT`") {
            Some(Self::Sentinel)
        } else {
            None
        }
    }

    fn of(mode: &str, cluster_enabled: bool, role: &str) -> Option<Self> {
        match (mode, role) {
            ("sentinel", _) | (_, "sentinel") => Some(Self::Sentinel),
            ("cluster", _) => Some(Self::Cluster),
            _ if cluster_enabled => Some(Self::Cluster),
            (_, "slave" | "replica") => Some(Self::Replica),
            _ => None,
        }
    }
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
        // Valkey names it after the server, unless it is told to be compatible.
        let mode = Some(value("redis_mode")).filter(|mode| !mode.is_empty()).unwrap_or(value("server_mode"));
        Self {
            run_id: value("run_id").to_owned(),
            evicts: evicts.then(|| policy.to_owned()),
            persists: value("aof_enabled") == "1" || snapshots != Some(""),
            replicas: value("connected_slaves").parse().unwrap_or(0),
            unfit: Unfit::of(mode, value("cluster_enabled") == "1", value("role")),
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
    /// Nothing can be counted there.
    Unfit(Unfit),
    /// By so many milliseconds the server's clock is ahead of ours, which is too much either way.
    ClocksDiffer { ahead_ms: i64 },
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
    // A server of another kind says nothing about what the right one has.
    if let Some(unfit) = now.unfit {
        findings.extend(Some(Finding::Unfit(unfit)).filter(|_| !before_was(|before| before.unfit.is_some())));
        return findings;
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
        let expected =
            ServerInfo { run_id: "abc".to_owned(), evicts: None, persists: false, replicas: 2, unfit: None };
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
    fn knows_the_kinds_that_cannot_be_counted_on() {
        for (info, unfit) in [
            ("redis_mode:standalone\r\nrole:master\r\ncluster_enabled:0\r\n", None),
            ("redis_mode:standalone\r\nrole:slave\r\nmaster_link_status:up\r\n", Some(Unfit::Replica)),
            ("redis_mode:standalone\r\nrole:replica\r\n", Some(Unfit::Replica)),
            ("redis_mode:sentinel\r\n", Some(Unfit::Sentinel)),
            ("redis_mode:cluster\r\nrole:slave\r\ncluster_enabled:1\r\n", Some(Unfit::Cluster)),
            ("role:master\r\ncluster_enabled:1\r\n", Some(Unfit::Cluster)),
            ("server_mode:cluster\r\n", Some(Unfit::Cluster)),
            ("server_mode:sentinel\r\n", Some(Unfit::Sentinel)),
            ("", None),
        ] {
            assert_eq!(ServerInfo::read(info, None).unfit, unfit, "{info}");
        }
    }

    #[test]
    fn says_what_is_new_and_only_once() {
        let info = |run_id: &str, persists: bool| ServerInfo {
            run_id: run_id.to_owned(),
            evicts: None,
            persists,
            replicas: 0,
            unfit: None,
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
        let replica = ServerInfo { unfit: Some(Unfit::Replica), ..info("3", true) };
        let finding = Finding::Unfit(Unfit::Replica);
        assert_eq!(findings(Some(&solid), &replica, false, day), [Finding::Restarted, finding]);
        assert_eq!(findings(Some(&replica), &replica, false, day), []);
        let replicated = ServerInfo { replicas: 1, ..loose };
        assert_eq!(findings(None, &replicated, true, day), []);
    }
}
