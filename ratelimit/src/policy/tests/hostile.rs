//! Files that nobody wrote on purpose.
use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;

/// What a file says: nothing, or one line that begins with its name.
fn says(text: &str) -> String {
    let message =
        Policy::parse_with("p", text, &environment).map_or_else(|error| error.to_string(), |_| String::new());
    assert!(!message.contains('\n') && (message.is_empty() || message.starts_with("p:")), "{message}");
    message
}

fn example(index: usize) -> String {
    let names = ["../policy.yaml", "examples/full.yaml", "examples/backend.yaml", "examples/prepaid.yaml"];
    std::fs::read_to_string(folder(names[index])).unwrap().replace("TOKENGATE_KEY_SECRET", "SECRET")
}

proptest! {
    /// Cut, doubled, or with some characters replaced: an answer of one line, never a panic.
    #[test]
    fn a_damaged_file_is_answered(
        index in 0usize..4,
        edits in prop::collection::vec((any::<prop::sample::Index>(), "[-a-z0-9:{}\\[\\]\"'#&*!|>%@,. \n\t\u{0}\u{fc}]{0,3}"), 1..6),
        cut in any::<prop::sample::Index>(),
        cuts in any::<bool>(),
    ) {
        let mut text: Vec<char> = example(index).chars().collect();
        for (at, with) in edits {
            let at = at.index(text.len());
            text.splice(at..(at + 1), with.chars());
        }
        if cuts {
            text.truncate(cut.index(text.len()));
        }
        says(&text.into_iter().collect::<String>());
    }

    #[test]
    fn any_text_is_answered(text in ".{0,200}") {
        says(&text);
    }

    /// Any number and any word in the place of any value.
    #[test]
    fn any_value_is_answered(
        field in prop::sample::select(vec!["limit: 5000", "every: 1m", "count: tokens", "lease: 60s", "capacity: 200000", "\"500.00\"", "amount: 50000", "\"0.50\""]),
        value in "(-?[0-9]{1,30}|\"[0-9.]{0,25}\"|[a-z]{1,5}|\\[\\]|\\{\\}|~|[0-9]{1,20}[smhd]|1e[0-9]{1,4})",
    ) {
        let text = example(1);
        prop_assert!(text.contains(field));
        let name = field.split_once(": ").map_or(String::new(), |(name, _)| format!("{name}: "));
        says(&text.replace(field, &format!("{name}{value}")));
    }
}

#[test]
fn depth_and_repetition_are_bounded() {
    for open in ["[", "{a: ", "- "] {
        assert_ne!(says(&open.repeat(100_000)), "");
    }
    let mut laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for i in 1..12 {
        let _ = writeln!(laughs, "a{i}: &a{i} [{}]", vec![format!("*a{}", i - 1); 10].join(", "));
    }
    assert_ne!(says(&laughs), "");
}

/// Tens of thousands of keys and tenants are within the parser's bounds, and are checked one by one.
#[test]
fn a_large_file_is_read() {
    let count = 30_000;
    let mut text = example(0);
    let (head, limits) = text.split_once("\ndefaults:").unwrap();
    let mut keys = String::new();
    let mut tenants = "\ntenants:\n".to_owned();
    for i in 0..count {
        let _ = write!(keys, "\n  - {{sha256: \"{i:064x}\", tenant: t{i}, plan: standard}}");
        let _ = writeln!(tenants, "  t{i}: {{limits: {{tenant-tpm: {}}}}}", 100_000 + i);
    }
    text = format!("{head}{keys}{tenants}\ndefaults:{limits}");
    let policy = Policy::parse("p", &text).unwrap();
    assert_eq!(policy.keys.len(), count + 2);
    assert_eq!(policy.limits[1].amount_for("standard", "t7"), Some(100_007));
    assert_eq!(policy.warnings(), []);
    assert_eq!(Policy::compare(&policy, &policy), []);
}
