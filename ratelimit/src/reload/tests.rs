#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]
use super::*;
use crate::clock::SystemClock;
use crate::release_queue::ReleaseQueue;
use crate::store::Lifetimes;
use crate::store::memory::MemoryStore;

fn policy(version: u32, rest: &str) -> String {
    format!(
        r#"
version: "{version}"
models: [{{name: gpt, match: ["gpt*"], max_output_tokens: 500}}]
plans: {{basic: {{models: ["*"]}}}}
keys: [{{sha256: "{:0>64}", tenant: t, plan: basic}}]
{rest}
"#,
        "a"
    )
}

fn limit(every: &str, limit: u32) -> String {
    format!(
        "limits: [{{name: rpm, per: [tenant], count: requests, algorithm: fixed_window, every: {every}, limit: {limit}}}]"
    )
}

struct Running {
    directory: tempfile::TempDir,
    reloader: Reloader,
}

impl Running {
    fn start(text: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("policy.yaml");
        std::fs::write(&file, text).unwrap();
        let store = Arc::new(MemoryStore::new(Arc::new(SystemClock), Lifetimes::default()));
        let (policy, watch) = Watch::load(&file).unwrap();
        let quota = Arc::new(Quota::new(policy, store, ReleaseQueue::default(), Arc::new(SystemClock)));
        Self { reloader: Reloader::new(watch, quota), directory }
    }

    fn write(&self, text: &str) {
        std::fs::write(self.directory.path().join("policy.yaml"), text).unwrap();
    }

    /// What is there, and is there again at the next look, is read.
    fn look_twice(&mut self) -> Look {
        assert_eq!(self.reloader.look(false), Look::Settling);
        self.reloader.look(false)
    }

    fn version(&self) -> String {
        self.reloader.quota.policy().version.split('+').next().unwrap().to_owned()
    }

    fn metric(&self, name: &str) -> bool {
        self.reloader.quota.telemetry().metrics.text().unwrap().contains(name)
    }
}

#[test]
fn a_change_is_loaded_once() {
    let mut running = Running::start(&policy(1, &limit("1m", 5)));
    assert_eq!(running.reloader.look(false), Look::Unchanged);
    running.write(&policy(2, &limit("1m", 6)));
    assert_eq!(running.look_twice(), Look::Loaded);
    assert_eq!(running.version(), "2");
    assert_eq!(running.reloader.look(false), Look::Unchanged);
    assert!(running.metric("policy_reloads_total{outcome=\"loaded\"} 1\n"));
    let version = running.reloader.quota.policy().version.clone();
    assert!(running.metric(&format!("policy_info{{version=\"{version}\"}} 1\n")));
    // Asked for, it is loaded as it is.
    assert_eq!(running.reloader.look(true), Look::Loaded);
}

#[test]
fn a_mistake_changes_nothing_and_is_said_once() {
    let mut running = Running::start(&policy(1, &limit("1m", 5)));
    running.write("version: 2\n");
    let Look::Refused(reason) = running.look_twice() else { panic!() };
    assert!(reason.contains("policy.yaml:1:10: version"), "{reason}");
    assert_eq!(running.reloader.look(false), Look::Unchanged);
    assert_eq!(running.version(), "1");
    assert!(running.metric("policy_reloads_total{outcome=\"refused\"} 1\n"));
    // A file that is gone is a mistake too, and its return is a change.
    std::fs::remove_file(running.directory.path().join("policy.yaml")).unwrap();
    assert!(matches!(running.look_twice(), Look::Refused(_)));
    assert_eq!(running.reloader.look(false), Look::Unchanged);
    running.write(&policy(1, &limit("1m", 5)));
    assert_eq!(running.look_twice(), Look::Loaded);
}

#[test]
fn the_keys_stay_where_they_are() {
    let mut running = Running::start(&policy(1, &limit("1m", 5)));
    running.write(&policy(2, &format!("key_prefix: other\n{}", limit("1m", 5))));
    let Look::Refused(reason) = running.look_twice() else { panic!() };
    assert!(reason.contains("key_prefix"), "{reason}");
    assert_eq!(running.version(), "1");
}
