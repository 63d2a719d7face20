use axum::Router;
use axum::http::{Method, StatusCode};
use axum::routing::MethodRouter;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Value, json};

/// Makes the schema of a type.
pub type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// The schema of `T`, by reference.
pub fn json_of<T: JsonSchema>() -> SchemaOf {
    |schemas| schemas.subschema_for::<T>()
}

/// One endpoint as it is described.
pub struct Operation {
    pub id: &'static str,
    pub method: Method,
    pub path: &'static str,
    pub summary: &'static str,
    pub query: Vec<Parameter>,
    pub body: Option<SchemaOf>,
    /// Beside errors.
    pub answers: Vec<(StatusCode, &'static str, Content)>,
    /// Errors beside those that every endpoint has.
    pub errors: Vec<(StatusCode, &'static str)>,
    /// No token is asked for.
    pub open: bool,
}

impl Operation {
    pub fn new(method: Method, path: &'static str, id: &'static str, summary: &'static str) -> Self {
        Self {
            id,
            method,
            path,
            summary,
            query: Vec::new(),
            body: None,
            answers: Vec::new(),
            errors: Vec::new(),
            open: false,
        }
    }

    pub fn takes<T: JsonSchema>(self) -> Self {
        Self { body: Some(json_of::<T>()), ..self }
    }

    /// A list of at most so many.
    pub fn takes_at_most<T: JsonSchema, const MOST: usize>(self) -> Self {
        let list: SchemaOf = |schemas| {
            let mut list = schemas.subschema_for::<Vec<T>>();
            list.insert("maxItems".to_owned(), MOST.into());
            list
        };
        Self { body: Some(list), ..self }
    }

    pub fn gives<T: JsonSchema>(self, about: &'static str) -> Self {
        self.answers(StatusCode::OK, about, Content::Json(json_of::<T>()))
    }

    pub fn answers(mut self, status: StatusCode, about: &'static str, content: Content) -> Self {
        self.answers.push((status, about, content));
        self
    }

    pub fn query(self, name: &'static str, required: bool, about: &'static str) -> Self {
        self.query_of(name, required, about, json!({"type": "string"}))
    }

    /// A parameter that is not any text.
    pub fn query_of(
        mut self,
        name: &'static str,
        required: bool,
        about: &'static str,
        schema: Value,
    ) -> Self {
        self.query.push(Parameter { name, required, about, schema });
        self
    }

    pub fn refuses(mut self, status: StatusCode, about: &'static str) -> Self {
        self.errors.push((status, about));
        self
    }

    /// All errors that it answers with, each once.
    pub fn all_errors(&self) -> Vec<(StatusCode, &'static str)> {
        let mut errors = self.errors.clone();
        if !self.open {
            errors
                .push((StatusCode::UNAUTHORIZED, "A token is asked for, and it is missing or another one."));
        }
        if self.body.is_some() || !self.query.is_empty() {
            errors.push((StatusCode::BAD_REQUEST, "Not understood; nothing has changed."));
        }
        if self.body.is_some() {
            errors.push((StatusCode::REQUEST_TIMEOUT, "The body did not come in time."));
            errors.push((StatusCode::PAYLOAD_TOO_LARGE, "The body is too large."));
            errors.push((StatusCode::UNSUPPORTED_MEDIA_TYPE, "The body is not said to be JSON."));
        }
        errors.push((StatusCode::SERVICE_UNAVAILABLE, "Not at the moment; it has Retry-After."));
        errors.sort_by_key(|(status, _)| *status);
        errors
    }

    pub fn open(self) -> Self {
        Self { open: true, ..self }
    }

    pub fn by<S>(self, handler: MethodRouter<S>) -> Route<S> {
        Route { operation: self, handler }
    }
}

/// What an answer carries.
pub enum Content {
    Json(SchemaOf),
    /// Of this media type.
    Text(&'static str),
}

impl Content {
    pub fn media(&self, schemas: &mut SchemaGenerator) -> Value {
        match self {
            Self::Json(schema) => json!({"application/json": {"schema": schema(schemas)}}),
            Self::Text(media) => json!({*media: {"schema": {"type": "string"}}}),
        }
    }
}

/// A parameter of the query.
pub struct Parameter {
    name: &'static str,
    required: bool,
    about: &'static str,
    schema: Value,
}

impl Parameter {
    pub fn described(&self) -> Value {
        let Self { name, required, about, schema } = self;
        json!({
            "name": name, "in": "query", "required": required, "description": about,
            "schema": schema,
        })
    }
}

/// An endpoint: what is described, and what answers it.
pub struct Route<S> {
    pub operation: Operation,
    pub handler: MethodRouter<S>,
}

/// A router of these endpoints and nothing else.
pub fn routed<S: Clone + Send + Sync + 'static>(routes: Vec<Route<S>>) -> Router<S> {
    routes
        .into_iter()
        .fold(Router::new(), |router, Route { operation, handler }| router.route(operation.path, handler))
}
