//! Paths, and what every request needs: a key, and errors in OpenAI's shape.

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::header::AUTHORIZATION;
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{get, post};

use crate::error::ApiError;
use crate::{chat, models};

const MAX_BODY_BYTES: usize = 32 * 1024 * 1024;

pub fn router() -> Router {
    Router::new()
        .route("/v1/chat/completions", post(chat::complete))
        .route("/v1/models", get(models::list))
        .route("/v1/models/{id}", get(models::show))
        .fallback(async || ApiError::unknown_path())
        .method_not_allowed_fallback(async || ApiError::wrong_method())
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(middleware::from_fn(with_key))
}

async fn with_key(request: Request, next: Next) -> Result<Response, ApiError> {
    let value = request.headers().get(AUTHORIZATION).map_or("", |value| value.to_str().unwrap_or_default());
    match value.split_once(' ') {
        Some((scheme, key)) if scheme.eq_ignore_ascii_case("bearer") && !key.trim().is_empty() => {
            Ok(next.run(request).await)
        }
        _ => Err(ApiError::no_key()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::http::StatusCode;
    use serde_json::Value;
    use tower::ServiceExt;

    use super::*;

    async fn ask(method: &str, path: &str, key: &str, body: &'static str) -> (StatusCode, Value) {
        let request = Request::builder().method(method).uri(path).header(AUTHORIZATION, key);
        let answer = router().oneshot(request.body(Body::from(body)).unwrap()).await.unwrap();
        let status = answer.status();
        let body = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
        (status, serde_json::from_slice(&body).unwrap())
    }

    #[tokio::test]
    async fn answers_and_refuses() {
        let chat = r#"{"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}]}"#;
        for (method, path, key, body, status) in [
            ("POST", "/v1/chat/completions", "Bearer any", chat, 200),
            ("POST", "/v1/chat/completions", "bearer any", "no JSON", 400),
            ("POST", "/v1/chat/completions", "Bearer ", chat, 401),
            ("POST", "/v1/chat/completions", "Basic any", chat, 401),
            ("GET", "/v1/chat/completions", "Bearer any", "", 405),
            ("GET", "/v1/models", "Bearer any", "", 200),
            ("GET", "/v1/models/gpt-4o", "Bearer any", "", 200),
            ("GET", "/v1/models/nothing", "Bearer any", "", 404),
            ("GET", "/v1/other", "Bearer any", "", 404),
        ] {
            let (found, answer) = ask(method, path, key, body).await;
            assert_eq!(found.as_u16(), status, "{method} {path} {key}");
            assert_eq!(answer.pointer("/error/message").is_some(), status != 200, "{answer}");
        }
    }
}
