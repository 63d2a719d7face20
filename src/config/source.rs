//! Where it stands who calls.

use serde::{Deserialize, Deserializer, de::Error as _};

/// One place to look for a caller. In the configuration an object with one member, the kind.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    ApiKey(ApiKey),
    Jwt(Jwt),
    Mtls(Mtls),
    TrustedHeader(TrustedHeader),
}

impl Default for Source {
    fn default() -> Self {
        Self::ApiKey(ApiKey::default())
    }
}

/// An API key in any of these headers.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ApiKey {
    #[serde(deserialize_with = "some_names")]
    pub headers: Vec<String>,
}

impl Default for ApiKey {
    fn default() -> Self {
        Self { headers: ["authorization", "x-api-key", "api-key"].map(str::to_owned).to_vec() }
    }
}

/// Claims of a token that a filter before this one has verified and left in the request's metadata.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Jwt {
    /// Where the claims are: the filter's name, then keys.
    #[serde(default = "payload", deserialize_with = "path")]
    pub metadata: Vec<String>,
    pub tenant: Claim,
    #[serde(default)]
    pub user: Option<Claim>,
    #[serde(default)]
    pub plan: Option<Claim>,
}

fn payload() -> Vec<String> {
    ["envoy.filters.http.jwt_authn", "jwt_payload"].map(str::to_owned).to_vec()
}

/// A claim by its name, or a nested one by the names on the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim(pub Vec<String>);

impl<'de> Deserialize<'de> for Claim {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a claim's name, or a list of names")]
        enum Written {
            Name(String),
            Path(Vec<String>),
        }
        checked(match Written::deserialize(deserializer)? {
            Written::Name(name) => vec![name],
            Written::Path(path) => path,
        })
        .map(Self)
    }
}

/// What the client's certificate says, which the listener has verified.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mtls {
    pub tenant: CertificateField,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CertificateField {
    /// The first URI of the subject's alternative names, where SPIFFE puts its ids.
    UriSan,
    /// The first DNS name.
    DnsSan,
    Subject,
}

impl CertificateField {
    /// Envoy's attribute.
    pub fn property(self) -> &'static str {
        match self {
            Self::UriSan => "uri_san_peer_certificate",
            Self::DnsSan => "dns_san_peer_certificate",
            Self::Subject => "subject_peer_certificate",
        }
    }
}

/// Headers that a hop in front sets on every request, whatever the client sent.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrustedHeader {
    #[serde(deserialize_with = "one_name")]
    pub tenant: String,
    #[serde(default, deserialize_with = "maybe_name")]
    pub user: Option<String>,
    #[serde(default, deserialize_with = "maybe_name")]
    pub plan: Option<String>,
}

impl TrustedHeader {
    pub fn names(&self) -> impl Iterator<Item = &str> {
        [Some(&self.tenant), self.user.as_ref(), self.plan.as_ref()].into_iter().flatten().map(String::as_str)
    }
}

/// Keys are joined by NUL when the host is asked.
fn checked<E: serde::de::Error>(path: Vec<String>) -> Result<Vec<String>, E> {
    if path.is_empty() || path.iter().any(|key| key.is_empty() || key.contains('\0')) {
        return Err(E::custom("give at least one name, and no empty one"));
    }
    Ok(path)
}

fn path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    checked(Vec::deserialize(deserializer)?)
}

fn header_name<E: serde::de::Error>(name: String) -> Result<String, E> {
    let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if name.is_empty() || !name.bytes().all(is_token) {
        return Err(E::custom(format!("{name:?} is no header name")));
    }
    Ok(name.to_ascii_lowercase())
}

fn one_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    header_name(String::deserialize(deserializer)?)
}

fn maybe_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Option::<String>::deserialize(deserializer)?.map(header_name).transpose()
}

fn some_names<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let names = Vec::<String>::deserialize(deserializer)?;
    if names.is_empty() {
        return Err(D::Error::custom("give at least one header name"));
    }
    names.into_iter().map(header_name).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_kind_is_read() {
        let read = |json: &str| serde_json::from_str::<Source>(json).unwrap();
        assert_eq!(read(r#"{"api_key": {}}"#), Source::default());
        let Source::Jwt(jwt) = read(r#"{"jwt": {"tenant": "org", "plan": ["app", "plan"]}}"#) else {
            unreachable!()
        };
        assert_eq!((jwt.metadata, jwt.user), (payload(), None));
        assert_eq!(jwt.plan.unwrap().0, ["app", "plan"]);
        let Source::TrustedHeader(header) =
            read(r#"{"trusted_header": {"tenant": "X-Tenant", "user": null}}"#)
        else {
            unreachable!()
        };
        assert_eq!(header.names().collect::<Vec<_>>(), ["x-tenant"]);
        assert_eq!(
            read(r#"{"mtls": {"tenant": "uri_san"}}"#),
            Source::Mtls(Mtls { tenant: CertificateField::UriSan })
        );
    }

    #[test]
    fn bad_sources_are_refused() {
        for (json, expected) in [
            (r#"{"jwt": {}}"#, "missing field `tenant`"),
            (r#"{"jwt": {"tenant": ""}}"#, "no empty one"),
            (r#"{"jwt": {"tenant": []}}"#, "at least one name"),
            (r#"{"jwt": {"tenant": 1}}"#, "a claim's name"),
            (r#"{"jwt": {"tenant": "a", "metadata": ["a\u0000b"]}}"#, "no empty one"),
            (r#"{"jwt": {"tenant": "a", "claims": {}}}"#, "unknown field `claims`"),
            (r#"{"mtls": {"tenant": "common_name"}}"#, "unknown variant `common_name`"),
            (r#"{"trusted_header": {"tenant": "a b"}}"#, "no header name"),
            (r#"{"api_key": {"headers": []}}"#, "at least one header"),
            (r#"{"cookie": {}}"#, "unknown variant `cookie`"),
        ] {
            let error = serde_json::from_str::<Source>(json).unwrap_err().to_string();
            assert!(error.contains(expected), "{json}: {error}");
        }
    }
}
