//! Before a body costs anything: the model list, and who calls.

use super::*;
use crate::gzip;

fn without_models() -> (Proxy, Models) {
    let mut proxy = Proxy::new();
    let models = json!({"policy_version": "v1", "models": [], "asserted_headers": ["x-end-user-plan"]});
    proxy.models = Models::default();
    (proxy, Models::new(serde_json::from_value(models).unwrap()))
}

const PLAN: (&str, &str) = ("x-end-user-plan", "free");
const LISTED: [(&str, &str); 4] =
    [(":method", "GET"), (":path", "/v1/models"), ("content-length", "0"), PLAN];

#[test]
fn nothing_is_received_before_the_model_list_is_there() {
    for extra in [&[PLAN][..], &LISTED] {
        let (mut proxy, models) = without_models();
        proxy.headers(extra);
        assert_eq!(proxy.effects, [Effect::AwaitModels], "{extra:?}");
        assert!(proxy.stream.holds_request() && proxy.stream.awaits_answer());
        proxy.models = models;
        proxy.step(Event::ModelsKnown);
        if proxy.stream.wants_body() {
            proxy.arrives(BODY.as_bytes());
        }
        let (reserve, _) = proxy.reserves().remove(0);
        assert_eq!(reserve.asserted.get(PLAN.0).map(String::as_str), Some("free"), "the assertion counts");
        assert!(proxy.effects.contains(&Effect::RemoveRequestHeader(PLAN.0.to_owned())));
        assert!(!proxy.resumed());
    }
}

#[test]
fn a_body_where_there_must_be_none_is_remembered_meanwhile() {
    for (length, is_refused) in [(0, false), (1, true)] {
        let (mut proxy, models) = without_models();
        let list = [(":method", "GET"), (":path", "/v1/models"), ("authorization", "Bearer key")];
        let headers = Headers::from(list);
        proxy.step(Event::RequestHeaders { headers: &headers, end_of_stream: false });
        proxy.step(Event::RequestBody { length });
        proxy.models = models;
        proxy.step(Event::ModelsKnown).allow();
        assert_eq!((proxy.replies().len(), proxy.resumed()), (usize::from(is_refused), !is_refused));
    }
}

#[test]
fn what_needs_no_list_does_not_wait() {
    let refused = |extra: &[(&str, &str)]| {
        let (mut proxy, _) = without_models();
        proxy.headers(extra);
        let [reply] = proxy.replies()[..] else { panic!("{extra:?}") };
        reply.details.clone()
    };
    assert_eq!(refused(&[(":path", "/v1/files")]), "tokengate_unknown_endpoint");
    assert_eq!(refused(&[("authorization", "")]), "tokengate_missing_identity");
    assert_eq!(refused(&[("content-length", "99999999999")]), "tokengate_request_too_large");
}

#[test]
fn no_list_in_time_is_an_answer_that_is_missing() {
    let (mut closed, _) = without_models();
    closed.headers(&[PLAN]).step(Event::ModelsFailed);
    assert_eq!(closed.refused_with(), (503, "tokengate_quota_unavailable"));
    let (mut observed, _) = without_models();
    observed.config.mode = Mode::Observe;
    observed.headers(&[PLAN]).step(Event::ModelsFailed);
    assert!(observed.resumed() && observed.replies().is_empty());
    assert!(observed.effects.contains(&Effect::RemoveRequestHeader("authorization".to_owned())));
    let (mut open, _) = without_models();
    open.config.failure_mode = FailureMode::Open;
    open.headers(&[]).step(Event::ModelsFailed).arrives(BODY.as_bytes()).allow().head(200, true);
    assert!(open.effects.contains(&Effect::SetResponseHeader("x-tokengate-degraded", "open".to_owned())));
    assert!(open.measured(&Measure::Degraded { by: "filter" }));
}

#[test]
fn the_headers_go_on_when_only_the_body_is_held() {
    let (mut proxy, models) = without_models();
    proxy.config.hold_at = HoldAt::Body;
    proxy.headers(&[PLAN]);
    assert!(!proxy.resumed(), "not before they are stripped");
    proxy.models = models;
    proxy.step(Event::ModelsKnown);
    assert!(proxy.resumed() && proxy.stream.wants_body());
}

#[test]
fn a_gone_client_waits_for_nothing() {
    let (mut proxy, models) = without_models();
    proxy.headers(&[]).end(false);
    proxy.models = models;
    proxy.step(Event::ModelsKnown);
    assert!(matches!(proxy.stream, Stream::PassedThrough));
}

/// Of its caller nothing was said yet.
fn untold() -> Proxy {
    let mut proxy = Proxy::new();
    proxy.standing = Standing::Untold;
    proxy
}

const LARGE: (&str, &str) = ("content-length", "65537");
const GZIP: (&str, &str) = ("content-encoding", "gzip");

fn asked(proxy: &Proxy) -> usize {
    proxy.effects.iter().filter(|effect| matches!(effect, Effect::Identify { .. })).count()
}

#[test]
fn a_caller_is_asked_for_where_its_body_may_cost_much() {
    for (extra, is_asked) in [
        (&[][..], false),
        (&[("content-length", "65536")], false),
        (&[LARGE], true),
        (&[GZIP], true),
        (&[("content-length", "no number")], true),
    ] {
        for (standing, may_ask) in
            [(Standing::Untold, true), (Standing::Known, false), (Standing::Unasked, false)]
        {
            let mut proxy = Proxy::new();
            proxy.standing = standing;
            proxy.headers(extra);
            assert_eq!(asked(&proxy) == 1, is_asked && may_ask, "{extra:?} {standing:?}");
            assert_eq!(proxy.stream.wants_body(), !(is_asked && may_ask));
        }
        let mut proxy = Proxy::new();
        proxy.standing = Standing::Unknown;
        proxy.headers(extra);
        assert_eq!(proxy.replies().len(), usize::from(is_asked), "small ones are the reserve's: {extra:?}");
    }
    let mut complete = untold();
    let pairs = [(":method", "POST"), (":path", "/v1/chat/completions"), ("x-api-key", "key")];
    let headers =
        Headers::new(pairs.iter().map(|(k, v)| (k.as_bytes().to_vec(), v.as_bytes().to_vec())).collect());
    complete.step(Event::RequestHeaders { headers: &headers, end_of_stream: true });
    assert_eq!(asked(&complete), 0);
}

#[test]
fn an_unknown_caller_is_refused_before_its_body_is_read() {
    let mut proxy = untold();
    proxy.headers(&[GZIP]).step(Event::RequestBody { length: 100 });
    assert!(proxy.stream.holds_request() && proxy.stream.holds_body());
    assert_eq!((proxy.stream.counts_from(), proxy.stream.counts_kept()), (None, false));
    proxy.step(Event::Identified(Standing::Unknown));
    assert_eq!(proxy.refused_with(), (401, "tokengate_unknown_key"));
    proxy.end(false);
    assert!(proxy.settles().is_empty());
}

#[test]
fn a_known_caller_goes_on_with_what_has_come() {
    let mut proxy = untold();
    proxy.headers(&[LARGE]).step(Event::RequestBody { length: 10 });
    proxy.step(Event::Identified(Standing::Known)).arrives(BODY.as_bytes());
    assert_eq!(proxy.reserves().len(), 1);
}

#[test]
fn a_question_without_an_answer_is_the_failure_modes() {
    let mut closed = untold();
    closed.headers(&[LARGE]).step(Event::IdentifyFailed);
    assert_eq!(closed.refused_with(), (503, "tokengate_quota_unavailable"));
    let mut open = untold().failure_mode(FailureMode::Open);
    open.headers(&[LARGE]).step(Event::IdentifyFailed).arrives(BODY.as_bytes());
    assert_eq!(open.reserves().len(), 1);
    let mut observed = untold().observing();
    observed.headers(&[LARGE]).step(Event::Identified(Standing::Unknown));
    assert!(observed.resumed() && observed.replies().is_empty());
}

#[test]
fn a_body_that_is_too_large_is_refused_while_the_caller_is_asked_for() {
    let mut proxy = untold();
    proxy.headers(&[GZIP]).step(Event::RequestBody { length: 9 << 20 });
    assert_eq!(proxy.refused_with(), (413, "tokengate_request_too_large"));
    proxy.step(Event::Identified(Standing::Known));
    assert!(matches!(proxy.stream, Stream::Refused));
}

#[test]
fn a_packed_body_is_inflated_a_little_at_a_time() {
    let text = "word ".repeat(400_000);
    let packed = gzip::deflate(BODY.replace("hi", &text).as_bytes()).unwrap();
    let mut proxy = Proxy::new();
    proxy.headers(&[GZIP]).arrives(&packed);
    let mut steps = 0;
    while matches!(proxy.stream, Stream::Inflating(_)) {
        proxy.step(Event::RequestPiece { bytes: &[] });
        steps += 1;
    }
    // One step of the inflater gives about a thousand times 1 KiB at most.
    assert!(steps >= 2, "{steps}");
    while proxy.stream.counts_kept() {
        proxy.step(Event::RequestPiece { bytes: &[] });
    }
    assert!(proxy.reserves()[0].0.prompt_tokens > 400_000);
}

#[test]
fn what_comes_out_of_a_packed_body_is_bounded_and_must_be_whole() {
    let refused = |packed: &[u8]| {
        let mut proxy = Proxy::new();
        proxy.headers(&[GZIP]).arrives(packed);
        while proxy.stream.counts_kept() {
            proxy.step(Event::RequestPiece { bytes: &[] });
        }
        let (status, details) = proxy.refused_with();
        (status, details.to_owned())
    };
    let bomb = gzip::deflate(&vec![b' '; 64 << 20]).unwrap();
    assert_eq!(refused(&bomb), (413, "tokengate_request_too_large".to_owned()));
    let whole = gzip::deflate(BODY.as_bytes()).unwrap();
    let malformed = refused(b"this is no gzip at all");
    assert_eq!(malformed.0, 400);
    assert_eq!(refused(&whole[..whole.len() - 3]), malformed, "cut");
    assert_eq!(refused(&[&whole[..], b"more"].concat()), malformed, "something behind it");
}

#[test]
fn settled_once_at_the_last_byte() {
    let mut proxy = Proxy::new();
    proxy.request(BODY).allow().head(200, true);
    proxy.step(Event::ResponseBody { chunk: ANSWER, is_last: true });
    assert!(proxy.settles().is_empty());
    proxy.response_end();
    assert_eq!(proxy.settles()[0].usage.unwrap().total(), 9);
    proxy.end(true);
    assert_eq!(proxy.settles().len(), 1);
}
