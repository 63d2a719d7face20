use super::*;

#[test]
fn a_refused_request_is_answered_once_and_never_settled() {
    let mut proxy = Proxy::new();
    proxy.request(BODY).deny();
    assert_eq!(proxy.refused_with(), (429, "tokengate_tpm_limit_exceeded"));
    assert!(proxy.stream.holds_request(), "nothing of it may reach upstream");
    // Our own reply passes through the response callbacks.
    proxy.head(429, false).step(Event::ResponseBody { chunk: b"{}", is_last: true }).deny().end(false);
    assert_eq!(proxy.replies().len(), 1);
    assert!(proxy.settles().is_empty() && !proxy.resumed());
}

#[test]
fn refusals_before_the_reserve() {
    type Case<'a> = (&'a [(&'a str, &'a str)], &'a str, u16, &'a str);
    let cases: [Case<'_>; 8] = [
        (&[(":path", "/v1/audio")], BODY, 404, "tokengate_unknown_endpoint"),
        (&[("authorization", "")], BODY, 401, "tokengate_missing_identity"),
        (&[("x-api-key", "other")], BODY, 401, "tokengate_ambiguous_identity"),
        (&[("content-length", "8388609")], BODY, 413, "tokengate_request_too_large"),
        (&[("content-encoding", "zstd")], BODY, 415, "tokengate_unsupported_content_encoding"),
        (&[], "nope", 400, "tokengate_invalid_request"),
        (&[], r#"{"model":" ","messages":[]}"#, 404, "tokengate_model_not_found"),
        (&[], "", 400, "tokengate_invalid_request"),
    ];
    for (headers, body, status, details) in cases {
        let mut proxy = Proxy::new();
        proxy.headers(headers);
        proxy.step(Event::RequestEnd { body: body.as_bytes() });
        assert_eq!(proxy.refused_with(), (status, details), "{headers:?} {body}");
        assert!(proxy.reserves().is_empty() && proxy.stream.holds_request());
        proxy.end(false);
        assert!(proxy.settles().is_empty());
    }
    let mut proxy = Proxy::new();
    proxy.headers(&[]).step(Event::RequestBody { length: 8 * 1024 * 1024 + 1 });
    assert_eq!(proxy.refused_with(), (413, "tokengate_request_too_large"));
}

#[test]
fn a_body_that_the_proxy_does_not_show_is_not_waited_for() {
    let mut proxy = Proxy::new();
    proxy.headers(&[]).step(Event::BodyWithheld).step(Event::BodyWithheld).end(false);
    assert_eq!(proxy.refused_with(), (503, "tokengate_misconfigured_proxy"));
    assert!(proxy.settles().is_empty());
}

#[test]
fn a_body_of_exactly_the_limit_is_held() {
    let mut proxy = Proxy::new();
    proxy.headers(&[("content-length", "8388608")]).step(Event::RequestBody { length: 8 * 1024 * 1024 });
    assert!(proxy.replies().is_empty() && proxy.stream.wants_body());
}
