use super::*;

#[tokio::test]
async fn a_token_is_asked_for_when_there_is_one() {
    let server = start(Setup { token: Some("s3cret"), ..Setup::default() }).await;
    for (values, status) in [
        (vec!["Bearer s3cret"], StatusCode::OK),
        (vec![], StatusCode::UNAUTHORIZED),
        (vec!["s3cret"], StatusCode::UNAUTHORIZED),
        (vec!["Bearer s3cre"], StatusCode::UNAUTHORIZED),
        // The scheme is a word of HTTP, the token is not.
        (vec!["bearer s3cret"], StatusCode::OK),
        (vec!["Bearer S3CRET"], StatusCode::UNAUTHORIZED),
        (vec!["Basic s3cret"], StatusCode::UNAUTHORIZED),
        (vec!["Bearers3cret"], StatusCode::UNAUTHORIZED),
        (vec!["Bearer"], StatusCode::UNAUTHORIZED),
        (vec!["Bearer s3cret "], StatusCode::OK), // White space at the end is no part of a header's value.
        (vec!["Bearer s3cret", "Bearer s3cret"], StatusCode::UNAUTHORIZED),
    ] {
        let mut request = request(Method::GET, "/v1/models", "");
        for value in &values {
            request.headers_mut().append("authorization", value.parse().unwrap());
        }
        assert_eq!(send(server.api, false, request).await.0, status, "{values:?}");
    }
    assert!(!format!("{:?}", Token::new("s3cret")).contains("s3cret"));
    assert!(Token::new("").is_none());
}

/// Whoever misses that filters are refused finds it in the metrics.
#[tokio::test]
async fn calls_whose_fault_is_their_own_are_counted() {
    let server = start(Setup { token: Some("s3cret"), ..Setup::default() }).await;
    let large = vec![b' '; Bounds::default().body_bytes + 1];
    for (value, body, status) in [
        ("Bearer other", b"{}".to_vec(), StatusCode::UNAUTHORIZED),
        ("Bearer s3cret", b"{}".to_vec(), StatusCode::BAD_REQUEST),
        ("Bearer s3cret", large, StatusCode::PAYLOAD_TOO_LARGE),
    ] {
        let mut request = request(Method::POST, "/v1/reserve", body);
        request.headers_mut().insert("authorization", value.parse().unwrap());
        assert_eq!(send(server.api, false, request).await.0, status);
    }
    let metrics = server.metrics();
    for cause in ["unauthorized", "malformed", "too_large"] {
        assert!(metrics.contains(&format!("refused_calls_total{{cause=\"{cause}\"}} 1\n")), "{metrics}");
    }
}

#[tokio::test]
async fn operators_have_a_token_of_their_own() {
    let setup = Setup { token: Some("filters"), admin_token: Some("operators"), ..Setup::default() };
    let server = start(setup).await;
    let paths =
        ["/healthz", "/readyz", "/metrics", "/v1/explain?tenant=t&model=gpt", "/v1/version", "/v1/other"];
    for path in paths {
        let probe = matches!(path, "/healthz" | "/readyz");
        for (token, right) in [(None, false), (Some("filters"), false), (Some("operators"), true)] {
            let mut request = request(Method::GET, path, "");
            if let Some(token) = token {
                let value = format!("Bearer {token}").parse().unwrap();
                request.headers_mut().insert("authorization", value);
            }
            let (status, _) = send(server.admin, false, request).await;
            let expected = match (probe || right, path) {
                (false, _) => StatusCode::UNAUTHORIZED,
                (true, "/v1/other") => StatusCode::NOT_FOUND,
                (true, _) => StatusCode::OK,
            };
            assert_eq!(status, expected, "{path} {token:?}");
        }
    }
}
