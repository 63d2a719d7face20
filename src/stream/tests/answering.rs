use super::*;

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
fn a_listed_request_reserves_no_tokens() {
    let mut proxy = Proxy::new();
    proxy.headers(&[(":method", "GET"), (":path", "/v1/models"), ("content-length", "0")]);
    let (reserve, _) = proxy.reserves().remove(0);
    assert_eq!((reserve.model, reserve.prompt_tokens, reserve.max_output_tokens), (None, 0, None));
    proxy.allow().head(200, true).end(true);
    let [settle] = &proxy.settles()[..] else { panic!("not settled once") };
    assert_eq!((settle.outcome, settle.sent), (Outcome::Released, true));
}

#[test]
fn what_is_not_metered_is_left_alone() {
    let mut passed = Proxy::new();
    passed.config.paths.other = config::OtherPaths::Pass;
    passed.headers(&[(":path", "/v1/audio"), ("authorization", "")]);
    let removed = Effect::RemoveRequestHeader("authorization".to_owned());
    assert!(passed.effects == [removed] && !passed.stream.holds_request());
    passed.head(200, true).end(true);
    assert_eq!(passed.effects.len(), 1);
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
fn a_settle_says_which_model_and_tier_answered() {
    for (named, model, is_other) in [
        ("gpt-4o", Some("gpt-4o"), false),
        ("GPT-4o-2024-08-06", Some("gpt-4o-2024-08-06"), false),
        ("openai/gpt-4o", Some("openai/gpt-4o"), false),
        ("gpt-4o-mini", Some("gpt-4o-mini"), true),
        ("gpt-4on", Some("gpt-4on"), true),
        ("o3", Some("o3"), true),
        ("", None, false),
    ] {
        let mut proxy = Proxy::new();
        let models = json!({"policy_version": "v1", "models": [
            {"name": "gpt-4o", "match": ["gpt-4o"]}, {"name": "gpt-4o-mini", "match": ["gpt-4o-mini*"]},
            {"name": "rest", "match": ["*"]}]});
        proxy.models = Models::new(serde_json::from_value(models).unwrap());
        proxy.request(BODY).allow().head(200, true);
        let answer = json!({"model": named, "service_tier": "flex", "choices": [],
            "usage": {"prompt_tokens": 8, "completion_tokens": 1}});
        proxy.step(Event::ResponseBody { chunk: answer.to_string().as_bytes(), is_last: true }).end(true);
        let settle = proxy.settles().remove(0);
        assert_eq!(
            (settle.model.as_deref(), settle.service_tier.as_deref()),
            (model, Some("flex")),
            "{named}"
        );
        let told = Measure::OtherModel { model: "gpt-4o".to_owned() };
        assert_eq!(proxy.measured(&told), is_other, "{named}");
    }
    // A model that the request names itself is the one that is charged.
    let mut proxy = Proxy::new();
    proxy.request(&BODY.replacen('{', r#"{"models":["o3"],"#, 1)).allow().head(200, true);
    proxy.step(Event::ResponseBody { chunk: br#"{"model":"o3","choices":[]}"#, is_last: true }).end(true);
    assert_eq!(proxy.settles().remove(0).model.as_deref(), Some("o3"));
    assert!(!proxy.measured(&Measure::OtherModel { model: "gpt-4o".to_owned() }));
    // An error's words are no answer's.
    let mut proxy = Proxy::new();
    proxy.request(BODY).allow().head(500, true);
    proxy
        .step(Event::ResponseBody { chunk: br#"{"model":"o3","service_tier":"flex"}"#, is_last: true })
        .end(true);
    let settle = proxy.settles().remove(0);
    assert_eq!((settle.model, settle.service_tier), (None, None));
}

#[test]
fn usage_is_not_asked_for_where_the_policy_says_never() {
    for (setting, asks) in [("ask", true), ("never", false)] {
        let mut proxy = Proxy::new();
        let models = json!({"policy_version": "v1", "models": [
            {"name": "gpt-4o", "match": ["gpt-4o"], "usage_chunk": setting}]});
        proxy.models = Models::new(serde_json::from_value(models).unwrap());
        proxy
            .request(r#"{"model":"gpt-4o","stream":true,"messages":[{"role":"user","content":"hi"}]}"#)
            .allow();
        let edits = |effect: &Effect| matches!(effect, Effect::RewriteBody(_));
        assert_eq!(proxy.effects.iter().any(edits), asks, "{setting}");
        // Nobody asked, so nothing is taken out.
        proxy.head(200, true);
        let chunk = b"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":8,\"completion_tokens\":1}}\n\n";
        proxy.step(Event::ResponseBody { chunk, is_last: false });
        let replaced = |effect: &Effect| matches!(effect, Effect::ReplaceResponseBody(_));
        assert_eq!(proxy.effects.iter().any(replaced), asks, "{setting}");
    }
}

#[test]
fn a_limit_that_was_granted_bounds_what_is_counted() {
    let mut proxy = Proxy::new();
    proxy.request(
        r#"{"model":"gpt-4o","stream":true,"max_tokens":90,"messages":[{"role":"user","content":"hi"}]}"#,
    );
    proxy.answer(json!({"decision": "allow", "account": "acc", "policy_version": "v1",
        "grant": {"max_output_tokens": 20}}));
    proxy.head(200, true);
    for _ in 0..10 {
        let chunk = b"data: {\"choices\":[{\"delta\":{\"content\":\" a b c d e f g h i j\"}}]}\n\n";
        proxy.step(Event::ResponseBody { chunk, is_last: false });
    }
    proxy.end(true);
    let usage = proxy.settles().remove(0).usage.unwrap();
    assert_eq!((usage.input, usage.output), (8, 20));
}
