//! `POST /v1/chat/completions`, streamed and not.

use std::convert::Infallible;
use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, StreamExt};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::count::{first_tokens, prompt_tokens};
use crate::error::ApiError;

const STORY: &str = "Hello! I am the demo provider behind tokengate. Whatever you ask, I tell you this: your request \
was held, its tokens were counted and reserved, and when I am done, what I did not use is given back. ";
/// How often the story is told at most.
const MOST_TOLD: usize = 500;
/// Between two chunks of a stream, so that it can be watched.
const PAUSE: Duration = Duration::from_millis(20);
/// How much is said when nobody says how much.
const DEFAULT_TOKENS: usize = 40;

#[derive(Deserialize)]
struct Request {
    model: String,
    messages: Vec<Value>,
    max_completion_tokens: Option<usize>,
    max_tokens: Option<usize>,
    n: Option<usize>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
}

#[derive(Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

/// What will be said, the same in every choice.
struct Answer {
    model: String,
    pieces: Vec<String>,
    finish_reason: &'static str,
    choices: usize,
    usage: Value,
}

pub async fn completions(body: Bytes) -> Result<Response, ApiError> {
    let request: Request =
        serde_json::from_slice(&body).map_err(|error| ApiError::bad_body(error.to_string()))?;
    let stream = request.stream.unwrap_or(false);
    let include_usage = request.stream_options.as_ref().and_then(|o| o.include_usage).unwrap_or(false);
    let answer = answer(request);
    Ok(if stream { streamed(answer, include_usage) } else { whole(&answer) })
}

fn answer(request: Request) -> Answer {
    let asked = request.max_completion_tokens.or(request.max_tokens);
    let told = STORY.repeat(if asked.is_some() { MOST_TOLD } else { 1 });
    let most = asked.unwrap_or(DEFAULT_TOKENS);
    let (pieces, is_all) = first_tokens(&request.model, &told, most);
    let choices = request.n.unwrap_or(1).clamp(1, 128);
    let prompt = prompt_tokens(&request.model, &request.messages);
    let completion = pieces.len() * choices;
    Answer {
        finish_reason: if is_all { "stop" } else { "length" },
        choices,
        usage: json!({
            "prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion,
        }),
        model: request.model,
        pieces,
    }
}

fn whole(answer: &Answer) -> Response {
    let choice = |index| {
        json!({
            "index": index, "finish_reason": answer.finish_reason, "logprobs": null,
            "message": {"role": "assistant", "content": answer.pieces.concat(), "refusal": null},
        })
    };
    let choices: Vec<Value> = (0..answer.choices).map(choice).collect();
    Json(object("chat.completion", answer, choices, Some(&answer.usage))).into_response()
}

fn streamed(answer: Answer, include_usage: bool) -> Response {
    let chunk = |choices: Value, usage: Option<&Value>| {
        Event::default().data(object("chat.completion.chunk", &answer, choices, usage).to_string())
    };
    let no_usage = include_usage.then_some(&Value::Null);
    let each_choice = |delta: Value, finish_reason: Option<&str>| {
        (0..answer.choices)
            .map(|index| {
                let choice = json!({"index": index, "delta": delta, "finish_reason": finish_reason});
                chunk(json!([choice]), no_usage)
            })
            .collect::<Vec<_>>()
    };
    let mut events = each_choice(json!({"role": "assistant", "content": ""}), None);
    for piece in &answer.pieces {
        events.extend(each_choice(json!({ "content": piece }), None));
    }
    events.extend(each_choice(json!({}), Some(answer.finish_reason)));
    if include_usage {
        events.push(chunk(json!([]), Some(&answer.usage)));
    }
    events.push(Event::default().data("[DONE]"));
    let paced = stream::iter(events).then(|event| async {
        tokio::time::sleep(PAUSE).await;
        Ok::<_, Infallible>(event)
    });
    Sse::new(paced).into_response()
}

fn object(kind: &str, answer: &Answer, choices: impl Into<Value>, usage: Option<&Value>) -> Value {
    let mut object = json!({
        "id": "chatcmpl-demo", "object": kind, "created": 1_700_000_000, "model": answer.model,
        "choices": choices.into(),
    });
    if let (Some(object), Some(usage)) = (object.as_object_mut(), usage) {
        object.insert("usage".to_owned(), usage.clone());
    }
    object
}
