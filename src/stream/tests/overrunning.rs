use tokengate_api::ExtendStatus;

use super::*;

const STREAMED: &str = r#"{"model":"gpt-4o","stream":true,"messages":[{"role":"user","content":"hi"}]}"#;
/// Ten tokens each.
const EVENT: &[u8] = b"data: {\"choices\":[{\"delta\":{\"content\":\" a b c d e f g h i j\"}}]}\n\n";

/// A stream whose answer has begun, and which holds 20 output tokens.
fn running(overrun: config::Overrun) -> Proxy {
    let mut proxy = Proxy::new();
    proxy.config.overrun = overrun;
    proxy.request(STREAMED).allow().head(200, true);
    proxy
}

impl Proxy {
    fn delivers(&mut self, chunk: &[u8]) -> &mut Self {
        self.step(Event::ResponseBody { chunk, is_last: false })
    }

    fn extensions(&self) -> Vec<u64> {
        let total = |effect: &Effect| match effect {
            Effect::Extend(item) => item.hold_output_tokens,
            _ => None,
        };
        self.effects.iter().filter_map(total).collect()
    }

    fn replaced(&self) -> Vec<String> {
        let body = |effect: &Effect| match effect {
            Effect::ReplaceResponseBody(body) => Some(String::from_utf8(body.clone()).unwrap()),
            _ => None,
        };
        self.effects.iter().filter_map(body).collect()
    }
}

#[test]
fn a_stream_that_runs_on_asks_for_more() {
    let mut proxy = running(config::Overrun::Stop);
    proxy.delivers(EVENT);
    assert!(proxy.extensions().is_empty());
    proxy.delivers(EVENT);
    assert_eq!(proxy.extensions(), [100], "no more than the model has");
    proxy.delivers(EVENT).step(Event::Extended { status: ExtendStatus::Allow, held: Some(100) });
    for _ in 0..7 {
        proxy.delivers(EVENT);
    }
    assert_eq!(proxy.extensions(), [100]);
    assert!(proxy.replaced().is_empty());
}

#[test]
fn where_overruns_are_allowed_nothing_is_asked_for() {
    let mut proxy = running(config::Overrun::Allow);
    for _ in 0..20 {
        proxy.delivers(EVENT);
    }
    assert!(proxy.extensions().is_empty());
}

#[test]
fn a_refused_stream_ends_with_an_error_and_is_charged_what_was_delivered() {
    for (last, cut_by_tick) in [(b"".as_slice(), true), (EVENT, false)] {
        let mut proxy = running(config::Overrun::Stop);
        proxy.delivers(EVENT).delivers(EVENT);
        proxy.step(Event::Extended { status: ExtendStatus::Deny, held: None });
        proxy.delivers(EVENT);
        let [error] = &proxy.replaced()[..] else { panic!("{:?}", proxy.replaced()) };
        let error: serde_json::Value =
            serde_json::from_str(error.strip_prefix("data: ").unwrap().trim()).unwrap();
        assert_eq!(
            (&error["error"]["type"], &error["error"]["code"]),
            (&json!("rate_limit_error"), &json!("output_stopped"))
        );
        assert!(proxy.effects.contains(&Effect::CutSoon) && !proxy.effects.contains(&Effect::CutResponse));
        if cut_by_tick {
            proxy.step(Event::Cut);
        } else {
            proxy.delivers(last);
            assert_eq!(proxy.replaced().last().unwrap(), "");
        }
        assert!(proxy.effects.contains(&Effect::CutResponse));
        proxy.end(true);
        let [settle] = &proxy.settles()[..] else { panic!("not settled once") };
        let usage = settle.usage.unwrap();
        assert_eq!((settle.outcome, usage.input, usage.output), (Outcome::Estimated, 8, 20));
    }
}

#[test]
fn an_event_is_not_cut_in_two() {
    let mut proxy = running(config::Overrun::Stop);
    let (start, rest) = EVENT.split_at(50);
    proxy.delivers(EVENT).delivers(EVENT).delivers(start);
    proxy.step(Event::Extended { status: ExtendStatus::Deny, held: None });
    proxy.delivers(&rest[..3]).delivers(&[&rest[3..], EVENT].concat());
    let [part, last] = &proxy.replaced()[..] else { panic!("{:?}", proxy.replaced()) };
    let (event, error) = last.split_once("\n\n").unwrap();
    assert_eq!([part.as_bytes(), event.as_bytes()].concat(), &rest[..rest.len() - 2]);
    assert!(error.starts_with("data: {\"error\""));
    proxy.step(Event::Cut).end(true);
    assert_eq!(proxy.settles()[0].usage.unwrap().output, 30);
}

#[test]
fn what_may_end_early_has_no_length() {
    let asks = STREAMED.replace("\"messages\"", "\"stream_options\":{\"include_usage\":true},\"messages\"");
    for (overrun, removed) in [(config::Overrun::Allow, false), (config::Overrun::Stop, true)] {
        let mut proxy = Proxy::new();
        proxy.config.overrun = overrun;
        proxy.request(&asks).allow().head(200, true);
        let length = Effect::RemoveResponseHeader("content-length".to_owned());
        assert_eq!(proxy.effects.contains(&length), removed);
    }
}

#[test]
fn it_ends_with_the_event_that_uses_the_hold_up() {
    let mut proxy = running(config::Overrun::Stop);
    let eighteen = String::from_utf8(EVENT.to_vec()).unwrap().replace(" a b", "");
    proxy.delivers(EVENT).delivers(eighteen.as_bytes());
    proxy.step(Event::Extended { status: ExtendStatus::Deny, held: None });
    proxy.delivers(&[EVENT, EVENT, EVENT].concat());
    let [last] = &proxy.replaced()[..] else { panic!("{:?}", proxy.replaced()) };
    assert!(last.as_bytes().starts_with(EVENT));
    assert_eq!(last.matches("data: ").count(), 2);
    assert!(proxy.effects.contains(&Effect::CutSoon));
    proxy.step(Event::Cut).end(true);
    assert_eq!(proxy.settles()[0].usage.unwrap().output, 28);
}

#[test]
fn an_event_without_an_end_is_no_way_around_it() {
    let mut proxy = running(config::Overrun::Stop);
    proxy.delivers(EVENT).delivers(EVENT).delivers(b"data: {\"choices\":[{\"delta\":{\"content\":\"");
    proxy.step(Event::Extended { status: ExtendStatus::Deny, held: None });
    for _ in 0..17 {
        proxy.delivers(&[b'x'; 1_000]);
    }
    assert!(proxy.effects.contains(&Effect::CutSoon));
    assert!(proxy.replaced().last().unwrap().contains("\n\ndata: {\"error\""));
}

#[test]
fn an_answer_that_is_complete_is_left_alone() {
    let mut proxy = running(config::Overrun::Stop);
    proxy.delivers(EVENT).delivers(EVENT);
    proxy.step(Event::Extended { status: ExtendStatus::Deny, held: None });
    proxy.step(Event::ResponseBody { chunk: EVENT, is_last: true });
    assert!(proxy.replaced().is_empty());
    assert!(!proxy.effects.contains(&Effect::CutSoon));
}

#[test]
fn only_streams_with_a_hold_are_watched() {
    let asks = |act: &dyn Fn(&mut Proxy)| {
        let mut proxy = Proxy::new().failure_mode(FailureMode::Open);
        proxy.config.overrun = config::Overrun::Stop;
        act(&mut proxy);
        proxy.head(200, true);
        for _ in 0..20 {
            proxy.delivers(EVENT);
        }
        !proxy.extensions().is_empty()
    };
    assert!(asks(&|p| _ = p.request(STREAMED).allow()));
    assert!(!asks(&|p| _ = p.request(BODY).allow()), "not streamed");
    assert!(!asks(&|p| _ = p.request(STREAMED).step(Event::ReserveFailed(Failure::Unusable))));
    assert!(!asks(&|p| {
        p.config.mode = Mode::Observe;
        p.request(STREAMED).allow();
    }));
}

#[test]
fn a_lease_is_kept() {
    let mut proxy = Proxy::new();
    proxy.request(BODY).answer(json!({"decision": "allow", "account": "acc", "policy_version": "v1",
        "grant": {"lease_ms": 60000}}));
    let id = ReservationId::from_bytes([7; 16]);
    let lease = Effect::KeepLease { id, account: "acc".to_owned(), lease_ms: 60_000 };
    assert!(proxy.effects.contains(&lease));
}

/// Some servers repeat all text so far in each event: what the client allows is held, and there is no more to ask for.
#[test]
fn text_that_is_repeated_stops_no_stream_within_its_limit() {
    let mut proxy = Proxy::new();
    proxy.config.overrun = config::Overrun::Stop;
    proxy
        .request(&STREAMED.replace("\"messages\"", "\"max_tokens\":50,\"messages\""))
        .allow()
        .head(200, true);
    for _ in 0..20 {
        proxy.delivers(EVENT);
    }
    assert!(proxy.extensions().is_empty());
}

#[test]
fn what_is_held_further_is_what_is_charged() {
    let mut proxy = running(config::Overrun::Stop);
    proxy.delivers(EVENT).delivers(EVENT);
    proxy.step(Event::Extended { status: ExtendStatus::Allow, held: Some(100) });
    proxy.delivers(EVENT).delivers(b"data: {\"choices\":[{\"delta\":{\"audio\":{\"data\":\"QUJD\"}}}]}\n\n");
    proxy.end(true);
    assert_eq!(proxy.settles()[0].outcome, Outcome::Held, "30 were delivered, and 100 are held");
}
