use std::fmt;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::AUTHORIZATION;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::ApiError;

/// The bearer token that filters have to bring. Kept as its hash: comparing takes the same time whatever is
/// sent, and nothing can print it.
#[derive(Clone)]
pub struct Token([u8; 32]);

impl Token {
    /// Nothing for an empty text.
    pub fn new(text: &str) -> Option<Self> {
        (!text.is_empty()).then(|| Self(Sha256::digest(text.as_bytes()).into()))
    }

    fn is(&self, sent: &[u8]) -> bool {
        let sent: [u8; 32] = Sha256::digest(sent).into();
        self.0.ct_eq(&sent).into()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(set)")
    }
}

/// Lets a call through when no token is configured, or when it brings the right one exactly once.
pub async fn check(State(token): State<Option<Arc<Token>>>, request: Request, next: Next) -> Response {
    if let Some(token) = token {
        let mut sent = request.headers().get_all(AUTHORIZATION).iter();
        let right = match (sent.next(), sent.next()) {
            (Some(value), None) => {
                value.as_bytes().strip_prefix(b"Bearer ").is_some_and(|sent| token.is(sent))
            }
            _ => false,
        };
        if !right {
            return ApiError::unauthorized().into_response();
        }
    }
    next.run(request).await
}
