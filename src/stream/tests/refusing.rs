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
    let cases: [Case<'_>; 13] = [
        (&[(":path", "/v1/audio")], BODY, 404, "tokengate_unknown_endpoint"),
        (&[(":path", "/v1/chat/completions/")], BODY, 404, "tokengate_unknown_endpoint"),
        (&[(":path", "/v1/chat/completions?Model=o3")], BODY, 400, "tokengate_invalid_request"),
        (&[(":path", "/v1/models"), (":method", "GET")], BODY, 400, "tokengate_invalid_request"),
        (&[], r#"{"model":"gpt-4o","messages":[{"Role":"user"}]}"#, 400, "tokengate_invalid_request"),
        (&[], r#"{"model":"gpt-4o","models":[""],"messages":[]}"#, 400, "tokengate_invalid_request"),
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

#[test]
fn a_body_where_there_must_be_none_goes_nowhere() {
    let listed = |extra: &[(&str, &str)]| {
        let mut proxy = Proxy::new();
        let all = [(":method", "GET"), (":path", "/v1/models"), ("authorization", "Bearer key")];
        let pairs = all.iter().chain(extra).map(|(k, v)| (k.as_bytes().to_vec(), v.as_bytes().to_vec()));
        let headers = Headers::new(pairs.collect());
        proxy.step(Event::RequestHeaders { headers: &headers, end_of_stream: false });
        proxy
    };
    for extra in [("content-length", "1"), ("content-length", "x"), ("transfer-encoding", "chunked")] {
        let proxy = listed(&[extra]);
        assert_eq!(proxy.refused_with(), (400, "tokengate_invalid_request"), "{extra:?}");
        assert!(proxy.reserves().is_empty());
    }
    // HTTP/2 may say nothing before. An end that comes alone is no body.
    let mut empty = listed(&[]);
    empty.step(Event::RequestBody { length: 0 }).allow().step(Event::RequestBody { length: 0 });
    assert!(empty.resumed() && empty.replies().is_empty());
    let mut early = listed(&[]);
    early.step(Event::RequestBody { length: 1 }).allow().end(false);
    let mut late = listed(&[]);
    late.allow().step(Event::RequestBody { length: 1 }).end(true);
    for (proxy, sent) in [(early, false), (late, true)] {
        assert_eq!(proxy.refused_with(), (400, "tokengate_invalid_request"));
        let [settle] = &proxy.settles()[..] else { panic!("not settled once") };
        assert_eq!((settle.outcome, settle.sent), (Outcome::Released, sent));
        assert!(proxy.stream.holds_request());
    }
    let mut answered = listed(&[]);
    answered.allow().head(200, true).step(Event::RequestBody { length: 1 }).end(true);
    assert!(answered.effects.contains(&Effect::CutResponse) && answered.replies().is_empty());
    assert_eq!(answered.settles().len(), 1);
    // A metered body goes on in pieces that come late, too.
    let mut metered = Proxy::new();
    metered.request(BODY).allow().step(Event::RequestBody { length: 5 });
    assert!(metered.replies().is_empty());
}

#[test]
fn a_preflight_is_like_any_other_request_unless_it_may_pass() {
    let preflight = |passes: bool, extra: &[(&str, &str)], end_of_stream| {
        let mut proxy = Proxy::new();
        if passes {
            proxy.config.paths.preflight = crate::config::Preflight::Pass;
        }
        let all = [
            (":method", "OPTIONS"),
            (":path", "/v1/files"),
            ("access-control-request-method", "POST"),
            ("x-tokengate-x", "1"),
            ("cookie", "a=b"),
        ];
        let pairs = all.iter().chain(extra).map(|(k, v)| (k.as_bytes().to_vec(), v.as_bytes().to_vec()));
        let headers = Headers::new(pairs.collect());
        proxy.step(Event::RequestHeaders { headers: &headers, end_of_stream });
        proxy
    };
    assert_eq!(preflight(false, &[], true).refused_with(), (404, "tokengate_unknown_endpoint"));
    let passed = preflight(true, &[], true);
    assert!(passed.replies().is_empty() && !passed.stream.holds_request());
    for name in ["x-tokengate-x", "cookie"] {
        assert!(passed.effects.contains(&Effect::RemoveRequestHeader(name.to_owned())), "{name}");
    }
    assert_eq!(preflight(true, &[("content-length", "5")], true).refused_with().0, 400);
    assert_eq!(preflight(true, &[], false).refused_with().0, 400);
}

#[test]
fn a_body_that_was_read_as_json_is_called_json() {
    let json = Effect::SetRequestHeader("content-type", "application/json".to_owned());
    for (given, is_set) in [
        (vec![], true),
        (vec!["application/json"], false),
        (vec!["text/plain"], true),
        (vec!["application/x-www-form-urlencoded"], true),
        (vec!["application/json; charset=utf-16"], true),
        (vec!["application/json", "text/plain"], true),
    ] {
        let headers: Vec<_> = given.iter().map(|value| ("content-type", *value)).collect();
        let mut proxy = Proxy::new();
        proxy.headers(&headers);
        assert_eq!(proxy.effects.contains(&json), is_set, "{given:?}");
    }
}
