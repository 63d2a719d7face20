//! What the service asks of a body beyond its types, as schemas say it: the checks of [`crate::http`] and of
//! [`crate::quota`] are the ones that count, and a test holds the two against each other.

use serde_json::{Map, Value, json};
use tokengate_api::MAX_OTHER_MODELS;

use crate::limits::MAX_AMOUNT;
use crate::quota::{LONGEST_ID, LONGEST_OVERRIDE_MS};

/// An address without a port.
pub fn address() -> Value {
    json!([{"format": "ipv4"}, {"format": "ipv6"}])
}

/// Adds what types do not say. Gives the rules that speak of what is not there: there must be none.
pub fn tighten(schemas: &mut Map<String, Value>) -> Vec<String> {
    schemas.values_mut().for_each(bound_numbers);
    let mut left = Vec::new();
    for (name, pointer, more) in rules() {
        let found = schemas.get_mut(name).and_then(|schema| schema.pointer_mut(pointer));
        match (found, more) {
            (Some(Value::Object(schema)), Value::Object(more)) => schema.extend(more),
            _ => left.push(format!("{name}{pointer}")),
        }
    }
    left
}

/// Whole numbers of the wire have a size.
fn bound_numbers(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            let largest = match members.get("format").and_then(Value::as_str) {
                Some("uint8") => Some(u64::from(u8::MAX)),
                Some("uint32") => Some(u64::from(u32::MAX)),
                Some("uint64") => Some(u64::MAX),
                _ => None,
            };
            if let Some(largest) = largest {
                members.entry("maximum").or_insert_with(|| json!(largest));
            }
            members.values_mut().for_each(bound_numbers);
        }
        Value::Array(items) => items.iter_mut().for_each(bound_numbers),
        _ => {}
    }
}

const HASH_OR_NOTHING: &str = "^([0-9a-f]{64})?$";
const NAME: &str = "^[0-9A-Za-z._/-]{1,64}$";
const PLAIN: &str = "^[^\\u0000-\\u001f\\u007f-\\u009f]+$";

fn rules() -> Vec<(&'static str, &'static str, Value)> {
    let caller = json!({"anyOf": [
        {"required": ["key_hash"],
         "properties": {"key_hash": {"type": "string", "minLength": 64}, "identity": {"type": "null"}}},
        {"required": ["identity"],
         "properties": {"identity": {"type": "object"}, "key_hash": {"type": "string", "maxLength": 0}}},
    ]});
    let tokens_of_a_model = json!({"anyOf": [
        {"required": ["model"], "properties": {"model": {"type": "string"}}},
        {"properties": {
            "model": {"type": "null"},
            "models": {"maxItems": 0},
            "prompt_tokens": {"maximum": 0},
            "max_output_tokens": {"type": "null"},
        }},
    ]});
    let amount_or_usd = |least: u64| {
        json!({"oneOf": [
            {"required": ["amount"],
             "properties": {"amount": {"type": "integer", "minimum": least, "maximum": MAX_AMOUNT}, "usd": {"type": "null"}}},
            {"required": ["usd"],
             "properties": {"usd": {"type": "string", "pattern": "^[0-9]{1,7}(\\.[0-9]{1,9})?$"}, "amount": {"type": "null"}}},
        ]})
    };
    let id = json!({"minLength": 1, "maxLength": LONGEST_ID, "pattern": PLAIN});
    vec![
        ("IdentifyRequest", "", caller.clone()),
        ("IdentifyRequest", "/properties/key_hash", json!({"pattern": HASH_OR_NOTHING})),
        ("ReserveRequest", "", json!({"allOf": [caller, tokens_of_a_model]})),
        ("ReserveRequest", "/properties/key_hash", json!({"pattern": HASH_OR_NOTHING})),
        ("ReserveRequest", "/properties/attempt", json!({"minimum": 1, "maximum": 2})),
        ("ReserveRequest", "/properties/choices", json!({"minimum": 1})),
        ("ReserveRequest", "/properties/dialect", json!({"pattern": NAME})),
        ("ReserveRequest", "/properties/endpoint", json!({"pattern": NAME})),
        ("ReserveRequest", "/properties/models", json!({"maxItems": MAX_OTHER_MODELS})),
        ("ReserveRequest", "/properties/asserted", json!({"maxProperties": 16})),
        ("ReserveRequest", "/properties/asserted/additionalProperties", json!({"maxLength": 1024})),
        (
            "ReserveRequest",
            "/properties/ip",
            json!({"anyOf": [{"type": "null"}, {"format": "ipv4"}, {"format": "ipv6"}]}),
        ),
        (
            "SettleItem",
            "",
            json!({"anyOf": [
                {"properties": {"outcome": {"enum": ["held", "released"]}}},
                {"required": ["usage"], "properties": {"usage": {"type": "object"}}},
            ]}),
        ),
        (
            "ExtendItem",
            "",
            json!({"anyOf": [
                {"required": ["hold_output_tokens"], "properties": {"hold_output_tokens": {"type": "integer"}}},
                {"required": ["lease"], "properties": {"lease": {"const": true}}},
            ]}),
        ),
        (
            "BucketName",
            "/properties/ip",
            json!({"anyOf": [{"type": "null"}, {"format": "ipv4"}, {"format": "ipv6"}]}),
        ),
        ("TopUpRequest", "", amount_or_usd(1)),
        ("TopUpRequest", "/properties/grant_id", id.clone()),
        ("CorrectionRequest", "", amount_or_usd(1)),
        ("CorrectionRequest", "/properties/id", id),
        ("OverrideRequest", "", amount_or_usd(0)),
        ("OverrideRequest", "/properties/for_ms", json!({"minimum": 1, "maximum": LONGEST_OVERRIDE_MS})),
    ]
}
