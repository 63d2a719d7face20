use super::*;

/// The client is gone, or somebody else has answered, while the reserve is under way.
fn abandoned() -> [Proxy; 2] {
    let mut gone = Proxy::new();
    gone.request(BODY).end(false);
    let mut overtaken = Proxy::new();
    overtaken.request(BODY).head(408, false);
    [gone, overtaken]
}

#[test]
fn what_an_abandoned_reserve_held_is_given_back_when_it_is_answered() {
    for mut proxy in abandoned() {
        assert!(proxy.settles().is_empty() && proxy.stream.holds_request());
        proxy.allow().end(false);
        let [settle] = &proxy.settles()[..] else { panic!("not settled once") };
        assert_eq!((settle.outcome, settle.sent), (Outcome::Released, false));
        assert_eq!((settle.account.as_deref(), &settle.reserve), (Some("acc"), &None));
        assert!(!proxy.resumed());
    }
}

#[test]
fn an_abandoned_reserve_that_held_nothing_is_not_settled() {
    for mut proxy in abandoned() {
        proxy.deny().end(false);
        assert!(proxy.settles().is_empty() && proxy.replies().is_empty());
    }
    for mut proxy in abandoned() {
        proxy.answer(json!({"decision": "gone", "policy_version": "v1"})).end(false);
        assert!(proxy.settles().is_empty());
    }
}

#[test]
fn an_abandoned_reserve_without_an_answer_is_released_with_it() {
    for mut proxy in abandoned() {
        proxy.step(Event::ReserveFailed(Failure::Connection)).end(false);
        assert_eq!(proxy.reserves().len(), 1, "nobody waits for a second try");
        let [settle] = &proxy.settles()[..] else { panic!("not settled once") };
        assert_eq!((settle.outcome, settle.sent), (Outcome::Released, false));
        assert_eq!(settle.reserve.as_ref().unwrap().prompt_tokens, 8);
        assert!(settle.account.is_none() && !proxy.resumed());
    }
}

#[test]
fn the_settle_of_an_allowed_hold_can_be_booked_should_the_service_forget_it() {
    let kept = |proxy: &Proxy| {
        proxy.effects.iter().find_map(|effect| match effect {
            Effect::Settle { reserve, .. } => Some(reserve.as_ref().map(|one| one.prompt_tokens)),
            _ => None,
        })
    };
    let mut proxy = Proxy::new();
    proxy.request(BODY).allow().head(200, true);
    proxy.step(Event::ResponseBody { chunk: ANSWER, is_last: true }).end(true);
    assert_eq!(kept(&proxy), Some(Some(8)));
    assert!(proxy.settles()[0].reserve.is_none(), "the first settle is short");
    let mut unsent = Proxy::new();
    unsent.request(BODY).allow().end(false);
    assert_eq!(kept(&unsent), Some(None), "nothing was used");
}

#[test]
fn what_frees_a_slot_or_a_tight_budget_is_urgent() {
    let urgent = |grant: serde_json::Value, limits: serde_json::Value| {
        let mut proxy = Proxy::new();
        proxy.request(BODY).answer(json!({"decision": "allow", "account": "acc", "policy_version": "v1",
            "grant": grant, "limits": limits}));
        proxy.end(true);
        proxy.effects.iter().any(|effect| matches!(effect, Effect::Settle { frees: Some(_), .. }))
    };
    let limit = |metric: &str, remaining: u64, shadow: bool| {
        json!([{"name": "l", "scope": {}, "metric": metric, "limit": 1000, "remaining": remaining,
            "reset_ms": 1, "window_ms": 1, "shadow": shadow}])
    };
    let held = json!({"max_output_tokens": 500});
    for (grant, limits, expected) in [
        (json!({}), json!([]), false),
        (json!({"lease_ms": 60_000}), json!([]), true),
        (held.clone(), limit("tokens", 507, false), true),
        (held, limit("tokens", 508, false), false),
        (json!({}), limit("tokens", 249, false), true),
        (json!({}), limit("tokens", 249, true), false),
        (json!({}), limit("cost", 249, false), true),
        (json!({}), limit("cost", 250, false), false),
        (json!({}), limit("requests", 0, false), false),
    ] {
        assert_eq!(urgent(grant.clone(), limits.clone()), expected, "{grant} {limits}");
    }
}

#[test]
fn an_answer_says_whether_the_caller_is_known() {
    let learned = |answer: serde_json::Value| {
        let mut proxy = Proxy::new();
        proxy.request(BODY).answer(answer.clone());
        let mut gone = Proxy::new();
        gone.request(BODY).end(false).answer(answer);
        let known = |proxy: &Proxy| {
            proxy.effects.iter().find_map(|effect| match effect {
                Effect::LearnCaller { is_known, policy_version, .. } => {
                    assert_eq!(policy_version, "v1");
                    Some(*is_known)
                }
                _ => None,
            })
        };
        assert_eq!(known(&proxy), known(&gone));
        known(&proxy)
    };
    for (decision, reason, expected) in [
        ("allow", None, Some(true)),
        ("deny", Some("tpm_limit_exceeded"), Some(true)),
        ("deny", Some("unknown_key"), Some(false)),
        ("deny", Some("invalid_identity"), None),
        ("gone", None, None),
    ] {
        let answer = json!({"decision": decision, "reason": reason, "account": "a", "policy_version": "v1"});
        assert_eq!(learned(answer), expected, "{decision} {reason:?}");
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
fn gone_holds_nothing() {
    let mut proxy = Proxy::new();
    proxy.request(BODY).answer(json!({"decision": "gone", "policy_version": "v1"})).end(false);
    assert_eq!(proxy.refused_with(), (503, "tokengate_quota_unavailable"));
    assert!(proxy.settles().is_empty());
}

#[test]
fn the_hold_is_counted_for_every_choice() {
    let mut proxy = Proxy::new();
    proxy.request(&BODY.replace("\"messages\"", "\"n\":5,\"max_tokens\":100,\"messages\""));
    let (reserve, _) = proxy.reserves().remove(0);
    assert_eq!((reserve.choices, reserve.max_output_tokens), (5, Some(100)));
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

#[test]
fn the_reserve_says_who_calls_and_from_where() {
    let mut proxy = Proxy::new();
    let list = json!({"policy_version": "v1", "models": [], "asserted_headers": ["x-end-user"]});
    proxy.models = Models::new(serde_json::from_value(list).unwrap());
    proxy.headers(&[("x-end-user", "ann")]).step(Event::RequestEnd { body: BODY.as_bytes() });
    let (reserve, _) = proxy.reserves().remove(0);
    assert_eq!(reserve.asserted.get("x-end-user").unwrap(), "ann");
    assert_eq!(reserve.ip.as_deref(), Some("192.0.2.7"));
    assert!(proxy.effects.contains(&Effect::RemoveRequestHeader("x-end-user".to_owned())));
    let mut twice = Proxy::new();
    twice.models = proxy.models.clone();
    twice.headers(&[("x-end-user", "ann"), ("x-end-user", "ann")]);
    assert_eq!(twice.refused_with(), (401, "tokengate_ambiguous_identity"));
}

#[test]
fn a_verified_caller_takes_the_place_of_a_key() {
    let mut proxy = Proxy::new();
    proxy.config.identity =
        serde_json::from_value(json!({"sources": [{"trusted_header": {"tenant": "x-tenant"}}]})).unwrap();
    proxy.headers(&[("x-tenant", "acme")]).step(Event::RequestEnd { body: BODY.as_bytes() });
    let (reserve, _) = proxy.reserves().remove(0);
    assert_eq!((reserve.key_hash.as_str(), reserve.identity.unwrap().tenant.as_str()), ("", "acme"));
}

#[test]
fn a_decision_without_the_store_is_settled_so_that_it_can_be_booked() {
    let open = || json!({"decision": "allow", "account": "acc", "degraded": true, "policy_version": "v1"});
    let mut proxy = Proxy::new();
    proxy.request(BODY).answer(open()).head(200, true);
    proxy.step(Event::ResponseBody { chunk: ANSWER, is_last: true }).end(true);
    let [settle] = &proxy.settles()[..] else { panic!("not settled once") };
    assert_eq!((settle.account.as_deref(), settle.reserve.as_ref().unwrap().prompt_tokens), (Some("acc"), 8));
    // Nothing may be held, so that "held" would say nothing.
    let mut lost = Proxy::new();
    lost.request(BODY).answer(open()).end(true);
    assert_eq!(lost.settles()[0].usage.unwrap().total(), 8 + 20);
}

#[test]
fn other_models_that_may_answer_are_named_and_held_for() {
    let list = json!({"policy_version": "v1", "models": [
        {"name": "gpt-4o", "match": ["gpt-4o"], "max_output_tokens": 100, "default_output_tokens": 20},
        {"name": "big", "match": ["big*"], "tokenizer": "o200k_base", "default_output_tokens": 50},
        {"name": "old", "match": ["old"], "tokenizer": "cl100k_base",
         "output_limit": {"missing": "write_default"}}]});
    let ask = |members: &str| {
        let mut proxy = Proxy::new();
        proxy.models = Models::new(serde_json::from_value(list.clone()).unwrap());
        proxy.request(&BODY.replacen('{', &format!("{{{members}"), 1));
        proxy
    };
    let reserve = ask(r#""models":["Big-1","gpt-4o"," GPT-4o "],"fallbacks":[{"model":"big-1"}],"#)
        .reserves()
        .remove(0)
        .0;
    assert_eq!((reserve.models, reserve.prompt_tokens), (vec!["big-1".to_owned()], 8));
    let mut other = ask(r#""fallbacks":["old"],"service_tier":"flex","#);
    let (reserve, _) = other.reserves().remove(0);
    assert_eq!(reserve.models, ["old"]);
    assert_eq!(reserve.service_tier.as_deref(), Some("flex"));
    assert_eq!(reserve.prompt_tokens, 10, "counted by another encoding: a quarter more");
    other.allow();
    let written = other.effects.iter().any(|effect| matches!(effect, Effect::RewriteBody(_)));
    assert!(written, "what a model wants of a missing limit holds for whoever names it");
    let mut held = ask(r#""models":["big-1"],"#);
    held.allow();
    let model = "gpt-4o".to_owned();
    assert!(held.measured(&Measure::Held { model, prompt: 8, output: 50 }), "the largest of the defaults");
}

#[test]
fn a_member_that_nobody_knows_is_held_and_not_charged() {
    let mut proxy = Proxy::new();
    let member = format!(r#"{{"features":"{}","stream":true,"#, "word ".repeat(100));
    proxy.request(&BODY.replacen('{', &member, 1)).allow();
    let held = proxy.reserves()[0].0.prompt_tokens;
    assert!((108..=115).contains(&held), "{held}");
    proxy.end(true);
    let [settle] = &proxy.settles()[..] else { panic!("not settled once") };
    assert_eq!((settle.outcome, settle.usage.unwrap().input), (Outcome::Estimated, 8));
}
