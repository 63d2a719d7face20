#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use proptest::prelude::*;

use super::*;
use crate::dialect::openai::parse;
use crate::json::{Binary, Member, elements, members, text};
use crate::stream::SLICE;
use crate::tokenizer::{Encoding, HIDDEN_TOKENS, MEDIA_TOKENS, MESSAGE_OVERHEAD, NAME_OVERHEAD, steps_of};

#[path = "prompt_reference.rs"]
mod reference;

const ENCODINGS: [Encoding; 2] = [Encoding::O200kBase, Encoding::Cl100kBase];

/// Counts a body that arrives in these pieces, as a stream does: from Envoy's buffer, at whatever place.
/// Gives the prompt's tokens and those of unknown members, or nothing where it is ambiguous.
fn read_pieces(
    body: &[u8],
    ends: impl IntoIterator<Item = usize>,
    encoding: Encoding,
    model: &str,
) -> Option<(u64, u64)> {
    let mut prompt = Prompt::default();
    let rules = Rules::new(encoding, model);
    let mut read = 0;
    for end in ends.into_iter().chain([body.len()]) {
        while prompt.position() < end {
            let from = prompt.position();
            prompt.push(&body[from..end], |_| Some(rules));
            read += end - from;
        }
    }
    prompt.choose(rules);
    while prompt.position() < body.len() {
        let end = (prompt.position() + 50).min(body.len());
        prompt.push(&body[prompt.position()..end], |_| None);
    }
    assert!(read <= 1_000_000 || read <= 40 * body.len());
    assert!(prompt.is_done(), "{}", String::from_utf8_lossy(body));
    prompt.fault().is_none().then(|| (prompt.tokens(model), prompt.unknown_tokens()))
}

fn count_pieces(body: &[u8], ends: impl IntoIterator<Item = usize>, encoding: Encoding, model: &str) -> u64 {
    read_pieces(body, ends, encoding, model).unwrap().0
}

fn count(body: &str, encoding: Encoding) -> u64 {
    count_pieces(body.as_bytes(), [], encoding, "gpt-4o")
}

#[track_caller]
fn check_all_cuts(body: &str) {
    parse(body.as_bytes()).unwrap();
    for encoding in ENCODINGS {
        let whole = reference::prompt_tokens(body, encoding, "gpt-4o");
        let read = |ends: Vec<usize>| read_pieces(body.as_bytes(), ends, encoding, "gpt-4o");
        assert_eq!(read(vec![]), whole, "{body}");
        assert_eq!(read((0..body.len()).collect()), whole, "{body}");
        for cut in 0..body.len() {
            assert_eq!(read(vec![cut]), whole, "cut at {cut}: {body}");
        }
    }
}

fn prompt(encoding: Encoding, messages: &str) -> u64 {
    count(&format!(r#"{{"model":"m","messages":{messages}}}"#), encoding)
}

#[test]
fn published_framing() {
    for (messages, cl100k, o200k) in [
        (r#"[{"role":"user","content":"hi"}]"#, 8, 8),
        (r#"[{"role":"user","content":""}]"#, 7, 7),
        (r#"[{"role":"user","content":null}]"#, 7, 7),
        (r#"[{"role":"user","content":"hi","name":"alice"}]"#, 10, 10),
        (r#"[{"role":"system","content":"You are terse."},{"role":"user","content":"hi"}]"#, 16, 16),
        (r#"[{"role":"user","content":"你好世界"}]"#, 12, 9),
        (r#"[{"role":"user","content":"\u4f60\u597d\u4e16\u754c"}]"#, 12, 9),
        (r#"[{"role":"user","content":"<|endoftext|>"}]"#, 14, 14),
        (r#"[{"role":"user","content":[{"type":"text","text":"hi"},null]}]"#, 8, 8),
        ("[]", 3, 3),
    ] {
        assert_eq!(prompt(Encoding::Cl100kBase, messages), cl100k, "{messages}");
        assert_eq!(prompt(Encoding::O200kBase, messages), o200k, "{messages}");
    }
}

#[test]
fn every_shape_of_content_has_a_count() {
    for (content, least, most) in [
        ("42", 1, 1),
        ("true", 1, 1),
        ("{}", 1, 2),
        (r#"[42,"loose",[],{}]"#, 4, 8),
        (r#"[{"type":"video_url","video_url":{"url":"x"}}]"#, 2_000, 2_000),
        (r#"[{"type":"tool_result","content":[{"type":"text","text":"ok"}]}]"#, 10, 40),
        (r#"[{"type":"image_url","image_url":null}]"#, 0, 0),
        (r#"[{"type":"image_url","image_url":"data:image/png;base64,AAAA"}]"#, 1445, 1445),
        (r#"[{"type":"image_url","image_url":{"url":"https://x/","detail":"low"}}]"#, 85, 85),
        (r#"[{"type":"input_audio"},{"type":"file","file":{}}]"#, 4_000, 4_000),
    ] {
        let counted = prompt(Encoding::O200kBase, &format!(r#"[{{"content":{content}}}]"#)) - 6;
        assert!((least..=most).contains(&counted), "{content}: {counted}");
    }
}

#[test]
fn tools_and_schemas_are_counted() {
    for members in [
        r#""tools":[{"type":"function","function":{"name":"weather","description":"Get it now."}}]"#,
        r#""response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"object"}}}"#,
        r#""messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function",
            "function":{"name":"f","arguments":"{\"city\":\"Bern\"}"}}]}]"#,
    ] {
        assert!(count(&format!(r#"{{"model":"m",{members}}}"#), Encoding::O200kBase) > 13, "{members}");
    }
}

#[test]
fn tools_are_counted_by_the_rule_or_as_they_are_written() {
    let tool = |name: &str| {
        format!(
            r#"{{"type":"function","function":{{"name":"{name}","description":"Get it.","parameters":{{"type":"object","properties":{{}}}}}}}}"#
        )
    };
    let counted = |tools: &str| {
        count(&format!(r#"{{"model":"m","tools":[{tools}],"messages":[]}}"#), Encoding::O200kBase)
    };
    assert_eq!(counted(&tool("weather")), 3 + 7 + Encoding::O200kBase.count("weather:Get it") + 12);
    let odd = tool("weather").replace("strict", "").replace("description", "title");
    assert_eq!(counted(&odd), 3 + Encoding::O200kBase.count(&format!("[{odd}]")));
    let many = vec![tool("weather"); 200].join(",");
    assert_eq!(counted(&many), 3 + Encoding::O200kBase.count(&format!("[{many}]")));
    check_all_cuts(&format!(r#"{{"model":"m","tools":[{}],"messages":[]}}"#, tool("x")));
}

#[test]
fn wherever_a_body_is_cut() {
    for body in [
        r#"{"model":"gpt-4o","messages":[{"role":"user","content":"It's \"so\", 1\u0032 caf\u00e9 \ud83d\ude00\ud800x \n"}]}"#,
        r#" { "messages" : [ {"content":[ {"text":"late type","type":"text"} , "loose" , 5 , null , [1, 2] ] } ] , "model" : "m" } "#,
        r#"{"tools":[{"a":"]}"}],"m\u006fdel":"m","functions":"text","response_format":-1.5e3,"messages":[]}"#,
        r#"{"model":"m","messages":[{"content":[{"type":"text","text":"a","refusal":"the other"},
            {"text":"said","refusal":"no","type":"refusal"},{"type":"text"},{"type":"text","text":null},
            {"type":"refusal","refusal":["x"]},{"type":3,"text":"x"},{"type":"image_url","image_url":{"detail":"low","url":"x"}},
            {"image_url":{"detail":"high"},"type":"image_url"},{"type":"odd","b":{"c":"}"}},{}]},
            {"name":null,"content":{"a":1}},{"name":2,"content":true},{"x":{"url":"y"}},{}]}"#,
    ] {
        check_all_cuts(body);
    }
}

/// The parameter that a refusal would name.
fn fault(members: &str) -> Option<&'static str> {
    let body = format!(r#"{{"model":"m",{members}}}"#);
    parse(body.as_bytes()).map_or_else(
        |error| error.param,
        |_| {
            let mut prompt = Prompt::default();
            // Every cut falls into a name once.
            while prompt.position() < body.len() {
                let from = prompt.position();
                prompt.push(&body.as_bytes()[from..from + 1], |_| Some(Rules::new(Encoding::O200kBase, "m")));
            }
            prompt.fault().map(|fault| fault.name())
        },
    )
}

#[test]
fn what_two_servers_read_in_two_ways_is_told_at_every_depth() {
    let parts = |part: &str| format!(r#""messages":[{{"content":[{{{part}}}]}}]"#);
    for (members, param) in [
        (r#""messages":[{"role":"user","Content":"hi"}]"#.to_owned(), "messages.content"),
        (r#""messages":[{"content":"hi","c\u006fntent":"more"}]"#.to_owned(), "messages.content"),
        (r#""messages":[{},{"role":"user","ROLE":"system"}]"#.to_owned(), "messages.role"),
        (r#""messages":[{"\u004eame":"x"}]"#.to_owned(), "messages.name"),
        (r#""messages":[{"tool_call\u017f":[]}]"#.to_owned(), "messages.tool_calls"),
        (parts(r#""type":"text","text":"hi","Text":"more""#), "messages.content.text"),
        (parts(r#""type":"text","Type":"image_url""#), "messages.content.type"),
        (parts(r#""type":"text","type":"text""#), "messages.content.type"),
        (parts(r#""type":"image_url","image_url":"a","IMAGE_URL":"b""#), "messages.content.image_url"),
        (parts(r#""image_url":{"detail":"low","detail":"high"}"#), "messages.content.image_url.detail"),
        (parts(r#""image_url":{"detail":"low","Detail":"high"}"#), "messages.content.image_url.detail"),
        (parts(r#""Video_Url":{}"#), "messages.content.video_url"),
        (r#""messages":[],"tools":[{"type":"function","Function":{}}]"#.to_owned(), "tools.function"),
        (r#""messages":[],"tools":[{"function":{"name":"a","Name":"b"}}]"#.to_owned(), "tools.function.name"),
        (
            r#""messages":[],"tools":[{"function":{"parameters":{},"parameters":{}}}]"#.to_owned(),
            "tools.function.parameters",
        ),
        (r#""messages":[],"prediction":{"content":"a","Content":"b"}"#.to_owned(), "prediction.content"),
        (r#""messages":[],"prediction":{"content":[{"Text":"b"}]}"#.to_owned(), "messages.content.text"),
        (r#""messages":[],"Messages":[]"#.to_owned(), "messages"),
        (r#""messages":[],"Model":"o3""#.to_owned(), "model"),
        (r#""messages":[],"input_ids":[],"input_id\u017f":[]"#.to_owned(), "input_ids"),
        (
            r#""messages":[],"stream_options":{"Include_Usage":false}"#.to_owned(),
            "stream_options.include_usage",
        ),
    ] {
        assert_eq!(fault(&members), Some(param), "{members}");
    }
}

#[test]
fn names_that_are_the_clients_are_left_alone() {
    let schema = r#"{"type":"object","Type":"x","properties":{"name":{},"Name":{},"text":{},"text":{}}}"#;
    for members in [
        format!(
            r#""messages":[],"tools":[{{"type":"function","function":{{"name":"f","parameters":{schema}}}}}]"#
        ),
        format!(
            r#""messages":[],"response_format":{{"type":"json_schema","json_schema":{schema},"Type":1}}"#
        ),
        r#""messages":[],"metadata":{"model":"o3","Model":"o3","model":1},"logit_bias":{"N":1,"n":1}"#
            .to_owned(),
        r#""messages":[{"tool_calls":[{"function":{"name":"f","arguments":{"Name":1,"name":1}}}]}]"#
            .to_owned(),
        r#""messages":[{"content":{"Text":"a","text":"b"},"x":{"Role":1}," content":"a","content ":"b"}]"#
            .to_owned(),
        r#""messages":[{"content":[{"type":"odd","x":{"Text":"a","text":1,"text":2}}]}]"#.to_owned(),
        r#""messages":[],"chat_template_kwargs":{"Messages":1},"x":1,"X":2,"model ":"o3","mod\u0000el":1"#
            .to_owned(),
    ] {
        assert_eq!(fault(&members), None, "{members}");
    }
}

/// What a member costs beside a request that is otherwise empty: in the prompt, and as an unknown one.
fn worth(member: &str) -> (u64, u64) {
    let body = format!(r#"{{"model":"m","messages":[],{member}}}"#);
    let (prompt, unknown) = read_pieces(body.as_bytes(), [], Encoding::O200kBase, "gpt-4o").unwrap();
    (prompt - 3, unknown)
}

#[test]
fn members_that_bring_input_are_counted() {
    let words = "word ".repeat(500);
    let ids = vec!["1"; 5_000].join(",");
    for (member, prompt) in [
        (format!(r#""input_ids":[{ids}]"#), 5_000 - 3),
        (format!(r#""input_ids":[[{ids}],[{ids}]]"#), 10_000 - 3),
        (r#""input_ids":[1]"#.to_owned(), 0),
        (r#""input_ids":null"#.to_owned(), 0),
        (format!(r#""documents":[{{"text":"{words}"}}]"#), 507),
        (format!(r#""chat_template":"{words}""#), 501),
        (format!(r#""chat_template_kwargs":{{"x":"{words}"}}"#), 505),
        (format!(r#""prediction":{{"type":"content","content":"{words}"}}"#), 501),
        (format!(r#""prediction":{{"type":"content","content":[{{"type":"text","text":"{words}"}}]}}"#), 501),
        (format!(r#""prediction":"{words}""#), 501),
        (r#""prediction":null,"documents":null"#.to_owned(), 0),
        (r#""data_sources":[{}]"#.to_owned(), HIDDEN_TOKENS + 1),
        (r#""session_params":{}"#.to_owned(), HIDDEN_TOKENS + 1),
        (r#""lora_path":"x""#.to_owned(), HIDDEN_TOKENS + 3),
    ] {
        let (counted, unknown) = worth(&member);
        assert!(
            counted.abs_diff(prompt) <= 3 && unknown == 0,
            "{}: {counted}",
            &member[..40.min(member.len())]
        );
    }
}

#[test]
fn a_long_member_that_nobody_knows_is_held_and_not_charged() {
    let words = "word ".repeat(500);
    assert_eq!(worth(&format!(r#""features":{{"a":"{words}"}}"#)).0, 0);
    let (_, unknown) = worth(&format!(r#""features":{{"a":"{words}"}}"#));
    assert!((500..=510).contains(&unknown), "{unknown}");
    assert_eq!(worth(&format!(r#""features":"{}""#, "w".repeat(254))), (0, 0));
    assert_ne!(worth(&format!(r#""features":"{}""#, "w".repeat(255))), (0, 0));
    for name in ["metadata", "user", "logit_bias", "stop", "tool_choice", "provider", "guided_json"] {
        assert_eq!(worth(&format!(r#""{name}":["{words}"]"#)), (0, 0), "{name}");
    }
    let media = format!(r#""files":[{{"data":"{}"}}]"#, "QUJD".repeat(10_000));
    assert!((2_000..2_020).contains(&worth(&media).1));
    assert_eq!(worth(r#""logo":"data:image/png;base64,QUJD""#), (0, 0));
}

/// Tokens of one content part.
fn part(part: &str) -> u64 {
    prompt(Encoding::O200kBase, &format!(r#"[{{"content":[{part}]}}]"#)) - 6
}

#[test]
fn base64_in_a_part_is_media_and_never_text() {
    let data = "QUJDZGVm".repeat(40_000);
    let url = format!("data:video/mp4;base64,{data}");
    for kind in ["video_url", "audio_url", "document_url"] {
        assert_eq!(
            part(&format!(r#"{{"type":"{kind}","{kind}":{{"url":"{url}"}}}}"#)),
            MEDIA_TOKENS,
            "{kind}"
        );
    }
    for kind in ["image", "document", "audio", "video", "file", "input_file", "input_audio", "input_image"] {
        let source = format!(r#"{{"type":"base64","media_type":"x/y","data":"{data}"}}"#);
        assert_eq!(part(&format!(r#"{{"type":"{kind}","source":{source}}}"#)), MEDIA_TOKENS, "{kind}");
        assert_eq!(part(&format!(r#"{{"{kind}":"{url}","type":"{kind}"}}"#)), MEDIA_TOKENS, "{kind}");
    }
    for odd in [
        format!(r#"{{"type":"odd","x":[{{"y":"{url}"}}]}}"#),
        format!(r#"{{"type":"odd","data":"{data}"}}"#),
        format!(r#"{{"type":"tool_result","content":[{{"type":"image","source":{{"data":"{data}"}}}}]}}"#),
    ] {
        assert!((MEDIA_TOKENS..MEDIA_TOKENS + 40).contains(&part(&odd)), "{}", part(&odd));
    }
    let twice = part(&format!(r#"{{"type":"odd","a":"{url}","b":"{url}"}}"#));
    assert!((2 * MEDIA_TOKENS..2 * MEDIA_TOKENS + 40).contains(&twice), "{twice}");
    // Also where the part has no type, and a server tells it by what it holds.
    assert_eq!(part(r#"{"video_url":{"url":"https://x/"}}"#), MEDIA_TOKENS);
    let (full, low) = (image::tokens("gpt-4o", false), image::tokens("gpt-4o", true));
    assert!((full..full + 20).contains(&part(r#"{"image_url":{"url":"https://x/","detail":"low"}}"#)));
    // An image that has the shape of which a rule is published.
    assert_eq!(part(&format!(r#"{{"type":"input_image","image_url":"{url}"}}"#)), full);
    assert_eq!(part(r#"{"type":"input_image","image_url":"x","detail":"low"}"#), low);
    assert_eq!(part(r#"{"type":"image_url","image_url":{"url":"x"},"detail":"low"}"#), full);
    assert_eq!(part(r#"{"type":"image","image_url":{"url":"x","detail":"low"}}"#), full);
}

#[test]
fn text_is_text_however_it_looks() {
    let data = "QUJDZGVm".repeat(400);
    let counted = Encoding::O200kBase.count(&data);
    for kind in ["text", "input_text", "output_text"] {
        assert_eq!(part(&format!(r#"{{"type":"{kind}","text":"{data}"}}"#)), counted, "{kind}");
        assert_eq!(part(&format!(r#"{{"text":"hi","type":"{kind}"}}"#)), 1, "{kind}");
    }
    assert!(part(&format!(r#"{{"type":"text","text":"data:;base64,{data}"}}"#)) > counted);
    assert!(part(&format!(r#"{{"type":"odd","text":"{data}"}}"#)) > counted);
    let words = "some words ".repeat(200);
    assert!(part(&format!(r#"{{"type":"document","source":{{"type":"text","data":"{words}"}}}}"#)) > 2_400);
    assert!(part(&format!(r#"{{"type":"odd","x":"data:;base64,QUJD {words}"}}"#)) > 2_400);
    let mut message = format!(r#"[{{"content":"data:;base64,{data}"}}]"#);
    assert!(prompt(Encoding::O200kBase, &message) > counted);
    message = format!(r#"[{{"tool_calls":[{{"function":{{"arguments":"data:;base64,{data}"}}}}]}}]"#);
    assert!(prompt(Encoding::O200kBase, &message) > counted, "it goes to the model as text");
    message = format!(r#"[{{"images":["{data}"]}}]"#);
    assert!((2_000..2_020).contains(&prompt(Encoding::O200kBase, &message)), "it does not");
}

#[test]
fn another_encoding_at_the_end_counts_again() {
    let body = r#"{"model":"m","messages":[{"content":"你好世界"}]}"#.as_bytes();
    let mut prompt = Prompt::default();
    prompt.push(&body[..40], |_| Some(Rules::new(Encoding::O200kBase, "gpt-4o")));
    prompt.choose(Rules::new(Encoding::Cl100kBase, "gpt-4o"));
    assert_eq!(prompt.position(), 0);
    prompt.push(body, |_| None);
    assert_eq!((prompt.is_done(), prompt.tokens("m")), (true, 11));
}

#[test]
fn what_is_no_json_ends_and_is_read_once() {
    for part in
        [r#"{"a":1{},"#, r#"{"a":[}},"#, r#"{"a":1"},"#, "{]", r#"{"a":"\x"},"#, "[1}", "{1}", ",", "]"]
    {
        let body = format!(r#"{{"model":"m","messages":[{{"content":[{}"#, part.repeat(10_000));
        let mut prompt = Prompt::default();
        let mut read = 0;
        while prompt.position() < body.len() {
            let from = prompt.position();
            let end = (from + 1_000).min(body.len());
            prompt.push(&body.as_bytes()[from..end], |_| Some(Rules::new(Encoding::O200kBase, "gpt-4o")));
            read += end - from;
        }
        assert!(read <= 3 * body.len(), "{part}: {read}");
    }
}

/// What it takes to count a body slice by slice: bytes read, steps of the counter, and the most steps of a slice.
fn work(body: &str) -> (usize, u64, u64) {
    let mut prompt = Prompt::default();
    let (mut read, mut steps, mut most) = (0, 0, 0);
    while prompt.position() < body.len() {
        let from = prompt.position();
        let slice = &body.as_bytes()[from..body.len().min(from + SLICE)];
        let taken = steps_of(|| prompt.push(slice, |_| Some(Rules::new(Encoding::O200kBase, "gpt-4o"))));
        (read, steps, most) = (read + slice.len(), steps + taken, most.max(taken));
    }
    (read, steps, most)
}

#[test]
fn a_part_whose_type_comes_late_is_counted_once_and_in_slices() {
    let text: String = (0..300_000_u32)
        .map(|at| char::from(b'a' + (at.wrapping_mul(2_654_435_761) >> 24) as u8 % 26))
        .collect();
    let part = |members: &str| format!(r#"{{"model":"m","messages":[{{"content":[{{{members}}}]}}]}}"#);
    let (_, steps, most) = work(&format!(r#"{{"model":"m","messages":[{{"content":"{text}"}}]}}"#));
    let late = format!(r#""text":"{text}","type":"text""#);
    let many = (0..300).map(|at| &text[at * 1_000..][..1_000]);
    let many: Vec<_> = many.map(|text| format!(r#"{{"text":"{text}","type":"text"}}"#)).collect();
    for (body, reads, counts) in [
        (part(&format!(r#""type":"text","text":"{text}""#)), 1, 1),
        (part(&late), 2, 1),
        (part(&format!(r#""text":"{text}""#)), 2, 1),
        (format!(r#"{{"messages":[{{"content":[{{{late}}}]}}],"model":"m"}}"#), 3, 1),
        (format!(r#"{{"model":"m","messages":[{{"content":[{}]}}]}}"#, many.join(",")), 2, 1),
        (part(&format!(r#""type":"file","text":"{text}""#)), 2, 1),
        // Read once for its names, and once more to be counted.
        (format!(r#"{{"model":"m","messages":[],"tools":[{{"type":"{text}"}}]}}"#), 2, 1),
        (format!(r#"{{"model":"m","messages":[],"unknown":"{text}"}}"#), 1, 1),
        (format!(r#"{{"model":"m","messages":[],"prediction":{{"content":[{{{late}}}]}}}}"#), 2, 1),
    ] {
        let (bytes, taken, most_of_slice) = work(&body);
        let start = &body[..80];
        assert!(bytes <= reads * (body.len() + SLICE), "{start}: {bytes} bytes read");
        assert!(taken <= counts * steps + steps / 8, "{start}: {taken} steps, {steps} without parts");
        assert!(most_of_slice <= most + most / 8, "{start}: {most_of_slice} steps in one go, {most}");
    }
}

/// A piece of JSON text of a request, well formed or nearly.
fn value(depth: u32) -> BoxedStrategy<String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("-1.5e3".to_owned()),
        Just("true".to_owned()),
        r#""[a-c '🙂价\\u{e9}]{0,12}""#.prop_map(|text| text.replace('\\', "\\\\")),
        Just(r#""text""#.to_owned()),
        Just(r#""refusal""#.to_owned()),
        Just(r#""image_url""#.to_owned()),
        Just(r#""low""#.to_owned()),
        Just(r#""file""#.to_owned()),
        Just(r#""input_image""#.to_owned()),
        Just(r#""data:image\/png;base64,QUJD""#.to_owned()),
        Just(r#""\ud83d\ude00\ud83d \udc00\u0041\n""#.to_owned()),
    ];
    if depth == 0 {
        return leaf.boxed();
    }
    let key = prop::sample::select(vec![
        "model",
        "messages",
        "tools",
        "content",
        "name",
        "role",
        "type",
        "text",
        "refusal",
        "image_url",
        "detail",
        "t\\u0079pe",
        "Text",
        "file",
        "function",
        "prediction",
        "x",
        "",
    ]);
    let space = prop::sample::select(vec!["", " ", "\n"]);
    let item = value(depth - 1);
    prop_oneof![
        2 => leaf,
        3 => prop::collection::vec((key, space.clone(), item.clone()), 0..5).prop_map(|members| {
            let members: Vec<_> = members.iter().map(|(k, s, v)| format!("{s}\"{k}\"{s}:{v}{s}")).collect();
            format!("{{{}}}", members.join(","))
        }),
        3 => prop::collection::vec((space, item), 0..5).prop_map(|items| {
            let items: Vec<_> = items.iter().map(|(s, v)| format!("{s}{v}{s}")).collect();
            format!("[{}]", items.join(","))
        }),
    ]
    .boxed()
}

proptest! {
    #[test]
    fn any_request_in_any_pieces(
        messages in prop::collection::vec(value(4), 0..4),
        tools in value(3),
        other in value(4),
        model_first in any::<bool>(),
        mut ends in prop::collection::vec(0..400usize, 0..6),
    ) {
        let messages: Vec<_> = messages.iter().map(|m| format!(r#"{{"role":"user","content":{m}}}"#)).collect();
        let messages = format!(
            r#""tools":{tools},"messages":[{}],"unknown":{other},"prediction":{other},"input_ids":{tools}"#,
            messages.join(",")
        );
        let body = match model_first {
            true => format!(r#"{{"model":"gpt-4o",{messages}}}"#),
            false => format!(r#"{{{messages} , "model":"gpt-4o"}}"#),
        };
        parse(body.as_bytes()).unwrap();
        ends.sort_unstable();
        let ends = ends.into_iter().map(|end| end.min(body.len()));
        let whole = reference::prompt_tokens(&body, Encoding::O200kBase, "gpt-4o-mini");
        prop_assert_eq!(read_pieces(body.as_bytes(), ends, Encoding::O200kBase, "gpt-4o-mini"), whole, "{}", body);
    }

    #[test]
    fn any_bytes_end(bytes: Vec<u8>, text in r#"[\[\]{}",:a1n \\]{0,60}"#) {
        for bytes in [bytes.as_slice(), text.as_bytes(), format!(r#"{{"model":"m","messages":[{text}"#).as_bytes()] {
            let mut prompt = Prompt::default();
            while prompt.position() < bytes.len() {
                prompt.push(&bytes[prompt.position()..], |_| Some(Rules::new(Encoding::O200kBase, "gpt-4o")));
            }
        }
    }
}
