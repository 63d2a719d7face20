//! The HTTP interface as an OpenAPI 3.1 document. Ports list their endpoints as [`Operation`]s, and both the
//! router and the document are made from that list: what is served is what is described.

mod operation;
mod strict;

#[cfg(test)]
mod tests;

use std::sync::LazyLock;

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

pub use operation::{Content, Operation, Parameter, Route, json_of, routed};
pub use strict::address;

use crate::VERSION;
use crate::events::UsageEvent;
use crate::http::ErrorBody;

/// The document of both ports.
pub static DOCUMENT: LazyLock<Value> = LazyLock::new(document);

fn document() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut schemas = settings.into_generator();
    let mut paths = Map::new();
    let filters = crate::http::routes().into_iter().map(|route| route.operation);
    add(&mut paths, &mut schemas, filters, "8090", "Where filters call (--listen).", "filterToken");
    let operators = crate::admin::routes().into_iter().map(|route| route.operation);
    add(&mut paths, &mut schemas, operators, "8091", "Where operators look (--admin-listen).", "adminToken");
    // Not an answer of any endpoint: what a sink of --events gets, one per line.
    schemas.subschema_for::<UsageEvent>();
    let mut definitions = schemas.take_definitions(true);
    strict::tighten(&mut definitions);
    let bearer = |of: &str| json!({"type": "http", "scheme": "bearer", "description": of});
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "tokengate-ratelimit",
            "version": VERSION,
            "description": "The quota service of tokengate. Amounts count tokens, times are milliseconds. \
                Unknown fields are ignored, new fields have defaults.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": definitions,
            "securitySchemes": {
                "filterToken": bearer("The token of --token, when there is one."),
                "adminToken": bearer("The token of --admin-token, when there is one."),
            },
        },
    })
}

fn add(
    paths: &mut Map<String, Value>,
    schemas: &mut SchemaGenerator,
    operations: impl Iterator<Item = Operation>,
    port: &str,
    about: &str,
    token: &str,
) {
    for operation in operations {
        let described = describe(&operation, schemas, token);
        let servers = json!([{"url": format!("http://127.0.0.1:{port}"), "description": about}]);
        let path = paths.entry(operation.path).or_insert_with(|| json!({"servers": servers}));
        if let Value::Object(path) = path {
            path.insert(operation.method.as_str().to_lowercase(), described);
        }
    }
}

fn describe(operation: &Operation, schemas: &mut SchemaGenerator, token: &str) -> Value {
    let error = |schemas: &mut SchemaGenerator| Content::Json(json_of::<ErrorBody>()).media(schemas);
    let mut answers = Map::new();
    for (status, about, content) in &operation.answers {
        answers.insert(
            status.as_str().to_owned(),
            json!({"description": about, "content": content.media(schemas)}),
        );
    }
    for (status, about) in operation.all_errors() {
        let described = json!({"description": about, "content": error(schemas)});
        answers.insert(status.as_str().to_owned(), described);
    }
    let errors = json!({"description": "An error; 503 has Retry-After.", "content": error(schemas)});
    answers.insert("default".to_owned(), errors);
    let mut described = json!({
        "operationId": operation.id,
        "summary": operation.summary,
        "responses": answers,
        "security": if operation.open { json!([]) } else { json!([{}, {token: []}]) },
    });
    if let Value::Object(members) = &mut described {
        if let Some(body) = &operation.body {
            let content = Content::Json(*body).media(schemas);
            members.insert("requestBody".to_owned(), json!({"required": true, "content": content}));
        }
        if !operation.query.is_empty() {
            let parameters: Vec<_> = operation.query.iter().map(Parameter::described).collect();
            members.insert("parameters".to_owned(), Value::Array(parameters));
        }
    }
    described
}
