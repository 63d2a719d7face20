//! What kind of request this is, by method and normalised path.

use crate::config::{ListedPath, OtherPaths, Paths, Preflight};
use crate::headers::Headers;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// An endpoint of a dialect: tokens are counted.
    Metered,
    /// Identity and request limits.
    Listed,
    /// The same, of a method that has no body.
    Bodyless,
    /// A CORS preflight, which passes by configuration.
    Preflight,
    /// Not metered by configuration.
    Passed,
    /// An endpoint that is not open.
    Unknown,
    /// A metered endpoint in another spelling, which the provider may take for it.
    Misspelled,
}

/// The one metered endpoint, as the service and the error messages name it.
pub const CHAT_COMPLETIONS: &str = "chat.completions";
/// Where it is.
pub const CHAT_COMPLETIONS_PATH: &str = "/v1/chat/completions";
/// The canonical endpoint of listed paths.
pub const LISTED: &str = "listed";

const METERED_METHOD: &str = "POST";
/// How often a path is decoded. Proxies and servers on the way may do so one after the other.
const MOST_DECODINGS: usize = 4;

pub fn classify(paths: &Paths, headers: &Headers) -> Class {
    let method = headers.text(":method").unwrap_or("");
    let (path, _) = split(headers.get(":path").unwrap_or(b""));
    let other = match paths.other {
        OtherPaths::Deny => Class::Unknown,
        OtherPaths::Requests => Class::Listed,
        OtherPaths::Pass => Class::Passed,
    };
    // Whatever its path: there is no body to wait for, and what follows is no HTTP message.
    if is_upgrade(headers) {
        return other;
    }
    let is_preflight =
        method == "OPTIONS" && headers.get("access-control-request-method").is_some_and(|m| !m.is_empty());
    if is_preflight && paths.preflight == Preflight::Pass {
        return Class::Preflight;
    }
    if method == METERED_METHOD && path == CHAT_COMPLETIONS_PATH.as_bytes() {
        return Class::Metered;
    }
    if method.eq_ignore_ascii_case(METERED_METHOD) && is_spelling_of(CHAT_COMPLETIONS_PATH, path) {
        return Class::Misspelled;
    }
    let is_listed = |listed: &ListedPath| {
        listed.method == method
            && if listed.is_prefix {
                path.len() > listed.path.len() && path.starts_with(listed.path.as_bytes())
            } else {
                path == listed.path.as_bytes()
            }
    };
    let class = if paths.allow.iter().any(is_listed) { Class::Listed } else { other };
    match class {
        Class::Listed if matches!(method, "GET" | "HEAD") => Class::Bodyless,
        class => class,
    }
}

/// What follows the headers is no HTTP message.
fn is_upgrade(headers: &Headers) -> bool {
    headers.text(":method") == Some("CONNECT")
        || headers.get("upgrade").is_some()
        || headers.get(":protocol").is_some()
}

/// The path without its query, and the query.
pub fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let path = path.split(|byte| *byte == b'#').next().unwrap_or(&[]);
    match path.iter().position(|byte| *byte == b'?') {
        Some(at) => (path.get(..at).unwrap_or(&[]), path.get(at + 1..).unwrap_or(&[])),
        None => (path, &[]),
    }
}

/// Whether a server that decodes, resolves or trims paths may take one for another.
fn is_spelling_of(path: &str, other: &[u8]) -> bool {
    let mut decoded = other.to_vec();
    for _ in 0..MOST_DECODINGS {
        if resolved(&decoded) == segments(path.as_bytes()) {
            return true;
        }
        let again = percent_decoded(&decoded, false);
        if again == decoded {
            return false;
        }
        decoded = again;
    }
    false
}

fn segments(path: &[u8]) -> Vec<Vec<u8>> {
    path.split(|byte| *byte == b'/').filter(|segment| !segment.is_empty()).map(<[u8]>::to_vec).collect()
}

/// The segments of a path in lower case, without parameters, blanks, empty ones and dots.
fn resolved(path: &[u8]) -> Vec<Vec<u8>> {
    let (path, _) = split(path);
    let mut all: Vec<Vec<u8>> = Vec::new();
    for segment in path.split(|byte| matches!(byte, b'/' | b'\\')) {
        let segment = segment.split(|byte| *byte == b';').next().unwrap_or(&[]);
        let is_blank = |byte: &u8| byte.is_ascii_whitespace() || byte.is_ascii_control();
        let from = segment.iter().position(|byte| !is_blank(byte)).unwrap_or(segment.len());
        let to = segment.iter().rposition(|byte| !is_blank(byte)).map_or(from, |last| last + 1);
        match segment.get(from..to).unwrap_or(&[]) {
            b"" | b"." => {}
            b".." => _ = all.pop(),
            segment => all.push(segment.to_ascii_lowercase()),
        }
    }
    all
}

/// The bytes that `%41` and the like stand for, and in a query `+`; what is no such escape stays.
pub fn percent_decoded(text: &[u8], is_query: bool) -> Vec<u8> {
    let digit =
        |byte: Option<&u8>| char::from(*byte?).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        let escaped = if byte == b'%' { digit(after.first()).zip(digit(after.get(1))) } else { None };
        match escaped {
            Some((high, low)) => {
                out.push(high << 4 | low);
                rest = after.get(2..).unwrap_or(&[]);
            }
            None => {
                out.push(if is_query && byte == b'+' { b' ' } else { byte });
                rest = after;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes() {
        let paths = Paths::default();
        for (method, path, class) in [
            ("POST", "/v1/chat/completions", Class::Metered),
            ("POST", "/v1/chat/completions?x=1", Class::Metered),
            ("POST", "/v1/chat/completions/", Class::Misspelled),
            ("POST", "/V1/Chat/Completions", Class::Misspelled),
            ("POST", "/v1%2Fchat/completions", Class::Misspelled),
            ("GET", "/v1/chat/completions", Class::Unknown),
            ("GET", "/v1/models", Class::Bodyless),
            ("GET", "/v1/models?limit=3", Class::Bodyless),
            ("GET", "/v1/models/gpt-4o", Class::Bodyless),
            ("HEAD", "/v1/models", Class::Unknown),
            ("GET", "/v1/models/", Class::Unknown),
            ("DELETE", "/v1/models/x", Class::Unknown),
            ("POST", "/v1/responses", Class::Unknown),
            ("OPTIONS", "/v1/chat/completions", Class::Unknown),
            ("CONNECT", "/v1/chat/completions", Class::Unknown),
        ] {
            let headers = Headers::from([(":method", method), (":path", path)]);
            assert_eq!(classify(&paths, &headers), class, "{method} {path}");
        }
        let preflight =
            [(":method", "OPTIONS"), (":path", "/any"), ("access-control-request-method", "POST")];
        assert_eq!(classify(&paths, &Headers::from(preflight)), Class::Unknown, "like any other request");
        let pass = Paths { preflight: Preflight::Pass, ..Paths::default() };
        assert_eq!(classify(&pass, &Headers::from(preflight)), Class::Preflight);
        let empty = [(":method", "OPTIONS"), (":path", "/any"), ("access-control-request-method", "")];
        assert_eq!(classify(&pass, &Headers::from(empty)), Class::Unknown);
        let upgrade = [(":method", "POST"), (":path", "/v1/chat/completions"), ("upgrade", "websocket")];
        assert_eq!(classify(&paths, &Headers::from(upgrade)), Class::Unknown);
    }

    #[test]
    fn another_spelling_of_a_metered_path_is_closed_whatever_is_open() {
        let all = ListedPath { method: "POST".to_owned(), path: "/v1/".to_owned(), is_prefix: true };
        for other in [OtherPaths::Deny, OtherPaths::Requests, OtherPaths::Pass] {
            let paths = Paths { other, allow: vec![all.clone()], ..Paths::default() };
            let class =
                |method, path| classify(&paths, &Headers::from([(":method", method), (":path", path)]));
            for path in [
                "/v1/chat/completions/",
                "/v1/chat/completions//",
                "/v1/chat/completions;x",
                "/v1/chat/completions;x=1/?a=b",
                "/v1;a/chat;b/completions",
                "/v1/chat/completions%20",
                "/v1/chat/completions%09%0a/",
                "/v1/chat/completions%00",
                "/v1/chat/completions%2f",
                "/v1/chat/completions%252f",
                "/v1/chat%252Fcompletions",
                "/v1/chat%25252Fcompletions",
                "/v1/chat/completions%3Fx",
                "/v1/chat/completions%23x",
                "/v1/chat/completions%3bx",
                "//v1/chat/completions",
                "/v1//chat/completions",
                "/v1/./chat/completions",
                "/v1/x/../chat/completions",
                "/v1/x/%2e%2E/chat/completions",
                "/../v1/chat/completions",
                "/v1\\chat\\completions",
                "/V1/chat/Completions",
                "/v1/ch%61t/completions",
                "/v1/ch%41t/completions",
                "v1/chat/completions",
            ] {
                assert_eq!(class("POST", path), Class::Misspelled, "{path} {other:?}");
            }
            assert_eq!(class("Post", "/v1/chat/completions"), Class::Misspelled);
            assert_eq!(class("POST", "/v1/chat/completions?x=/"), Class::Metered);
            for path in [
                "/v1/chat/completions/x",
                "/v1/chat/completion",
                "/v1/chat/completions.",
                "/v1/chat",
                "/v1/chat/completions/../x",
                "/v1/chat%zzcompletions",
                "/v2/chat/completions",
            ] {
                assert!(!matches!(class("POST", path), Class::Misspelled | Class::Metered), "{path}");
            }
        }
    }

    #[test]
    fn methods_without_a_body() {
        let all = Paths { other: OtherPaths::Requests, ..Paths::default() };
        for (method, class) in [
            ("GET", Class::Bodyless),
            ("HEAD", Class::Bodyless),
            ("POST", Class::Listed),
            ("DELETE", Class::Listed),
        ] {
            let headers = Headers::from([(":method", method), (":path", "/v1/files")]);
            assert_eq!(classify(&all, &headers), class, "{method}");
        }
        // What follows is no body.
        let upgrade = [(":method", "GET"), (":path", "/v1/realtime"), ("upgrade", "websocket")];
        assert_eq!(classify(&all, &Headers::from(upgrade)), Class::Listed);
    }

    #[test]
    fn escapes_are_decoded_once() {
        for (text, is_query, decoded) in
            [("a%41%2b+", false, "aA++"), ("a%41%2b+", true, "aA+ "), ("%2541%4%zz%", true, "%41%4%zz%")]
        {
            assert_eq!(percent_decoded(text.as_bytes(), is_query), decoded.as_bytes(), "{text}");
        }
    }

    #[test]
    fn other_paths_follow_the_setting() {
        let headers = Headers::from([(":method", "POST"), (":path", "/v1/audio")]);
        for (other, class) in [(OtherPaths::Requests, Class::Listed), (OtherPaths::Pass, Class::Passed)] {
            let paths = Paths { other, ..Paths::default() };
            assert_eq!(classify(&paths, &headers), class);
        }
    }
}
