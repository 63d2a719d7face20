use super::*;

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
