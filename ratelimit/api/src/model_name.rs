//! How a client's model name becomes a canonical one. Filter and service must agree, so it stands here.

/// The longest name that is looked at; longer ones name no model.
const MAX_LENGTH: usize = 256;

/// The spellings under which a client's name is looked up, in order: trimmed and lower case; the base of
/// a fine-tuned model (`ft:base:org::id`); without the provider's prefix (`openai/gpt-4o`).
pub fn spellings(raw: &str) -> Vec<String> {
    let name = raw.trim();
    if name.is_empty() || name.len() > MAX_LENGTH {
        return Vec::new();
    }
    let name = name.to_lowercase();
    let without_provider = |name: &str| name.rsplit('/').next().unwrap_or(name).to_owned();
    let base =
        |name: &str| name.strip_prefix("ft:").and_then(|rest| rest.split(':').next()).map(str::to_owned);
    let mut all = vec![name.clone()];
    let short = without_provider(&name);
    for candidate in [base(&name), base(&short), Some(short)].into_iter().flatten() {
        let bare = without_provider(&candidate);
        for spelling in [candidate, bare] {
            if !spelling.is_empty() && !all.contains(&spelling) {
                all.push(spelling);
            }
        }
    }
    all
}

/// Whether a pattern is this exact spelling, or the length of the prefix by which it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PatternMatch {
    Prefix(usize),
    Exact,
}

/// Matches one spelling against one pattern: exact, or a prefix followed by `*`.
pub fn matches(pattern: &str, spelling: &str) -> Option<PatternMatch> {
    match pattern.strip_suffix('*') {
        Some(prefix) => spelling.starts_with(prefix).then_some(PatternMatch::Prefix(prefix.len())),
        None => (pattern == spelling).then_some(PatternMatch::Exact),
    }
}

/// The entry that a client's name means: exact wins, under any of its spellings; then the longest prefix, so
/// that a catch-all `*` takes only what nothing else does.
pub fn find<'a, T>(raw: &str, entries: &'a [T], patterns: impl Fn(&'a T) -> &'a [String]) -> Option<&'a T> {
    let spellings = spellings(raw);
    let best = |entry: &'a T| {
        let pairs = patterns(entry).iter().flat_map(|p| spellings.iter().map(move |s| matches(p, s)));
        pairs.flatten().max()
    };
    entries
        .iter()
        .filter_map(|entry| Some((best(entry)?, entry)))
        .max_by_key(|(best, _)| *best)
        .map(|(_, e)| e)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_a_name() {
        for (raw, expected) in [
            (" GPT-4o\n", vec!["gpt-4o"]),
            ("openai/gpt-4o", vec!["openai/gpt-4o", "gpt-4o"]),
            ("ft:gpt-4o-mini:org::id", vec!["ft:gpt-4o-mini:org::id", "gpt-4o-mini"]),
            ("a/b/c", vec!["a/b/c", "c"]),
            ("", vec![]),
            (" ", vec![]),
            ("/", vec!["/"]),
        ] {
            assert_eq!(spellings(raw), expected, "{raw}");
        }
        assert!(spellings(&"x".repeat(257)).is_empty());
    }

    #[test]
    fn exact_wins_then_the_longest_prefix() {
        let entries = [
            vec!["gpt-4*".to_owned()],
            vec!["gpt-4.1*".to_owned(), "alias".to_owned()],
            vec!["gpt-4.1-mini".to_owned()],
            vec!["*".to_owned()],
        ];
        let index = |raw| find(raw, &entries, |e| e).and_then(|e| entries.iter().position(|x| x == e));
        assert_eq!(index("gpt-4-turbo"), Some(0));
        assert_eq!(index("openai/GPT-4.1-nano"), Some(1));
        assert_eq!(index("gpt-4.1-mini"), Some(2));
        assert_eq!(index("alias"), Some(1));
        assert_eq!(index("openai/alias"), Some(1), "before the catch-all");
        assert_eq!(index("alias2"), Some(3));
        assert_eq!(index(""), None);
    }
}
