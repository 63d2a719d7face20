//! The one secret of a policy, taken from the environment, and what is derived from it.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::error::Result;
use super::fields::Item;

/// Shorter ones can be guessed.
const MIN_BYTES: usize = 16;

/// A key for HMAC-SHA-256. Never shown.
#[derive(Clone)]
pub struct Secret(Hmac<Sha256>);

impl Secret {
    /// Reads `{hmac_sha256_env: NAME}`.
    pub fn read(item: &Item<'_>, environment: &dyn Fn(&str) -> Option<String>) -> Result<Self> {
        let mut fields = item.fields()?;
        let name_item = fields.required("hmac_sha256_env")?;
        let name = name_item.text()?;
        fields.finish(&[])?;
        if !is_variable(name) {
            // The text is not repeated: it may be the secret itself.
            let reason = "must be the name of an environment variable, in capital letters, digits and `_`";
            return Err(name_item.fault(reason));
        }
        let Some(value) = environment(name) else {
            return Err(name_item.fault(format!("the environment variable `{name}` is not set")));
        };
        if value.len() < MIN_BYTES {
            let reason = format!("the environment variable `{name}` holds fewer than {MIN_BYTES} bytes");
            return Err(name_item.fault(reason));
        }
        match Hmac::new_from_slice(value.as_bytes()) {
            Ok(hmac) => Ok(Self(hmac)),
            Err(_) => Err(name_item.fault(format!("the environment variable `{name}` cannot be used"))),
        }
    }

    /// HMAC-SHA-256 as 64 lower-case hex digits.
    pub fn hex(&self, message: &[u8]) -> String {
        let mut hmac = self.0.clone();
        hmac.update(message);
        hmac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

fn is_variable(name: &str) -> bool {
    let capital = |b: u8| b.is_ascii_uppercase() || b == b'_';
    name.len() <= 64
        && name.bytes().next().is_some_and(capital)
        && name.bytes().all(|b| capital(b) || b.is_ascii_digit())
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}
