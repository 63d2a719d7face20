#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::cell::Cell;

use serde_json::json;
use tokengate_api::{Outcome, ReservationId, ReserveRequest, ReserveResponse, SettleItem};

use super::charge::Ending;
use super::*;
use crate::config::FailureMode;
use crate::dialect::refusal::LocalReply;
use crate::models::Models;

/// One stream with everything around it that a proxy would be.
struct Proxy {
    stream: Stream,
    config: Config,
    models: Models,
    now: Cell<u64>,
    body: Vec<u8>,
    effects: Vec<Effect>,
}

const BODY: &str = r#"{"model":"gpt-4o","messages":[{"role":"user","content":"hi"}]}"#;
const ANSWER: &[u8] =
    br#"{"choices":[{"message":{"content":"ok"}}],"usage":{"prompt_tokens":8,"completion_tokens":1}}"#;

impl Proxy {
    fn new() -> Self {
        let models = json!({"policy_version": "v1", "models": [
            {"name": "gpt-4o", "match": ["gpt-4o"], "max_output_tokens": 100, "default_output_tokens": 20}]});
        Self {
            stream: Stream::default(),
            config: Config::default(),
            models: Models::new(serde_json::from_value(models).unwrap()),
            now: Cell::new(1_000),
            body: Vec::new(),
            effects: Vec::new(),
        }
    }

    fn failure_mode(mut self, mode: FailureMode) -> Self {
        self.config.failure_mode = mode;
        self
    }

    fn observing(mut self) -> Self {
        self.config.mode = Mode::Observe;
        self
    }

    fn step(&mut self, event: Event<'_>) -> &mut Self {
        let env = Env {
            config: &self.config,
            models: &self.models,
            now_ms: &|| self.now.get(),
            new_id: &|| Some(ReservationId::from_bytes([7; 16])),
        };
        let (stream, effects) = std::mem::take(&mut self.stream).step(&env, event);
        self.stream = stream;
        self.effects.extend(effects);
        self
    }

    fn headers(&mut self, extra: &[(&str, &str)]) -> &mut Self {
        let all = [
            (":method", "POST"),
            (":path", "/v1/chat/completions"),
            ("authorization", "Bearer key"),
            ("content-length", "62"),
        ];
        let replaced = |name: &str| extra.iter().any(|(other, _)| *other == name);
        let kept = all.iter().filter(|(name, _)| !replaced(name)).chain(extra);
        let pairs = kept.map(|(k, v)| (k.as_bytes().to_vec(), v.as_bytes().to_vec())).collect();
        self.step(Event::RequestHeaders { headers: &Headers::new(pairs), end_of_stream: false })
    }

    fn request(&mut self, body: &str) -> &mut Self {
        self.headers(&[]);
        self.body = body.as_bytes().to_vec();
        self.step(Event::RequestBody { length: body.len() });
        self.step(Event::RequestEnd { body: body.as_bytes() })
    }

    /// The body so far is shown from where it is to be counted on.
    fn count_on(&mut self, size: usize) -> &mut Self {
        let body = std::mem::take(&mut self.body);
        if let Some(from) = self.stream.counts_from().filter(|from| *from < body.len()) {
            self.step(Event::RequestPiece { bytes: &body[from..(from + size).min(body.len())] });
        }
        self.body = body;
        self
    }

    fn answer(&mut self, answer: serde_json::Value) -> &mut Self {
        let answer: ReserveResponse = serde_json::from_value(answer).unwrap();
        self.step(Event::ReserveAnswer(answer))
    }

    fn allow(&mut self) -> &mut Self {
        self.answer(json!({"decision": "allow", "account": "acc", "policy_version": "v1", "limits": [
            {"name": "l", "scope": {}, "metric": "tokens", "limit": 1000, "remaining": 900, "reset_ms": 500,
             "window_ms": 60000}]}))
    }

    fn deny(&mut self) -> &mut Self {
        self.answer(json!({"decision": "deny", "reason": "tpm_limit_exceeded", "policy_version": "v1"}))
    }

    fn head(&mut self, status: u16, from_provider: bool) -> &mut Self {
        let rate_limit_headers = vec!["x-ratelimit-limit-tokens".to_owned()];
        self.step(Event::ResponseHead(ResponseHead {
            status,
            from_provider,
            coding: Coding::Identity,
            rate_limit_headers,
        }))
    }

    fn end(&mut self, reached_provider: bool) -> &mut Self {
        self.step(Event::End(Ending { reached_provider }))
    }

    fn reserves(&self) -> Vec<(ReserveRequest, u32)> {
        let reserve = |effect: &Effect| match effect {
            Effect::Reserve { request, timeout_ms } => Some(((**request).clone(), *timeout_ms)),
            _ => None,
        };
        self.effects.iter().filter_map(reserve).collect()
    }

    fn settles(&self) -> Vec<SettleItem> {
        let settle = |effect: &Effect| match effect {
            Effect::Settle { item, .. } => Some((**item).clone()),
            _ => None,
        };
        self.effects.iter().filter_map(settle).collect()
    }

    fn replies(&self) -> Vec<&LocalReply> {
        let reply = |effect: &'_ Effect| matches!(effect, Effect::Reply(_));
        self.effects
            .iter()
            .filter(|e| reply(e))
            .map(|e| if let Effect::Reply(r) = e { r } else { unreachable!() })
            .collect()
    }

    fn measured(&self, measure: &Measure) -> bool {
        self.effects.iter().any(|effect| matches!(effect, Effect::Measure(one) if one == measure))
    }

    fn resumed(&self) -> bool {
        self.effects.contains(&Effect::Resume)
    }

    fn refused_with(&self) -> (u16, &str) {
        let [reply] = self.replies()[..] else { panic!("{} replies", self.replies().len()) };
        (reply.status, reply.details.as_str())
    }
}

#[test]
fn an_admitted_request_is_settled_with_its_usage() {
    let mut proxy = Proxy::new();
    proxy.request(BODY);
    assert!(proxy.stream.holds_request() && !proxy.resumed());
    let (reserve, timeout) = proxy.reserves().remove(0);
    assert_eq!((reserve.prompt_tokens, reserve.max_output_tokens, timeout), (8, None, 100));
    assert_eq!(reserve.id.as_str(), "07".repeat(16));
    assert!(proxy.effects.contains(&Effect::RemoveRequestHeader("authorization".to_owned())));
    assert!(proxy.effects.contains(&Effect::SetRequestHeader("accept-encoding", "identity".to_owned())));
    proxy.allow();
    assert!(proxy.resumed() && !proxy.stream.holds_request());
    proxy.head(200, true);
    assert!(
        proxy.effects.contains(&Effect::RemoveResponseHeader("x-ratelimit-limit-tokens".to_owned()))
            && proxy
                .effects
                .contains(&Effect::SetResponseHeader("x-ratelimit-remaining-tokens", "900".to_owned()))
    );
    proxy.step(Event::ResponseBody { chunk: ANSWER, is_last: true }).end(true).end(true);
    let [settle] = &proxy.settles()[..] else { panic!("settled {} times", proxy.settles().len()) };
    assert_eq!((settle.outcome, settle.usage.unwrap().total()), (Outcome::Used, 9));
    assert_eq!(settle.account.as_deref(), Some("acc"));
    assert!(settle.sent && settle.reserve.is_none());
}

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

#[test]
fn a_long_prompt_is_counted_in_slices() {
    let text = "a word or two ".repeat(20_000);
    let tail = r#""}],"max_tokens":7}"#;
    for head in [r#"{"model":"gpt-4o","messages":[{"content":""#, r#"{"messages":[{"content":""#] {
        let model = if head.contains("model") { "" } else { r#","model":"gpt-4o""# };
        let body = format!("{head}{text}{}", tail.replace(r#","max"#, &format!(r#"{model},"max"#)));
        let mut proxy = Proxy::new();
        proxy.headers(&[]).step(Event::RequestBody { length: body.len() });
        proxy.body = body.as_bytes().to_vec();
        proxy.count_on(SLICE).count_on(SLICE).step(Event::RequestEnd { body: body.as_bytes() });
        assert!(proxy.reserves().is_empty() && proxy.stream.holds_request(), "there is more to count");
        let mut slices = 0;
        while matches!(proxy.stream, Stream::Counting(_)) {
            proxy.count_on(SLICE);
            slices += 1;
        }
        // 280 kB are 18 slices. The first two count where the model is known, and the last byte brings one more.
        assert_eq!(slices, if model.is_empty() { 15 } else { 17 });
        let [(reserve, _)] = &proxy.reserves()[..] else { panic!("not reserved once") };
        assert_eq!((reserve.prompt_tokens, reserve.max_output_tokens), (6 + 80_000 + 1, Some(7)));
        proxy.allow();
        assert!(proxy.resumed());
    }
}

#[test]
fn a_packed_body_is_kept_and_counted_in_slices() {
    let body = format!(r#"{{"model":"gpt-4o","messages":[{{"content":"{}"}}]}}"#, "x ".repeat(2 * SLICE));
    let packed = crate::gzip::deflate(body.as_bytes()).unwrap();
    let mut proxy = Proxy::new();
    proxy.headers(&[("content-encoding", "gzip")]).step(Event::RequestBody { length: packed.len() });
    assert!(proxy.stream.will_keep() && proxy.stream.counts_from().is_none());
    proxy.step(Event::RequestEnd { body: &packed });
    let mut slices = 0;
    while proxy.stream.counts_kept() {
        proxy.step(Event::RequestPiece { bytes: b"" });
        slices += 1;
    }
    let [(reserve, _)] = &proxy.reserves()[..] else { panic!("not reserved once") };
    assert_eq!((slices, reserve.prompt_tokens), (4, 6 + 2 * SLICE as u64 + 1));
}

#[test]
fn who_leaves_while_being_counted_has_no_hold() {
    let body = format!(r#"{{"model":"gpt-4o","messages":[{{"content":"{}"}}]}}"#, "x ".repeat(SLICE));
    let counting = |event: Event<'_>| {
        let mut proxy = Proxy::new();
        proxy.headers(&[]).step(Event::RequestEnd { body: body.as_bytes() });
        proxy.body = body.as_bytes().to_vec();
        proxy.step(event).count_on(SLICE).count_on(SLICE);
        proxy
    };
    let gone = counting(Event::End(Ending { reached_provider: false }));
    assert!(gone.reserves().is_empty() && gone.settles().is_empty());
    let unreadable = counting(Event::RequestPiece { bytes: b"" });
    assert_eq!(unreadable.refused_with(), (503, "tokengate_misconfigured_proxy"));
    assert!(unreadable.reserves().is_empty());
}

#[test]
fn endings_while_reserving_release_with_the_reserve() {
    let mut gone = Proxy::new();
    gone.request(BODY).end(false).allow();
    let mut overtaken = Proxy::new();
    overtaken.request(BODY).head(408, false).allow().end(false);
    for proxy in [gone, overtaken] {
        let [settle] = &proxy.settles()[..] else { panic!("not settled once") };
        assert_eq!((settle.outcome, settle.sent), (Outcome::Released, false));
        assert_eq!(settle.reserve.as_ref().unwrap().prompt_tokens, 8);
        assert!(settle.account.is_none() && !proxy.resumed());
    }
}

#[test]
fn an_answer_before_the_reserve_leaves_nothing_to_settle() {
    let mut proxy = Proxy::new();
    proxy.headers(&[]).head(408, false).end(false);
    assert!(proxy.settles().is_empty() && proxy.reserves().is_empty());
}

#[test]
fn a_broken_connection_is_tried_once_more_within_the_deadline() {
    for failure in [Failure::Connection, Failure::Deadline] {
        let mut proxy = Proxy::new();
        proxy.request(BODY);
        proxy.now.set(1_030);
        proxy.step(Event::ReserveFailed(failure));
        let [(first, _), (second, timeout)] = &proxy.reserves()[..] else { panic!("no second try") };
        assert_eq!((first.attempt, second.attempt, *timeout, second.deadline_ms), (1, 2, 70, 70));
        assert_eq!(first.id, second.id);
        proxy.step(Event::ReserveFailed(failure));
        assert_eq!(proxy.reserves().len(), 2);
        assert_eq!(proxy.refused_with(), (503, "tokengate_quota_unavailable"));
    }
    for (failure, now) in
        [(Failure::Unusable, 1_001), (Failure::Connection, 1_099), (Failure::Deadline, 1_100)]
    {
        let mut proxy = Proxy::new();
        proxy.request(BODY);
        proxy.now.set(now);
        proxy.step(Event::ReserveFailed(failure));
        assert_eq!(proxy.reserves().len(), 1, "{failure:?}");
    }
}

#[test]
fn fail_closed_refuses_and_closes_the_reserve() {
    let mut proxy = Proxy::new();
    proxy.request(BODY).step(Event::ReserveFailed(Failure::Unusable));
    let header = |name| proxy.replies()[0].headers.iter().find(|(key, _)| *key == name).unwrap().1.clone();
    assert_eq!((header("retry-after"), header("retry-after-ms")), ("1".to_owned(), "1000".to_owned()));
    assert!(proxy.stream.holds_request());
    proxy.end(false);
    let [settle] = &proxy.settles()[..] else { panic!("not settled once") };
    assert_eq!((settle.outcome, settle.sent), (Outcome::Released, false));
    assert!(settle.reserve.is_some());
}

#[test]
fn fail_open_serves_marks_and_charges_later() {
    let mut proxy = Proxy::new().failure_mode(FailureMode::Open);
    proxy.request(BODY).step(Event::ReserveFailed(Failure::Unusable));
    assert!(proxy.resumed() && proxy.replies().is_empty());
    proxy.head(200, true);
    assert!(proxy.effects.contains(&Effect::SetResponseHeader("x-tokengate-degraded", "open".to_owned())));
    proxy.step(Event::ResponseBody { chunk: ANSWER, is_last: true }).end(true);
    let [settle] = &proxy.settles()[..] else { panic!("not settled once") };
    assert_eq!((settle.outcome, settle.usage.unwrap().total()), (Outcome::Used, 9));
    assert!(settle.reserve.is_some(), "so that it can be booked");
    // Without any answer there is no hold to charge: our own numbers are sent.
    let mut lost = Proxy::new().failure_mode(FailureMode::Open);
    lost.request(BODY).step(Event::ReserveFailed(Failure::Unusable)).end(true);
    assert_eq!(lost.settles()[0].usage.unwrap().total(), 8 + 20);
}

#[test]
fn a_model_without_its_tokenizer_is_marked() {
    let mark = Effect::SetResponseHeader("x-tokengate-tokenizer", "fallback".to_owned());
    for (model, tokens, is_marked) in [("gpt-4o", 8, false), ("my-llama", 10, true)] {
        let mut proxy = Proxy::new();
        proxy.request(&BODY.replace("gpt-4o", model)).allow().head(200, true);
        assert_eq!(proxy.reserves()[0].0.prompt_tokens, tokens);
        assert_eq!(proxy.effects.contains(&mark), is_marked, "{model}");
        assert_eq!(proxy.measured(&Measure::FallbackCount), is_marked, "{model}");
    }
}

#[test]
fn gone_holds_nothing() {
    let mut proxy = Proxy::new();
    proxy.request(BODY).answer(json!({"decision": "gone", "policy_version": "v1"})).end(false);
    assert_eq!(proxy.refused_with(), (503, "tokengate_quota_unavailable"));
    assert!(proxy.settles().is_empty());
}

#[test]
fn endings_after_the_hold() {
    let ended = |act: &dyn Fn(&mut Proxy)| {
        let mut proxy = Proxy::new();
        proxy.request(BODY).allow();
        act(&mut proxy);
        let [settle] = &proxy.settles()[..] else { panic!("not settled once") };
        (settle.outcome, settle.sent)
    };
    for (what, act, expected) in [
        (
            "connect refused",
            &(|p: &mut Proxy| _ = p.head(503, false).end(false)) as &dyn Fn(&mut Proxy),
            (Outcome::Released, false),
        ),
        ("client gone before upstream", &|p| _ = p.end(false), (Outcome::Released, false)),
        ("client gone, no answer yet", &|p| _ = p.end(true), (Outcome::Held, true)),
        ("route timeout", &|p| _ = p.head(504, false).end(true), (Outcome::Held, true)),
        ("provider's error", &|p| _ = p.head(500, true).end(true), (Outcome::Released, true)),
        ("cut short", &|p| _ = p.head(200, true).end(true), (Outcome::Held, true)),
    ] {
        assert_eq!(ended(act), expected, "{what}");
    }
}

#[test]
fn usage_that_the_delivered_text_cannot_explain_is_told_of() {
    let words = "one two three four five six seven eight nine ten ".repeat(6);
    for (text, output, reasoning, is_doubtful) in [
        ("ok", 1, 0, false),
        ("ok", 30, 0, false),
        ("ok", 40, 0, true),
        ("ok", 49, 48, false),
        ("ok", 51, 50, true),
        (words.as_str(), 45, 0, false),
        (words.as_str(), 1, 0, true),
        (words.as_str(), 40, 40, false),
    ] {
        let mut proxy = Proxy::new();
        proxy.request(r#"{"model":"gpt-4o","max_tokens":25,"n":2,"messages":[]}"#).allow().head(200, true);
        let details = json!({"reasoning_tokens": reasoning});
        let usage =
            json!({"prompt_tokens": 3, "completion_tokens": output, "completion_tokens_details": details});
        let answer = json!({"choices": [{"message": {"content": text}}], "usage": usage}).to_string();
        proxy.step(Event::ResponseBody { chunk: answer.as_bytes(), is_last: true }).end(true);
        let told = Effect::Measure(Measure::UsageMismatch { model: "gpt-4o".to_owned() });
        assert_eq!(proxy.effects.contains(&told), is_doubtful, "{output} {reasoning}");
        assert_eq!(proxy.settles()[0].usage.unwrap().total(), 3 + output, "believed all the same");
    }
}

#[test]
fn the_body_is_rewritten_only_where_it_must() {
    let rewritten = |body: &str, grant: serde_json::Value| {
        let mut proxy = Proxy::new();
        proxy.request(body).answer(
            json!({"decision": "allow", "grant": {"max_output_tokens": grant}, "policy_version": "v1"}),
        );
        proxy.effects.iter().find_map(|effect| match effect {
            Effect::RewriteBody(Rewrite { edits, packing: Packing::Plain, fix_length: true }) => {
                Some(String::from_utf8(edits.apply(body.as_bytes()).unwrap()).unwrap())
            }
            _ => None,
        })
    };
    let with = |members: &str| BODY.replace("\"messages\"", &format!("{members},\"messages\""));
    assert_eq!(rewritten(BODY, json!(null)), None);
    assert_eq!(rewritten(&with(r#""max_tokens":100"#), json!(100)), None);
    assert_eq!(
        rewritten(&with(r#""max_tokens":5000"#), json!(null)),
        Some(with(r#""max_tokens":100"#)),
        "the model's maximum"
    );
    assert_eq!(
        rewritten(&with(r#""max_tokens":5000,"max_completion_tokens":60"#), json!(50)),
        Some(with(r#""max_tokens":50,"max_completion_tokens":50"#)),
        "the grant"
    );
    let streamed = rewritten(&with(r#""stream":true"#), json!(null)).unwrap();
    assert!(streamed.starts_with(r#"{"stream_options":{"include_usage":true},"model""#));
}

#[test]
fn a_body_with_a_digest_goes_on_as_it_came_or_not_at_all() {
    for name in ["content-md5", "digest", "content-digest", "repr-digest", "signature"] {
        let with = |body: &str| {
            let mut proxy = Proxy::new();
            proxy.headers(&[(name, "any")]).step(Event::RequestEnd { body: body.as_bytes() });
            proxy
        };
        let mut proxy = with(r#"{"model":"gpt-4o","stream":true,"max_tokens":50,"messages":[]}"#);
        proxy.answer(json!({"decision": "allow", "account": "acc", "policy_version": "v1", "limits": [],
            "grant": {"max_output_tokens": 10}}));
        assert!(proxy.resumed() && !proxy.effects.iter().any(|e| matches!(e, Effect::RewriteBody(_))));
        let proxy = with(r#"{"model":"gpt-4o","max_tokens":101,"messages":[]}"#);
        assert_eq!(proxy.refused_with().0, 400);
        assert!(proxy.reserves().is_empty());
    }
}

#[test]
fn a_body_that_cannot_be_rewritten_goes_nowhere() {
    let mut proxy = Proxy::new();
    proxy.request(&BODY.replace("\"messages\"", "\"stream\":true,\"messages\"")).allow();
    proxy.step(Event::RewriteFailed).end(false);
    assert_eq!(proxy.refused_with(), (503, "tokengate_misconfigured_proxy"));
    assert!(proxy.stream.holds_request() || proxy.settles().len() == 1);
    assert_eq!(proxy.settles()[0].outcome, Outcome::Released);
}

#[test]
fn a_gzip_body_is_read_and_forwarded_as_it_is_unless_it_must_change() {
    let packing = |body: &str, hold_at| {
        let mut proxy = Proxy::new();
        proxy.config.hold_at = hold_at;
        proxy.headers(&[("content-encoding", "GZIP")]);
        let packed = crate::gzip::deflate(body.as_bytes()).unwrap();
        proxy.step(Event::RequestEnd { body: &packed }).allow();
        assert_eq!(proxy.reserves()[0].0.prompt_tokens, 8);
        let unpacked = proxy.effects.contains(&Effect::RemoveRequestHeader("content-encoding".to_owned()));
        let packing = proxy.effects.iter().find_map(|effect| match effect {
            Effect::RewriteBody(rewrite) => Some((rewrite.packing, rewrite.fix_length)),
            _ => None,
        });
        (packing, unpacked)
    };
    let streamed = BODY.replace("\"messages\"", "\"stream\":true,\"messages\"");
    assert_eq!(packing(BODY, HoldAt::Headers), (None, false));
    assert_eq!(packing(&streamed, HoldAt::Headers), (Some((Packing::Unpack, true)), true));
    assert_eq!(packing(&streamed, HoldAt::Body), (Some((Packing::Repack, false)), false));
    for (body, status) in [(b"no gzip".to_vec(), 400), (crate::gzip::deflate(&[b' '; 9 << 20]).unwrap(), 413)]
    {
        let mut proxy = Proxy::new();
        proxy.headers(&[("content-encoding", "gzip")]).step(Event::RequestEnd { body: &body });
        assert_eq!(proxy.refused_with().0, status);
    }
    let mut both = Proxy::new();
    both.headers(&[("content-encoding", "gzip, zstd")]);
    assert_eq!(both.refused_with().0, 415);
}

#[test]
fn holding_the_body_only_gives_the_length_up() {
    let mut proxy = Proxy::new();
    proxy.config.hold_at = HoldAt::Body;
    proxy.request(BODY);
    assert!(proxy.effects.contains(&Effect::RemoveRequestHeader("content-length".to_owned())));
    assert!(proxy.stream.holds_request());
}

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
}

#[test]
fn the_hold_is_counted_for_every_choice() {
    let mut proxy = Proxy::new();
    proxy.request(&BODY.replace("\"messages\"", "\"n\":5,\"max_tokens\":100,\"messages\""));
    let (reserve, _) = proxy.reserves().remove(0);
    assert_eq!((reserve.choices, reserve.max_output_tokens), (5, Some(100)));
}

#[test]
fn a_listed_request_reserves_no_tokens() {
    let mut proxy = Proxy::new();
    proxy.headers(&[(":method", "GET"), (":path", "/v1/models")]);
    let (reserve, _) = proxy.reserves().remove(0);
    assert_eq!((reserve.model, reserve.prompt_tokens, reserve.max_output_tokens), (None, 0, None));
    proxy.allow().head(200, true).end(true);
    let [settle] = &proxy.settles()[..] else { panic!("not settled once") };
    assert_eq!((settle.outcome, settle.sent), (Outcome::Released, true));
}

#[test]
fn what_is_not_metered_is_left_alone() {
    let mut preflight = Proxy::new();
    preflight.headers(&[(":method", "OPTIONS"), ("access-control-request-method", "POST")]);
    preflight.head(200, true).end(true);
    assert!(preflight.effects.is_empty() && !preflight.stream.holds_request());
}

#[test]
fn a_new_policy_refreshes_the_models() {
    let mut proxy = Proxy::new();
    proxy.request(BODY).answer(json!({"decision": "allow", "policy_version": "v2"}));
    assert!(proxy.effects.contains(&Effect::RefreshModels));
    let mut same = Proxy::new();
    same.request(BODY).allow();
    assert!(!same.effects.contains(&Effect::RefreshModels));
}

/// Any order of events, however odd: at most one reply, one settle for each reserve that was not answered
/// deny or gone, and never a resume after a refusal.
#[test]
fn any_order_of_events_settles_once() {
    use proptest::prelude::*;
    proptest!(|(order in proptest::collection::vec(0usize..13, 0..14), open: bool)| {
        let mut proxy = Proxy::new().failure_mode(if open { FailureMode::Open } else { FailureMode::Closed });
        proxy.body = BODY.as_bytes().to_vec();
        let mut must_settle = false;
        for event in &order {
            let was_reserving = matches!(proxy.stream, Stream::Reserving(_));
            match event {
                0 => proxy.headers(&[]),
                1 => proxy.step(Event::RequestBody { length: 10 }),
                2 => proxy.step(Event::RequestEnd { body: BODY.as_bytes() }),
                3 => proxy.allow(),
                4 => { must_settle &= !was_reserving; proxy.deny() }
                5 => proxy.step(Event::ReserveFailed(Failure::Connection)),
                6 => proxy.step(Event::ReserveFailed(Failure::Unusable)),
                7 => proxy.head(200, true),
                8 => proxy.head(503, false),
                9 => proxy.step(Event::ResponseBody { chunk: ANSWER, is_last: true }),
                10 => proxy.count_on(10),
                11 => proxy.step(Event::RequestPiece { bytes: b"" }),
                _ => proxy.step(Event::RewriteFailed),
            };
            must_settle |= matches!(proxy.stream, Stream::Reserving(_));
        }
        proxy.end(true);
        prop_assert!(proxy.replies().len() <= 1);
        prop_assert_eq!(proxy.settles().len(), usize::from(must_settle));
    });
}
