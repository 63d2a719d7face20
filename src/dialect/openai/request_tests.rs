#![allow(clippy::unwrap_used)]

use super::*;
use crate::edits::Edits;

const MESSAGES: &str = r#""messages":[{"role":"user","content":"hi"}]"#;

fn body(members: &str) -> String {
    format!(r#"{{"model":"gpt-4o",{MESSAGES}{members}}}"#)
}

fn param_of(body: &str) -> Option<&'static str> {
    parse(body.as_bytes()).unwrap_err().param
}

#[test]
fn a_plain_request() {
    let text = body("");
    let request = parse(text.as_bytes()).unwrap();
    assert_eq!(request.model, "gpt-4o");
    assert!(!request.stream && request.include_usage().is_none());
    assert_eq!((request.choices, request.max_output_tokens()), (1, None));
}

#[test]
fn null_is_absent() {
    let text = body(r#","n":null,"max_tokens":null,"stream":null,"max_completion_tokens":null"#);
    let request = parse(text.as_bytes()).unwrap();
    assert_eq!((request.stream, request.choices, request.max_output_tokens()), (false, 1, None));
}

#[test]
fn what_cannot_be_read_is_refused_by_name() {
    for (members, param) in [
        (r#","max_tokens":"100""#, "max_tokens"),
        (r#","max_tokens":-2"#, "max_tokens"),
        (r#","max_tokens":0"#, "max_tokens"),
        (r#","max_tokens":100.5"#, "max_tokens"),
        (r#","max_tokens":true"#, "max_tokens"),
        (r#","max_tokens":[]"#, "max_tokens"),
        (r#","n_predict":0"#, "n_predict"),
        (r#","n_cmpl":0"#, "n_cmpl"),
        (r#","best_of":500"#, "best_of"),
        (r#","service_tier":1"#, "service_tier"),
        (r#","models":"gpt-4o""#, "models"),
        (r#","fallbacks":[{"model":"x","n":5}]"#, "fallbacks"),
        (r#","deployment_id":"x""#, "deployment_id"),
        (r#","user_config":{"model_list":[]}"#, "user_config"),
        (r#","additional_drop_params":["max_tokens"]"#, "additional_drop_params"),
        (r#","extra_body":{"model":"o3"}"#, "extra_body"),
        (r#","Model":"o3""#, "model"),
        (r#","Max_Tokens":5"#, "max_tokens"),
        (r#","max_to\u212aens":5"#, "max_tokens"),
        (r#","\u017ftream":true"#, "stream"),
        (r#","N":5"#, "n"),
        (r#","Fallbacks":[]"#, "fallbacks"),
        (r#","Service_Tier":"flex""#, "service_tier"),
        (r#","stream_options":{"INCLUDE_USAGE":false}"#, "stream_options.include_usage"),
        (r#","n":0"#, "n"),
        (r#","n":129"#, "n"),
        (r#","n":"3""#, "n"),
        (r#","n":1.5"#, "n"),
        (r#","stream":"true""#, "stream"),
        (r#","stream":1"#, "stream"),
        (r#","stream_options":[]"#, "stream_options"),
        (r#","stream_options":"x""#, "stream_options"),
        (r#","stream":true,"stream_options":{"include_usage":1}"#, "stream_options.include_usage"),
        (
            r#","stream_options":{"include_usage":true,"include\u005fusage":false}"#,
            "stream_options.include_usage",
        ),
        (r#","max_tokens":1,"max_tokens":2"#, "max_tokens"),
        (r#","str\u0065am":true,"stream":false"#, "stream"),
        (r#","model":"gpt-4o""#, "model"),
        (r#","messages":[]"#, "messages"),
    ] {
        assert_eq!(param_of(&body(members)), Some(param), "{members}");
    }
    for (text, param) in [
        ("{}", "model"),
        (r#"{"model":null,"messages":[]}"#, "model"),
        (r#"{"model":4,"messages":[]}"#, "model"),
        (r#"{"model":"x"}"#, "messages"),
        (r#"{"model":"x","messages":{}}"#, "messages"),
        (r#"{"model":"x","messages":"hi"}"#, "messages"),
        (r#"{"model":"x","messages":["hi"]}"#, "messages"),
        (r#"{"model":"x","messages":[null]}"#, "messages"),
    ] {
        assert_eq!(param_of(text), Some(param), "{text}");
    }
    for text in ["", "nope", "[]", "{", "null", "\u{feff}{}", "{\"model\":\"x\",\"messages\":[]} x", "\u{0}"]
    {
        assert_eq!(param_of(text), None, "{text:?}");
    }
    assert_eq!(parse(b"{\"model\":\"\xff\"}").unwrap_err().param, None);
}

#[test]
fn a_refusal_does_not_repeat_the_body() {
    let error = parse(br#"{"secret prompt": nope"#).unwrap_err();
    assert!(!error.message.contains("secret"), "{}", error.message);
}

#[test]
fn the_usage_chunk_is_asked_for_in_place() {
    for (members, expected) in [
        ("", r#"{"stream_options":{"include_usage":true},"model":"gpt-4o","#),
        (r#","stream_options":null"#, r#""stream_options":{"include_usage":true}"#),
        (r#","stream_options": {}"#, r#""stream_options": {"include_usage":true}"#),
        (
            r#","stream_options":{"include_obfuscation":false}"#,
            r#"{"include_usage":true,"include_obfuscation":false}"#,
        ),
        (r#","stream_options":{ "a":1, "include_usage": false }"#, r#"{ "a":1, "include_usage": true }"#),
        (r#","stream_options":{"include_usage":null}"#, r#"{"include_usage":true}"#),
    ] {
        let text = body(&format!(r#","stream":true{members}"#));
        let mut edits = Edits::default();
        edits.push(parse(text.as_bytes()).unwrap().include_usage().unwrap());
        let new = String::from_utf8(edits.apply(text.as_bytes()).unwrap()).unwrap();
        assert!(new.contains(expected), "{new}");
        assert_eq!(edits.new_length(text.len()), new.len());
        let again = parse(new.as_bytes()).unwrap();
        assert!(again.stream && again.include_usage().is_none(), "{new}");
    }
}

#[test]
fn the_usage_chunk_is_not_asked_for_where_it_makes_no_sense() {
    for members in [
        "",
        r#","stream":false"#,
        r#","stream_options":{"include_usage":false}"#,
        r#","stream":true,"stream_options":{"include_usage":true}"#,
    ] {
        assert_eq!(parse(body(members).as_bytes()).unwrap().include_usage(), None, "{members}");
    }
}

#[test]
fn the_largest_limit_counts_and_each_above_the_cap_is_lowered() {
    let text = body(r#", "max_tokens" : 5000.0 ,"max_completion_tokens":4294967296,"n":5"#);
    let request = parse(text.as_bytes()).unwrap();
    assert_eq!((request.max_output_tokens(), request.choices), (Some(4_294_967_296), 5));
    let capped = |cap| {
        let mut edits = Edits::default();
        request.output_limits().keep_to(cap, false, &mut edits);
        String::from_utf8(edits.apply(text.as_bytes()).unwrap()).unwrap()
    };
    assert!(capped(4096).contains(r#", "max_tokens" : 4096 ,"max_completion_tokens":4096,"n":5"#));
    assert!(capped(6000).contains(r#", "max_tokens" : 5000.0 ,"max_completion_tokens":6000,"n":5"#));
    assert_eq!(capped(u64::MAX), text);
}

#[test]
fn the_most_choices_count() {
    for (members, choices) in
        [(r#","n":2,"n_cmpl":7"#, 7), (r#","best_of":3"#, 3), (r#","n":5,"best_of":null"#, 5)]
    {
        assert_eq!(parse(body(members).as_bytes()).unwrap().choices, choices, "{members}");
    }
}

#[test]
fn other_models_and_the_tier_are_read() {
    let text =
        body(r#","models":["a"],"fallbacks":[{"model":"b"}],"service_tier":"priority","extra_body":{"x":1}"#);
    let request = parse(text.as_bytes()).unwrap();
    assert_eq!(request.alternatives, ["a", "b"]);
    assert_eq!(request.service_tier.as_deref(), Some("priority"));
}

proptest::proptest! {
    #[test]
    fn never_panics(bytes: Vec<u8>) {
        let _ = parse(&bytes);
    }

    #[test]
    fn any_value_of_a_member_is_read_or_refused(value in "[-0-9.eE\"\\[\\]{}truefalsn:,]{1,12}") {
        for name in ["n", "max_tokens", "stream", "stream_options", "messages", "model", "tools"] {
            let text = format!(r#"{{"model":"m","messages":[],"{name}":{value}}}"#);
            let _ = parse(text.as_bytes());
        }
    }
}
