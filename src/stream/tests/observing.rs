use super::*;

#[test]
fn observing_refuses_nothing_and_says_what_it_would() {
    type Case<'a> = (&'a [(&'a str, &'a str)], &'a str, &'a str);
    let cases: [Case<'_>; 6] = [
        (&[(":path", "/v1/audio")], BODY, "unknown_endpoint"),
        (&[("authorization", "")], BODY, "missing_identity"),
        (&[("content-length", "8388609")], BODY, "request_too_large"),
        (&[("content-encoding", "br")], BODY, "unsupported_content_encoding"),
        (&[], "nope", "invalid_request"),
        (&[], r#"{"model":"","messages":[]}"#, "model_not_found"),
    ];
    for (headers, body, code) in cases {
        let mut proxy = Proxy::new().observing();
        proxy.headers(headers).step(Event::RequestEnd { body: body.as_bytes() });
        assert!(!proxy.stream.holds_request(), "{code}");
        assert!(proxy.effects.contains(&Effect::RemoveRequestHeader("authorization".to_owned())), "{code}");
        proxy.head(200, true).step(Event::ResponseBody { chunk: ANSWER, is_last: true }).end(true);
        assert!(proxy.replies().is_empty() && proxy.reserves().is_empty() && proxy.settles().is_empty());
        assert!(
            proxy.effects.contains(&Effect::SetResponseHeader(OBSERVED_HEADER, code.to_owned())),
            "{code}"
        );
    }
}

#[test]
fn observing_books_what_would_have_been_refused() {
    let mut denied = Proxy::new().observing();
    denied.request(BODY).deny();
    let mut failed = Proxy::new().observing();
    failed.request(BODY).step(Event::ReserveFailed(Failure::Unusable));
    for (mut proxy, code) in [(denied, "tpm_limit_exceeded"), (failed, "quota_unavailable")] {
        assert!(proxy.resumed() && proxy.replies().is_empty());
        proxy.head(200, true).step(Event::ResponseBody { chunk: ANSWER, is_last: true }).end(true);
        assert!(proxy.effects.contains(&Effect::SetResponseHeader(OBSERVED_HEADER, code.to_owned())));
        let [settle] = &proxy.settles()[..] else { panic!("not settled once") };
        assert_eq!((settle.outcome, settle.usage.unwrap().total()), (Outcome::Used, 9));
        assert!(settle.reserve.is_some() && settle.account.is_none());
    }
    let mut gone = Proxy::new().observing();
    gone.request(BODY).answer(json!({"decision": "gone", "policy_version": "v1"}));
    assert!(gone.resumed() && !gone.stream.holds_request());
    let mut withheld = Proxy::new().observing();
    withheld.headers(&[]).step(Event::BodyWithheld);
    assert!(withheld.resumed());
}

#[test]
fn observing_lowers_no_limit() {
    let mut proxy = Proxy::new().observing();
    proxy.request(&BODY.replace("\"messages\"", "\"max_tokens\":5000,\"messages\"")).allow();
    assert!(!proxy.effects.iter().any(|effect| matches!(effect, Effect::RewriteBody(_))));
    assert!(!proxy.reserves()[0].0.can_clamp);
}
