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
        // 280 kB: the first two slices count where the model is known.
        assert_eq!(slices, if model.is_empty() { 2 } else { 4 });
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
