//! The sections `keys` and `verified_identities`.

use std::collections::BTreeMap;

use super::Plan;
use super::callers::{Asserts, Caller, Keys, VerifiedIdentities, is_plain};
use super::error::Result;
use super::fields::{Fields, Item};
use super::secret::Secret;

/// Takes `keys` and `verified_identities`.
pub fn read(
    document: &mut Fields<'_>,
    plans: &BTreeMap<String, Plan>,
    secret: Option<&Secret>,
) -> Result<Keys> {
    let verified = match document.optional("verified_identities") {
        None => None,
        Some(item) => verified(&item, plans)?,
    };
    let mut keys = Keys::new(secret.cloned(), verified);
    let section = match document.optional("keys") {
        None if keys.accepts_verified() => return Ok(keys),
        None => return Err(document.missing("keys")),
        Some(section) => section,
    };
    for item in section.list()? {
        let mut fields = item.fields()?;
        let (hash_item, keyed) = match fields.optional("hmac_sha256") {
            None => (fields.required("sha256")?, false),
            Some(item) if secret.is_some() => (item, true),
            Some(item) => {
                let reason =
                    "needs a secret: say `key_hash: {hmac_sha256_env: NAME}` at the top of the policy";
                return Err(item.fault(reason));
            }
        };
        if keyed && let Some(other) = fields.optional("sha256") {
            return Err(other.fault("stands beside `hmac_sha256`; a key has one of them"));
        }
        let hash = hash(&hash_item, keyed)?;
        let caller = Caller {
            key: hash.to_owned(),
            tenant: fields.required("tenant")?.name()?.to_owned(),
            plan: plan(&fields.required("plan")?, plans)?.to_owned(),
            user: fields.optional("user").map(|item| user(&item)).transpose()?,
            asserts: fields.optional("asserts").map(|item| asserts(&item)).transpose()?.unwrap_or_default(),
        };
        fields.finish(&["expires"])?;
        if !keys.insert(caller, keyed) {
            return Err(hash_item.fault("this key is listed already"));
        }
    }
    if keys.is_empty() && !keys.accepts_verified() {
        return Err(section.fault("must list at least one key: nobody could call"));
    }
    Ok(keys)
}

fn verified(item: &Item<'_>, plans: &BTreeMap<String, Plan>) -> Result<Option<VerifiedIdentities>> {
    let mut fields = item.fields()?;
    let accept = fields.required("accept")?.boolean()?;
    let default_plan = fields.optional("default_plan").map(|item| plan(&item, plans)).transpose()?;
    fields.finish(&[])?;
    Ok(accept.then(|| VerifiedIdentities { default_plan: default_plan.map(str::to_owned) }))
}

fn hash<'a>(item: &Item<'a>, keyed: bool) -> Result<&'a str> {
    let hash = item.text()?;
    if hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)) {
        return Ok(hash);
    }
    // The text is not repeated: it may be the key itself.
    Err(item.fault(if keyed {
        "must be 64 lower-case hex digits; make it with: printf %s \"$KEY\" | sha256sum | cut -c1-64 | tr -d '\\n' | \
         openssl dgst -sha256 -hmac \"$SECRET\""
    } else {
        "must be 64 lower-case hex digits; make it with: printf %s \"$KEY\" | sha256sum"
    }))
}

fn user(item: &Item<'_>) -> Result<String> {
    match item.text()? {
        text if is_plain(text) => Ok(text.to_owned()),
        _ => {
            Err(item.fault("must have 1 to 128 bytes, no control characters and no white space at its ends"))
        }
    }
}

fn plan<'a>(item: &Item<'a>, plans: &BTreeMap<String, Plan>) -> Result<&'a str> {
    let plan = item.text()?;
    if plans.contains_key(plan) { Ok(plan) } else { Err(item.fault(format!("there is no plan `{plan}`"))) }
}

fn asserts(item: &Item<'_>) -> Result<Asserts> {
    let mut fields = item.fields()?;
    let asserts = Asserts { user: header(&mut fields, "user")?, plan: header(&mut fields, "plan")? };
    fields.finish(&[])?;
    if asserts == Asserts::default() {
        return Err(item.fault("names no header: write {user: x-end-user}"));
    }
    if asserts.user == asserts.plan {
        return Err(item.fault("user and plan cannot come from one header"));
    }
    Ok(asserts)
}

/// Headers that carry the caller's key, or that a proxy writes itself.
const NOT_ASSERTABLE: [&str; 6] =
    ["authorization", "x-api-key", "api-key", "cookie", "host", "content-length"];

fn header(fields: &mut Fields<'_>, field: &str) -> Result<Option<String>> {
    let Some(item) = fields.optional(field) else { return Ok(None) };
    let name = item.text()?;
    let token = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(&b);
    if name.is_empty() || name.len() > 64 || !name.bytes().all(token) {
        return Err(item.fault("must be the name of a header in lower case, as x-end-user"));
    }
    if NOT_ASSERTABLE.contains(&name) || name.starts_with("x-tokengate-") {
        return Err(item.fault(format!("`{name}` cannot say who a caller is")));
    }
    Ok(Some(name.to_owned()))
}
