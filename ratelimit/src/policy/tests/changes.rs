//! A policy that takes another's place.
use super::limits::one_limit;
use super::*;

const LIMIT: &str =
    "per: [tenant], count: tokens, algorithm: fixed_window, every: 1m, limit: {a: 100, b: 200}";

fn changes(old: &str, new: &str) -> Vec<String> {
    let parse = |text: &str| Policy::parse("p", text).unwrap();
    Policy::compare(&parse(old), &parse(new)).iter().map(ToString::to_string).collect()
}

#[test]
fn nothing_is_said_of_what_stays() {
    let policy = one_limit(LIMIT);
    assert_eq!(changes(&policy, &policy), [""; 0]);
    assert_eq!(changes(&policy, &format!("{policy}# a remark\n")), [""; 0]);
}

#[test]
fn every_change_has_a_line() {
    let old = one_limit(LIMIT);
    for (from, to, line) in [
        ("b: 200", "b: 300", "limit `l` for the plan `b`: 200 tokens becomes 300 tokens"),
        ("b: 200", "b: unlimited", "limit `l` for the plan `b`: 200 tokens becomes unlimited"),
        (
            "every: 1m",
            "every: 1h",
            "limit `l` starts again from nothing: tokens per tenant, fixed_window every 1m becomes tokens per tenant, \
             fixed_window every 1h",
        ),
        (
            "count: tokens",
            "count: tokens, weights: {output: 4}",
            "limit `l` starts again from nothing: tokens per tenant, fixed_window every 1m becomes weighted tokens per \
             tenant, fixed_window every 1m",
        ),
        ("b: 200}", "b: 200}, mode: shadow", "limit `l`: mode enforce becomes shadow"),
        ("b: 200}", "b: 200}, on_store_failure: open", "limit `l`: on_store_failure closed becomes open"),
        ("match: [m]", "match: [m, extra]", "model `m` is described otherwise"),
        ("\"8.00\"", "\"9.00\"", "model `m` has another price: open requests keep the old one"),
        ("version: \"1\"", "version: \"1\"\nunknown_model: {as: m}", "unknown_model: `deny` becomes `m`"),
        ("tenant: u", "tenant: v", "keys: 0 new, 0 gone, 1 changed"),
        ("00b\"", "00c\"", "keys: 1 new, 1 gone, 0 changed"),
        (
            "version: \"1\"",
            "version: \"1\"\nkey_prefix: x",
            "key_prefix: `tg1` becomes `x`, once the service is started again",
        ),
        (
            "a: {models: [\"*\"]}",
            "a: {models: [\"*\"], output: {when_tight: clamp}}",
            "plan `a`: when_tight deny becomes clamp to 1 tokens at least",
        ),
        (
            "version: \"1\"",
            "version: \"1\"\ntenants:\n  t: {limits: {l: 7}}",
            "limit `l` for the tenant `t`: its plan's becomes 7 tokens",
        ),
    ] {
        let new = old.replacen(from, to, 1);
        assert_ne!(old, new, "{from}");
        assert_eq!(changes(&old, &new), [line]);
    }
    let second = "  - {name: second, per: [tenant], algorithm: concurrency, lease: 1m, limit: 5}\n";
    let both = format!("{old}{second}");
    assert_eq!(changes(&old, &both), ["limit `second` is new"]);
    assert_eq!(changes(&both, &old), ["limit `second` is gone"]);
    assert_eq!(
        changes(&both, &both.replace("lease: 1m", "lease: 2m")),
        ["limit `second`: concurrency, lease 1m becomes concurrency, lease 2m"]
    );
}

#[test]
fn models_and_plans_come_and_go() {
    let old = one_limit(LIMIT);
    let new = old
        .replace("plans:\n", "  - {name: extra, match: [extra]}\nplans:\n  c: {models: [extra]}\n")
        .replace("a: {models: [\"*\"]}", "a: {models: [extra]}")
        .replace("b: {models: [\"*\"]}", "b: {models: [m]}")
        .replace("limits:\n", "  - {sha256: \"000000000000000000000000000000000000000000000000000000000000000c\", tenant: w, plan: c}\nlimits:\n")
        .replace("b: 200}", "b: 200, c: 300}");
    assert_eq!(
        changes(&old, &new),
        [
            "model `extra` is new",
            "plan `a` may not use `m` any more",
            "plan `a` may use `extra`",
            "plan `c` is new",
            "keys: 1 new, 0 gone, 0 changed",
            "limit `l` for the plan `c`: unlimited becomes 300 tokens",
        ]
    );
}

/// A file and its watch.
struct Watched {
    directory: tempfile::TempDir,
    watch: Watch,
}

impl Watched {
    fn new(text: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("policy.yaml");
        std::fs::write(&file, text).unwrap();
        let (policy, watch) = Watch::load(&file).unwrap();
        assert_eq!(policy.limits.len(), 1);
        Self { directory, watch }
    }

    fn write(&self, text: &str) {
        std::fs::write(self.watch.file(), text).unwrap();
    }

    fn poll(&mut self) -> String {
        match self.watch.poll() {
            Poll::Unchanged => "unchanged".to_owned(),
            Poll::Settling => "settling".to_owned(),
            Poll::Changed(policy) => format!("changed {}", policy.version.split('+').next().unwrap()),
            Poll::Refused(error) => {
                error.to_string().replace(&format!("{}/", self.directory.path().display()), "")
            }
        }
    }
}

fn version(version: &str) -> String {
    one_limit(LIMIT).replace("version: \"1\"", &format!("version: \"{version}\""))
}

#[test]
fn a_file_that_stays_is_unchanged() {
    let mut watched = Watched::new(&version("1"));
    assert_eq!(watched.poll(), "unchanged");
    // Written anew, the same text.
    watched.write(&version("1"));
    assert_eq!(watched.poll(), "unchanged");
}

#[test]
fn a_new_text_is_taken_when_it_stays() {
    let mut watched = Watched::new(&version("1"));
    watched.write(&version("2"));
    assert_eq!([watched.poll(), watched.poll(), watched.poll()], ["settling", "changed 2", "unchanged"]);
    // Still being written: a text that was seen once only is never taken.
    watched.write(&version("3"));
    assert_eq!(watched.poll(), "settling");
    watched.write(&version("4"));
    assert_eq!([watched.poll(), watched.poll()], ["settling", "changed 4"]);
    watched.write(&version("5"));
    assert_eq!(watched.poll(), "settling");
    watched.write(&version("4"));
    assert_eq!([watched.poll(), watched.poll()], ["unchanged", "unchanged"]);
}

#[test]
fn a_bad_text_is_told_once_and_the_next_good_one_taken() {
    let mut watched = Watched::new(&version("1"));
    watched.write("version: 2\n");
    assert_eq!(watched.poll(), "settling");
    assert_eq!(watched.poll(), "policy.yaml:1:10: version: must be a string in quotes, not a whole number");
    assert_eq!([watched.poll(), watched.poll()], ["unchanged", "unchanged"]);
    watched.write(&version("1"));
    assert_eq!([watched.poll(), watched.poll(), watched.poll()], ["settling", "changed 1", "unchanged"]);
}

#[test]
fn a_file_that_is_gone_is_told_once() {
    let mut watched = Watched::new(&version("1"));
    std::fs::remove_file(watched.watch.file()).unwrap();
    assert_eq!(watched.poll(), "settling");
    assert!(watched.poll().starts_with("policy.yaml: "));
    assert_eq!(watched.poll(), "unchanged");
    watched.write(&version("2"));
    assert_eq!([watched.poll(), watched.poll()], ["settling", "changed 2"]);
}

/// As Kubernetes replaces a mounted file: another file takes the link's place.
#[test]
fn a_link_that_points_elsewhere_is_a_change() {
    let mut watched = Watched::new(&version("1"));
    let file = watched.watch.file().to_owned();
    let other = watched.directory.path().join("other.yaml");
    std::fs::write(&other, version("2")).unwrap();
    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink(&other, &file).unwrap();
    assert_eq!([watched.poll(), watched.poll()], ["settling", "changed 2"]);
}
