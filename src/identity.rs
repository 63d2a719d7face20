//! Who calls: the hash of the one API key of a request.

use sha2::{Digest, Sha256};

use crate::config::{Credential, Identity};
use crate::headers::Headers;

/// Headers that carry a credential in any dialect, removed whichever of them named the caller.
const CREDENTIAL_HEADERS: [&str; 4] = ["authorization", "x-api-key", "api-key", "x-goog-api-key"];
/// Ours to set, never the client's.
const OWN_PREFIX: &str = "x-tokengate-";

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    #[error("no API key was given")]
    Missing,
    #[error("more than one API key was given")]
    Ambiguous,
}

/// SHA-256 of the caller's key, as 64 lower-case hex digits.
pub fn key_hash(identity: &Identity, headers: &Headers) -> Result<String, IdentityError> {
    for source in &identity.sources {
        let mut found: Option<Vec<u8>> = None;
        for name in &source.headers {
            let mut values = headers.all(name);
            let Some(value) = values.next() else { continue };
            // Envoy joins repeated `authorization` headers with a comma.
            if values.next().is_some() || (name == "authorization" && value.contains(&b',')) {
                return Err(IdentityError::Ambiguous);
            }
            let Some(key) = credential(name, value) else { continue };
            match &found {
                Some(earlier) if *earlier != key => return Err(IdentityError::Ambiguous),
                _ => found = Some(key.to_vec()),
            }
        }
        if let Some(key) = found {
            return Ok(hex(&Sha256::digest(&key)));
        }
    }
    Err(IdentityError::Missing)
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

/// The headers to remove before the request goes on: credentials, and all that only we may set.
pub fn headers_to_remove(identity: &Identity, headers: &Headers) -> Vec<String> {
    let mut names = headers.names_with_prefix(OWN_PREFIX);
    if identity.credential == Credential::Strip {
        let configured = identity.sources.iter().flat_map(|source| source.headers.iter().map(String::as_str));
        for name in CREDENTIAL_HEADERS.into_iter().chain(configured) {
            if headers.get(name).is_some() && !names.iter().any(|listed| listed == name) {
                names.push(name.to_owned());
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash_of(pairs: &[(&str, &str)]) -> Result<String, IdentityError> {
        let pairs = pairs.iter().map(|(k, v)| (k.as_bytes().to_vec(), v.as_bytes().to_vec())).collect();
        key_hash(&Identity::default(), &Headers::new(pairs))
    }

    #[test]
    fn one_credential_has_one_hash() {
        // printf %s key | sha256sum
        let expected = "2c70e12b7a0646f92279f427c7b38e7334d8e5389cff167a1dc30e73f826b683";
        for pairs in [
            vec![("authorization", "Bearer key")],
            vec![("authorization", "bearer key")],
            vec![("authorization", "BEARER   key ")],
            vec![("x-api-key", "key")],
            vec![("api-key", " key")],
            vec![("api-key", "key"), ("authorization", "Bearer key")],
            vec![("authorization", "Basic eA=="), ("x-api-key", "key")],
        ] {
            assert_eq!(hash_of(&pairs).as_deref(), Ok(expected), "{pairs:?}");
        }
    }

    #[test]
    fn no_credential_and_more_than_one() {
        for pairs in [
            vec![],
            vec![("authorization", "")],
            vec![("authorization", "Bearer")],
            vec![("authorization", "Bearer ")],
            vec![("authorization", "Bearerkey")],
            vec![("authorization", "Basic key")],
            vec![("x-api-key", " ")],
            vec![("x-user-id", "victim")],
        ] {
            assert_eq!(hash_of(&pairs), Err(IdentityError::Missing), "{pairs:?}");
        }
        for pairs in [
            vec![("authorization", "Bearer a"), ("x-api-key", "b")],
            vec![("authorization", "Bearer a,Bearer a")],
            vec![("authorization", "Bearer a"), ("authorization", "Bearer a")],
            vec![("x-api-key", "a"), ("x-api-key", "a")],
        ] {
            assert_eq!(hash_of(&pairs), Err(IdentityError::Ambiguous), "{pairs:?}");
        }
    }

    #[test]
    fn credentials_and_own_headers_are_removed() {
        let headers = Headers::from([
            ("authorization", "x"),
            ("x-goog-api-key", "y"),
            ("x-tokengate-degraded", "open"),
            ("x-request-id", "1"),
        ]);
        let strip = Identity::default();
        assert_eq!(
            headers_to_remove(&strip, &headers),
            ["x-tokengate-degraded", "authorization", "x-goog-api-key"]
        );
        let forward = Identity { credential: Credential::Forward, ..strip };
        assert_eq!(headers_to_remove(&forward, &headers), ["x-tokengate-degraded"]);
    }
}
