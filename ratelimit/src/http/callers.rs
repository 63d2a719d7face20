//! Keeps web pages from using a port: a page of any site can have the browser on this machine send requests to it.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tracing::warn;

use super::ApiError;
use crate::quiet::Quiet;

/// The `:authority` of the filters' calls unless they are told another one. It is no name that a page could be loaded
/// from.
const OF_FILTERS: &str = "tokengate-ratelimit";
const SEC_FETCH_SITE: &str = "sec-fetch-site";

const FOREIGN_PAGE: &str = "a web page of another site may not call this service";
const FOREIGN_HOST: &str = "must be a loopback address or localhost as long as no token is asked for; add other names \
    by which this port is called to --allowed-hosts";

static REFUSED: Quiet = Quiet::new();

/// By which names a port may be called.
#[derive(Clone, Debug, Default)]
pub struct Hosts {
    /// Any: whoever has the token is no web page.
    any: bool,
    names: Arc<[String]>,
}

impl Hosts {
    /// Where a token is asked for, the name says nothing.
    pub fn any() -> Self {
        Self { any: true, names: Arc::default() }
    }

    /// Loopback ones, that of the filters, and these. A page whose own name is made to lead here (DNS rebinding) is found
    /// by that name.
    pub fn loopback_and(names: &[String]) -> Self {
        Self { any: false, names: names.iter().map(|name| without_dot(name).to_ascii_lowercase()).collect() }
    }

    fn allows(&self, host: &str) -> bool {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        if let Ok(address) = bare.parse::<IpAddr>() {
            let canonical = address.to_canonical();
            return self.any || canonical.is_loopback() || self.has(bare);
        }
        let name = without_dot(host).to_ascii_lowercase();
        self.any
            || name == "localhost"
            || name.ends_with(".localhost")
            || name == OF_FILTERS
            || self.has(&name)
    }

    fn has(&self, name: &str) -> bool {
        self.names.iter().any(|allowed| allowed == name)
    }
}

fn without_dot(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

/// Refuses what a page of another site has sent.
pub async fn check(State(hosts): State<Hosts>, request: Request, next: Next) -> Response {
    let asked = request.uri().authority().map(|authority| authority.as_str().as_bytes());
    match refusal(&hosts, asked, request.headers()) {
        Some(error) => {
            if let Some(unsaid) = REFUSED.say() {
                let message = &error.message;
                warn!(header = error.field, unsaid, "a call was refused: {message}");
            }
            error.into_response()
        }
        None => next.run(request).await,
    }
}

/// `asked`: the authority of the request's target. HTTP/2 has it in the place of `Host`.
fn refusal(hosts: &Hosts, asked: Option<&[u8]>, headers: &HeaderMap) -> Option<ApiError> {
    let forbidden = |field: &str, message: &str| Some(ApiError::new(StatusCode::FORBIDDEN, field, message));
    let named: Vec<&[u8]> =
        asked.into_iter().chain(headers.get_all(HOST).iter().map(HeaderValue::as_bytes)).collect();
    // Without any name it is no browser's.
    if !named.iter().all(|name| host_of(name).is_some_and(|host| hosts.allows(&host))) {
        return forbidden("host", FOREIGN_HOST);
    }
    let own = |origin: &HeaderValue| {
        let bytes = origin.as_bytes();
        let authority = bytes.strip_prefix(b"http://").or_else(|| bytes.strip_prefix(b"https://"));
        authority.is_some_and(|authority| named.iter().any(|name| name.eq_ignore_ascii_case(authority)))
    };
    if !headers.get_all(ORIGIN).iter().all(own) {
        return forbidden("origin", FOREIGN_PAGE);
    }
    let near = |site: &HeaderValue| matches!(site.as_bytes(), b"same-origin" | b"none");
    if !headers.get_all(SEC_FETCH_SITE).iter().all(near) {
        return forbidden(SEC_FETCH_SITE, FOREIGN_PAGE);
    }
    None
}

/// The host of an authority, without its port.
fn host_of(authority: &[u8]) -> Option<String> {
    let authority = Authority::try_from(authority).ok()?;
    (!authority.as_str().contains('@')).then(|| authority.host().to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use axum::http::HeaderName;

    use super::*;

    fn field(hosts: &Hosts, asked: Option<&str>, headers: &[(&str, &str)]) -> Option<String> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        }
        let refused = refusal(hosts, asked.map(str::as_bytes), &map)?;
        assert_eq!(refused.status, StatusCode::FORBIDDEN);
        Some(refused.field)
    }

    #[test]
    fn without_a_token_a_port_is_called_by_names_of_this_machine() {
        let hosts = Hosts::loopback_and(&["Quota.internal.".to_owned(), "10.0.0.5".to_owned()]);
        for (host, allowed) in [
            ("127.0.0.1:8091", true),
            ("127.0.0.1", true),
            ("127.8.9.1:80", true),
            ("[::1]:8091", true),
            ("[::ffff:127.0.0.1]:8091", true),
            ("localhost:8091", true),
            ("LOCALHOST.", true),
            ("quota.localhost:8091", true),
            ("tokengate-ratelimit", true),
            ("tokengate-ratelimit:8090", true),
            ("quota.INTERNAL:8090", true),
            ("10.0.0.5:8090", true),
            ("10.0.0.6:8090", false),
            ("0.0.0.0:8091", false),
            ("[::]:8091", false),
            ("169.254.169.254", false),
            ("attacker.example:8091", false),
            ("localhost.attacker.example", false),
            ("127.0.0.1.attacker.example:8091", false),
            ("tokengate-ratelimit.attacker.example", false),
            ("notlocalhost", false),
            ("127.1", false),
            ("2130706433", false),
            ("127.0.0.1@attacker.example", false),
            ("attacker.example@127.0.0.1", false),
            ("", false),
            ("127.0.0.1:8091, attacker.example", false),
        ] {
            let refused = field(&hosts, None, &[("host", host)]);
            assert_eq!(refused.is_none(), allowed, "{host}");
            assert!(refused.is_none_or(|field| field == "host"), "{host}");
            if !host.is_empty() {
                assert_eq!(field(&hosts, Some(host), &[]).is_none(), allowed, "{host} in HTTP/2");
            }
        }
        assert_eq!(field(&hosts, None, &[]), None);
        let both = [("host", "127.0.0.1"), ("host", "attacker.example")];
        assert_eq!(field(&hosts, None, &both).as_deref(), Some("host"));
        assert_eq!(field(&hosts, Some("attacker.example"), &both[..1]).as_deref(), Some("host"));
        assert_eq!(field(&Hosts::any(), None, &[("host", "quota.example:8091")]), None);
    }

    #[test]
    fn pages_of_other_sites_are_refused_with_a_token_too() {
        let here = ("host", "127.0.0.1:8091");
        for hosts in [Hosts::loopback_and(&[]), Hosts::any()] {
            for (name, value, allowed) in [
                ("origin", "https://attacker.example", false),
                ("origin", "null", false),
                ("origin", "http://127.0.0.1:3000", false),
                ("origin", "http://127.0.0.1", false),
                ("origin", "file://", false),
                ("origin", "", false),
                ("origin", "http://127.0.0.1:8091", true),
                ("origin", "https://127.0.0.1:8091", true),
                ("sec-fetch-site", "cross-site", false),
                ("sec-fetch-site", "same-site", false),
                ("sec-fetch-site", "something-new", false),
                ("sec-fetch-site", "same-origin", true),
                ("sec-fetch-site", "none", true),
            ] {
                let refused = field(&hosts, None, &[here, (name, value)]);
                assert_eq!(refused.as_deref(), Some(name).filter(|_| !allowed), "{name}: {value}");
            }
            let two = [here, ("origin", "http://127.0.0.1:8091"), ("origin", "https://attacker.example")];
            assert_eq!(field(&hosts, None, &two).as_deref(), Some("origin"));
        }
    }
}
