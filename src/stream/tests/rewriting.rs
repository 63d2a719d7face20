use super::*;
use crate::edits::Edits;

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
        while proxy.stream.counts_kept() {
            proxy.step(Event::RequestPiece { bytes: &[] });
        }
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

/// The body that a model which treats a missing limit so makes of a request, and the reserve.
fn written(missing: &str, body: &str, grant: serde_json::Value) -> (Option<String>, ReserveRequest) {
    let mut proxy = Proxy::new();
    proxy.models = models(missing);
    let grant = json!({"max_output_tokens": grant});
    proxy.request(body).answer(json!({"decision": "allow", "grant": grant, "policy_version": "v1"}));
    let edited = proxy.effects.iter().find_map(|effect| match effect {
        Effect::RewriteBody(Rewrite { edits, .. }) => {
            Some(String::from_utf8(edits.apply(body.as_bytes()).unwrap()).unwrap())
        }
        _ => None,
    });
    (edited, proxy.reserves().remove(0).0)
}

fn models(missing: &str) -> Models {
    let models = json!({"policy_version": "v1", "models": [
        {"name": "gpt-4o", "match": ["gpt-4o"], "max_output_tokens": 100, "default_output_tokens": 20,
         "output_limit": {"missing": missing}}]});
    Models::new(serde_json::from_value(models).unwrap())
}

#[test]
fn a_missing_limit_is_written_where_one_was_granted_or_is_wanted() {
    let front = |members: &str| BODY.replacen('{', &format!("{{{members}"), 1);
    for (missing, grant, expected) in [
        ("hold_default", json!(null), None),
        ("hold_default", json!(13), Some(front(r#""max_tokens":13,"#))),
        ("write_default", json!(null), Some(front(r#""max_tokens":20,"#))),
        ("write_default", json!(7), Some(front(r#""max_tokens":7,"#))),
        ("hold_max", json!(null), None),
    ] {
        let (edited, reserve) = written(missing, BODY, grant.clone());
        assert_eq!(edited, expected, "{missing} {grant}");
        assert!(reserve.can_clamp && reserve.max_output_tokens.is_none());
    }
    let null = front(r#""max_completion_tokens":null,"max_tokens": null ,"#);
    assert_eq!(
        written("write_default", &null, json!(null)).0,
        Some(front(r#""max_completion_tokens":null,"max_tokens": 20 ,"#)),
        "a second member would be ambiguous"
    );
    let streamed = front(r#""stream":true,"#);
    let both = r#"{"max_tokens":20,"stream_options":{"include_usage":true},"#;
    assert_eq!(written("write_default", &streamed, json!(null)).0.unwrap(), streamed.replacen('{', both, 1));
}

#[test]
fn a_reasoning_model_gets_the_limit_by_the_name_that_it_takes() {
    let mut edits = Edits::default();
    let limits = crate::dialect::openai::parse(BODY.as_bytes()).unwrap().output_limits();
    limits.keep_to(9, true, &mut edits);
    let edited = edits.apply(BODY.as_bytes()).unwrap();
    assert!(edited.starts_with(br#"{"max_completion_tokens":9,"model""#));
}

#[test]
fn a_missing_limit_can_be_refused_and_a_given_one_is_not() {
    let mut proxy = Proxy::new();
    proxy.models = models("refuse");
    proxy.request(BODY);
    assert_eq!(proxy.refused_with(), (400, "tokengate_invalid_request"));
    assert_eq!(json_of(proxy.replies()[0])["error"]["param"], "max_completion_tokens");
    let given = BODY.replacen('{', r#"{"max_tokens":5,"#, 1);
    assert_eq!(written("refuse", &given, json!(5)).0, None);
}

#[test]
fn output_is_called_unbounded_where_nothing_bounds_it() {
    for (missing, grant, unbounded) in [
        ("hold_default", json!(null), true),
        ("hold_default", json!(13), false),
        ("write_default", json!(null), false),
        ("hold_max", json!(null), false),
    ] {
        let mut proxy = Proxy::new();
        proxy.models = models(missing);
        let grant = json!({"max_output_tokens": grant});
        proxy.request(BODY).answer(json!({"decision": "allow", "grant": grant, "policy_version": "v1"}));
        let told = proxy
            .effects
            .iter()
            .any(|effect| matches!(effect, Effect::Measure(Measure::UnboundedOutput { .. })));
        assert_eq!(told, unbounded, "{missing}");
    }
}

#[test]
fn a_body_with_a_digest_goes_on_as_it_came_or_not_at_all() {
    for name in ["content-md5", "digest", "content-digest", "repr-digest", "signature"] {
        let with = |missing: &str, members: &str| {
            let mut proxy = Proxy::new();
            proxy.models = models(missing);
            let body = format!(r#"{{"model":"gpt-4o",{members}"messages":[]}}"#);
            proxy.headers(&[(name, "any")]).step(Event::RequestEnd { body: body.as_bytes() });
            proxy
        };
        for members in [
            r#""max_tokens":50,"#,
            r#""max_tokens":50,"stream":true,"stream_options":{"include_usage":true},"#,
            r#""max_tokens":-1,"#,
            "",
        ] {
            let mut proxy = with("hold_default", members);
            assert!(!proxy.reserves()[0].0.can_clamp);
            proxy.answer(json!({"decision": "allow", "account": "acc", "policy_version": "v1", "limits": [],
                "grant": {"max_output_tokens": 10}}));
            assert!(proxy.resumed() && !proxy.effects.iter().any(|e| matches!(e, Effect::RewriteBody(_))));
        }
        for (missing, members, param, names) in [
            ("hold_default", r#""max_tokens":101,"#, "max_tokens", "above 100"),
            ("hold_default", r#""max_tokens":50,"n_predict":-1,"#, "max_tokens", "above 50"),
            ("hold_default", r#""n_predict":50,"#, "max_tokens", "must be given"),
            ("write_default", "", "max_tokens", "such as 20"),
            ("write_default", r#""max_tokens":-1,"#, "max_tokens", "such as 20"),
            ("hold_default", r#""max_tokens":50,"stream":true,"#, "stream_options", "'include_usage': true"),
        ] {
            let proxy = with(missing, members);
            assert_eq!(proxy.refused_with().0, 400, "{members}");
            assert!(proxy.reserves().is_empty());
            let error = json_of(proxy.replies()[0]);
            assert_eq!(error["error"]["param"], param);
            let message = error["error"]["message"].as_str().unwrap();
            assert!(message.contains(names) && message.contains("send no digest"), "{message}");
        }
    }
}

#[test]
fn no_limit_is_no_limit_and_is_replaced_where_one_is_written() {
    let front = |members: &str| BODY.replacen('{', &format!("{{{members}"), 1);
    let unlimited = front(r#""max_tokens":-1,"n_predict":-1.0,"#);
    for (missing, grant, expected) in [
        ("hold_default", json!(null), None),
        ("hold_max", json!(null), None),
        ("hold_default", json!(13), Some(front(r#""max_tokens":13,"n_predict":13,"#))),
        ("write_default", json!(null), Some(front(r#""max_tokens":20,"n_predict":20,"#))),
    ] {
        let (edited, reserve) = written(missing, &unlimited, grant);
        assert_eq!((edited, reserve.max_output_tokens), (expected, None), "{missing}");
    }
    let beside = front(r#""max_tokens":50,"n_predict":-1,"#);
    assert_eq!(
        written("hold_default", &beside, json!(50)).0,
        Some(front(r#""max_tokens":50,"n_predict":50,"#)),
        "some servers would read the second"
    );
    let huge = front(r#""max_tokens":99999999999999999999,"#);
    let (edited, reserve) = written("hold_default", &huge, json!(null));
    assert_eq!((edited, reserve.max_output_tokens), (Some(front(r#""max_tokens":100,"#)), Some(100)));
    let mut proxy = Proxy::new();
    proxy.models = models("refuse");
    proxy.request(&unlimited);
    assert_eq!(proxy.refused_with().0, 400);
}

#[test]
fn a_limit_that_not_every_server_knows_is_written_by_a_name_that_they_do() {
    let body = BODY.replacen('{', r#"{"n_predict":16000,"#, 1);
    let (edited, reserve) = written("hold_default", &body, json!(100));
    assert_eq!(reserve.max_output_tokens, Some(100));
    assert_eq!(edited, Some(BODY.replacen('{', r#"{"max_tokens":100,"n_predict":100,"#, 1)));
    // What is to be written at least bounds nothing, and is held.
    let body = BODY.replacen('{', r#"{"min_tokens":90,"#, 1);
    let (edited, reserve) = written("hold_default", &body, json!(null));
    assert_eq!((edited, reserve.max_output_tokens), (None, Some(90)));
    let body = BODY.replacen('{', r#"{"min_tokens":3,"#, 1);
    assert_eq!(written("hold_default", &body, json!(null)).1.max_output_tokens, None);
}

#[test]
fn what_has_no_body_is_not_written_into() {
    let mut proxy = Proxy::new();
    proxy.headers(&[(":method", "GET"), (":path", "/v1/models"), ("content-length", "0")]);
    proxy.answer(json!({"decision": "allow", "grant": {"max_output_tokens": 5}, "policy_version": "v1"}));
    assert!(proxy.resumed() && !proxy.effects.iter().any(|e| matches!(e, Effect::RewriteBody(_))));
}
