//! What kind of request this is, by method and normalised path.

use crate::config::{OtherPaths, Paths};
use crate::headers::Headers;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// An endpoint of a dialect: tokens are counted.
    Metered,
    /// Identity and request limits.
    Listed,
    /// A CORS preflight: untouched.
    Preflight,
    /// Not metered by configuration.
    Passed,
    /// An endpoint that is not open.
    Unknown,
}

/// The one metered endpoint, as the service and the error messages name it.
pub const CHAT_COMPLETIONS: &str = "chat.completions";
/// The canonical endpoint of listed paths.
pub const LISTED: &str = "listed";

pub fn classify(paths: &Paths, headers: &Headers) -> Class {
    let method = headers.text(":method").unwrap_or("");
    let path = headers.get(":path").unwrap_or(b"");
    let path = path.split(|b| matches!(b, b'?' | b'#')).next().unwrap_or(b"");
    let other = match paths.other {
        OtherPaths::Deny => Class::Unknown,
        OtherPaths::Requests => Class::Listed,
        OtherPaths::Pass => Class::Passed,
    };
    // Whatever its path: there is no body to wait for, and what follows is no HTTP message.
    if method == "CONNECT" || headers.get("upgrade").is_some() || headers.get(":protocol").is_some() {
        return other;
    }
    if method == "OPTIONS" && headers.get("access-control-request-method").is_some_and(|m| !m.is_empty()) {
        return Class::Preflight;
    }
    if method == "POST" && path == b"/v1/chat/completions" {
        return Class::Metered;
    }
    let is_listed = |listed: &crate::config::ListedPath| {
        listed.method == method
            && if listed.is_prefix {
                path.len() > listed.path.len() && path.starts_with(listed.path.as_bytes())
            } else {
                path == listed.path.as_bytes()
            }
    };
    if paths.allow.iter().any(is_listed) { Class::Listed } else { other }
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
            ("POST", "/v1/chat/completions/", Class::Unknown),
            ("POST", "/V1/Chat/Completions", Class::Unknown),
            ("POST", "/v1%2Fchat/completions", Class::Unknown),
            ("GET", "/v1/chat/completions", Class::Unknown),
            ("GET", "/v1/models", Class::Listed),
            ("GET", "/v1/models?limit=3", Class::Listed),
            ("GET", "/v1/models/gpt-4o", Class::Listed),
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
        assert_eq!(classify(&paths, &Headers::from(preflight)), Class::Preflight);
        let empty = [(":method", "OPTIONS"), (":path", "/any"), ("access-control-request-method", "")];
        assert_eq!(classify(&paths, &Headers::from(empty)), Class::Unknown);
        let upgrade = [(":method", "POST"), (":path", "/v1/chat/completions"), ("upgrade", "websocket")];
        assert_eq!(classify(&paths, &Headers::from(upgrade)), Class::Unknown);
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
