//! Who calls, by something that is trusted: the hash of the one API key of a request, a verified token's
//! claims, a verified certificate, or the headers of a hop in front.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use sha2::{Digest, Sha256};
use tokengate_api::VerifiedIdentity;

use crate::config::{ApiKey, Claim, Credential, Identity, Jwt, Mtls, Source, TrustedHeader};
use crate::headers::Headers;

/// Headers that carry a credential in any dialect, removed whichever of them named the caller.
const CREDENTIAL_HEADERS: [&str; 4] = ["authorization", "x-api-key", "api-key", "x-goog-api-key"];
/// Headers that would go to the provider beside its own key: they say on whose account, or carry a credential that
/// is not for it.
const ACCOUNT_HEADERS: [&str; 11] = [
    "openai-organization",
    "openai-project",
    "cookie",
    "cookie2",
    "proxy-authorization",
    "x-forwarded-access-token",
    "x-auth-token",
    "x-amz-security-token",
    "x-goog-user-project",
    "ocp-apim-subscription-key",
    "x-litellm-api-key",
];
/// Headers by which a server may take the request for one of another path or method than was looked at.
const OVERRIDE_HEADERS: [&str; 8] = [
    "x-original-url",
    "x-original-uri",
    "x-original-method",
    "x-rewrite-url",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-http-path-override",
];
/// Both, which are removed unless they are to be kept.
pub const FOREIGN_HEADERS: [&str; 19] = {
    let [a, b, c, d, e, f, g, h, i, j, k] = ACCOUNT_HEADERS;
    let [l, m, n, o, p, q, r, s] = OVERRIDE_HEADERS;
    [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s]
};
/// Ours to set, never the client's.
const OWN_PREFIX: &str = "x-tokengate-";
/// Of a tenant, a user or a plan, in bytes.
const LONGEST_NAME: usize = 128;

/// Reads an attribute of the request that the proxy itself has set.
pub type Property<'a> = &'a dyn Fn(&[&str]) -> Option<Vec<u8>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    #[error("nothing says who calls")]
    Missing,
    #[error("more than one API key was given, or a header twice")]
    Ambiguous,
    #[error("a tenant, user or plan is no short text")]
    Invalid,
}

/// Whom a request comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identified {
    /// SHA-256 of the caller's key, as 64 lower-case hex digits.
    Key(String),
    Verified(VerifiedIdentity),
}

impl Identified {
    /// Empty where there is no key.
    pub fn key_hash(&self) -> String {
        match self {
            Self::Key(hash) => hash.clone(),
            Self::Verified(_) => String::new(),
        }
    }

    pub fn verified(&self) -> Option<VerifiedIdentity> {
        match self {
            Self::Key(_) => None,
            Self::Verified(identity) => Some(identity.clone()),
        }
    }
}

/// The first source that has a value.
pub fn identify(
    identity: &Identity,
    headers: &Headers,
    property: Property<'_>,
) -> Result<Identified, IdentityError> {
    for source in &identity.sources {
        let found = match source {
            Source::ApiKey(source) => key_hash(source, headers)?.map(Identified::Key),
            Source::Jwt(source) => claims(source, property)?.map(Identified::Verified),
            Source::Mtls(source) => certificate(source, property)?.map(Identified::Verified),
            Source::TrustedHeader(source) => trusted(source, headers)?.map(Identified::Verified),
        };
        if let Some(found) = found {
            return Ok(found);
        }
    }
    Err(IdentityError::Missing)
}

fn key_hash(source: &ApiKey, headers: &Headers) -> Result<Option<String>, IdentityError> {
    let mut found: Option<&[u8]> = None;
    for name in &source.headers {
        let Some(value) = only(headers, name)? else { continue };
        // Envoy joins repeated `authorization` headers with a comma.
        if name == "authorization" && value.contains(&b',') {
            return Err(IdentityError::Ambiguous);
        }
        let Some(key) = credential(name, value) else { continue };
        match found {
            Some(earlier) if earlier != key => return Err(IdentityError::Ambiguous),
            _ => found = Some(key),
        }
    }
    Ok(found.map(|key| hex(&Sha256::digest(key))))
}

/// The value of a header that may be there once.
fn only<'a>(headers: &'a Headers, name: &str) -> Result<Option<&'a [u8]>, IdentityError> {
    let mut values = headers.all(name);
    match (values.next(), values.next()) {
        (_, Some(_)) => Err(IdentityError::Ambiguous),
        (value, None) => Ok(value),
    }
}

fn claims(source: &Jwt, property: Property<'_>) -> Result<Option<VerifiedIdentity>, IdentityError> {
    let claim = |claim: &[String]| {
        let path = ["metadata", "filter_metadata"].into_iter();
        let path = path.chain(source.metadata.iter().chain(claim).map(String::as_str));
        property(&path.collect::<Vec<_>>()).filter(|value| !value.is_empty()).map(|value| name(&value))
    };
    let optional = |path: &Option<_>| path.as_ref().and_then(|path: &Claim| claim(&path.0));
    let Some(tenant) = claim(&source.tenant.0) else { return Ok(None) };
    let (user, plan) = (optional(&source.user).transpose()?, optional(&source.plan).transpose()?);
    Ok(Some(VerifiedIdentity { tenant: tenant?, user, plan }))
}

fn certificate(source: &Mtls, property: Property<'_>) -> Result<Option<VerifiedIdentity>, IdentityError> {
    let field = property(&["connection", source.tenant.property()]);
    let Some(tenant) = field.filter(|value| !value.is_empty()) else { return Ok(None) };
    Ok(Some(VerifiedIdentity { tenant: name(&tenant)?, user: None, plan: None }))
}

fn trusted(source: &TrustedHeader, headers: &Headers) -> Result<Option<VerifiedIdentity>, IdentityError> {
    let value = |header: &str| {
        let value = only(headers, header)?.map(<[u8]>::trim_ascii).filter(|value| !value.is_empty());
        value.map(name).transpose()
    };
    let optional = |header: &Option<String>| header.as_deref().map_or(Ok(None), value);
    let (user, plan) = (optional(&source.user)?, optional(&source.plan)?);
    let Some(tenant) = value(&source.tenant)? else { return Ok(None) };
    Ok(Some(VerifiedIdentity { tenant, user, plan }))
}

/// What may be a tenant, a user or a plan.
fn name(value: &[u8]) -> Result<String, IdentityError> {
    let text = std::str::from_utf8(value).map_err(|_| IdentityError::Invalid)?;
    if text.len() > LONGEST_NAME || text.chars().any(char::is_control) {
        return Err(IdentityError::Invalid);
    }
    Ok(text.to_owned())
}

/// What the request says of the caller of its caller, for the service to believe or not.
pub fn asserted(names: &[String], headers: &Headers) -> Result<BTreeMap<String, String>, IdentityError> {
    let mut values = BTreeMap::new();
    for header in names {
        if let Some(value) = only(headers, header)? {
            values.insert(header.clone(), name(value.trim_ascii())?);
        }
    }
    Ok(values)
}

/// The client's address without its port, as the proxy trusts it.
pub fn client_address(property: Property<'_>) -> Option<String> {
    let address = property(&["source", "address"])?;
    let address: SocketAddr = std::str::from_utf8(&address).ok()?.parse().ok()?;
    Some(address.ip().to_string())
}

/// The credential in a header's value, one spelling for each: without scheme and white space.
fn credential<'a>(name: &str, value: &'a [u8]) -> Option<&'a [u8]> {
    let value = value.trim_ascii();
    let key = if name == "authorization" {
        let (scheme, rest) = value.split_at_checked(6)?;
        let is_bearer =
            scheme.eq_ignore_ascii_case(b"bearer") && rest.first().is_some_and(u8::is_ascii_whitespace);
        if !is_bearer {
            return None;
        }
        rest.trim_ascii()
    } else {
        value
    };
    (!key.is_empty()).then_some(key)
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    let digit = |nibble: u8| DIGITS.get(usize::from(nibble)).copied().unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// The headers to remove before the request goes on: credentials and what is like them, and all that only others may
/// set.
pub fn headers_to_remove(identity: &Identity, asserted: &[String], headers: &Headers) -> Vec<String> {
    let strips = identity.credential == Credential::Strip;
    let configured = identity.sources.iter().flat_map(|source| -> Vec<&str> {
        match source {
            Source::ApiKey(source) if strips => source.headers.iter().map(String::as_str).collect(),
            Source::TrustedHeader(source) => source.names().collect(),
            _ => Vec::new(),
        }
    });
    let credentials = CREDENTIAL_HEADERS.into_iter().filter(|_| strips);
    let foreign = ACCOUNT_HEADERS.into_iter().filter(|_| strips).chain(OVERRIDE_HEADERS);
    let foreign = foreign.filter(|name| !identity.keep_headers.iter().any(|kept| kept == name));
    let mut names = headers.names_with_prefix(OWN_PREFIX);
    for name in credentials.chain(foreign).chain(configured).chain(asserted.iter().map(String::as_str)) {
        if headers.get(name).is_some() && !names.iter().any(|listed| listed == name) {
            names.push(name.to_owned());
        }
    }
    names
}

#[cfg(test)]
#[path = "identity_tests.rs"]
mod tests;
