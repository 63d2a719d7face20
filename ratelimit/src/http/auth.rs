use std::fmt;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::AUTHORIZATION;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::ApiError;

/// A bearer token that callers have to bring. Kept as its hash: comparing takes the same time whatever is
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

/// Where which token is asked for.
#[derive(Clone)]
pub struct Asked {
    token: Option<Arc<Token>>,
    /// Paths that are open to all.
    open: &'static [&'static str],
}

impl Asked {
    pub fn on_all(token: Option<Token>) -> Self {
        Self::but_on(&[], token)
    }

    pub fn but_on(open: &'static [&'static str], token: Option<Token>) -> Self {
        Self { token: token.map(Arc::new), open }
    }
}

/// What follows the scheme, whose case does not matter (RFC 9110).
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(b"Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then_some(token)
}

/// Lets a call through when no token is configured, or when it brings the right one exactly once.
pub async fn check(State(asked): State<Asked>, request: Request, next: Next) -> Response {
    let open = asked.open.contains(&request.uri().path());
    if let Some(token) = asked.token.filter(|_| !open) {
        let mut sent = request.headers().get_all(AUTHORIZATION).iter();
        let right = match (sent.next(), sent.next()) {
            (Some(value), None) => bearer(value.as_bytes()).is_some_and(|sent| token.is(sent)),
            _ => false,
        };
        if !right {
            return ApiError::unauthorized().into_response();
        }
    }
    next.run(request).await
}
