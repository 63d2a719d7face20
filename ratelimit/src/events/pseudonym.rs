use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::tag::Tag;

/// Turns tenants into names that mean nothing to whoever has not the key.
#[derive(Clone)]
pub struct PseudonymKey(Hmac<Sha256>);

impl PseudonymKey {
    /// Nothing for an empty key.
    pub fn new(key: &str) -> Option<Self> {
        if key.is_empty() {
            return None;
        }
        Hmac::new_from_slice(key.as_bytes()).ok().map(Self)
    }

    /// 16 lower-case hex digits.
    pub fn pseudonym(&self, account: Tag) -> String {
        let hash = self.0.clone().chain_update(account.0).finalize().into_bytes();
        hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }
}

impl fmt::Debug for PseudonymKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PseudonymKey(set)")
    }
}
