//! POST /v1/chat/completions: the answer as one object, or as a stream of server-sent events.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::rejection::BytesRejection;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};

use crate::answer::Answer;
use crate::count;
use crate::error::ApiError;
use crate::request::ChatRequest;

/// Between the tokens of a stream: slow enough to see them come.
const PACE: Duration = Duration::from_millis(30);

pub async fn complete(body: Result<Bytes, BytesRejection>) -> Result<Response, ApiError> {
    let body = body.map_err(|_| ApiError::too_large())?;
    // Loading a vocabulary and counting a long prompt would hold up everyone else's streams. The tokenizer
    // panics on about a million blanks in a row, which ends this task only.
    let completion =
        tokio::task::spawn_blocking(move || ChatRequest::parse(&body).map(Completion::new)).await.map_err(
            |_| ApiError::bad_request("The tokens of the prompt cannot be counted.", Some("messages")),
        )??;
    Ok(if completion.request.streams() {
        events(completion.events())
    } else {
        Json(completion.object()).into_response()
    })
}

/// A request and all that there is to say to it.
struct Completion {
    request: ChatRequest,
    answer: Answer,
    prompt_tokens: usize,
    id: String,
    created: u64,
}

impl Completion {
    fn new(request: ChatRequest) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let encoding = count::encoding_of(&request.model);
        let created =
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Self {
            answer: Answer::new(encoding, request.output_limit()),
            prompt_tokens: count::prompt_tokens(encoding, &request.messages),
            id: format!("chatcmpl-demo-{created:x}-{}", NEXT.fetch_add(1, Ordering::Relaxed)),
            created,
            request,
        }
    }

    fn usage(&self) -> Value {
        let choices = usize::try_from(self.request.choices()).unwrap_or(usize::MAX);
        let completion_tokens = self.answer.tokens.len().saturating_mul(choices);
        json!({
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": self.prompt_tokens.saturating_add(completion_tokens),
            "prompt_tokens_details": {"cached_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0},
        })
    }

    fn object(&self) -> Value {
        let message = json!({"role": "assistant", "content": self.answer.text(), "refusal": null});
        let choice = |index| {
            json!({
                "index": index,
                "message": message,
                "logprobs": null,
                "finish_reason": self.answer.finish_reason,
            })
        };
        json!({
            "id": self.id,
            "object": "chat.completion",
            "created": self.created,
            "model": self.request.model,
            "choices": (0..self.request.choices()).map(choice).collect::<Vec<_>>(),
            "usage": self.usage(),
        })
    }

    /// The events of a stream. Those that come together, one for each choice, are one string.
    fn events(&self) -> Vec<String> {
        let text = |token: &String| self.step(&json!({"content": token}), None);
        let mut steps = vec![self.step(&json!({"role": "assistant", "content": ""}), None)];
        steps.extend(self.answer.tokens.iter().map(text));
        let mut end = self.step(&json!({}), Some(self.answer.finish_reason));
        if self.request.wants_usage() {
            end.push_str(&self.chunk(&json!([]), Some(self.usage())));
        }
        end.push_str("data: [DONE]\n\n");
        steps.push(end);
        steps
    }

    fn step(&self, delta: &Value, finish_reason: Option<&str>) -> String {
        let choice = |index| json!([{"index": index, "delta": delta, "finish_reason": finish_reason}]);
        (0..self.request.choices()).map(|index| self.chunk(&choice(index), None)).collect()
    }

    fn chunk(&self, choices: &Value, usage: Option<Value>) -> String {
        let mut chunk = json!({
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.request.model,
            "choices": choices,
        });
        if let (true, Some(members)) = (self.request.wants_usage(), chunk.as_object_mut()) {
            members.insert("usage".to_owned(), usage.unwrap_or(Value::Null));
        }
        format!("data: {chunk}\n\n")
    }
}

fn events(steps: Vec<String>) -> Response {
    let paced = stream::iter(steps.into_iter().enumerate()).then(|(index, step)| async move {
        if index > 0 {
            tokio::time::sleep(PACE).await;
        }
        Ok::<_, Infallible>(step)
    });
    let headers =
        [(header::CONTENT_TYPE, "text/event-stream; charset=utf-8"), (header::CACHE_CONTROL, "no-cache")];
    (headers, Body::from_stream(paced)).into_response()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn completion(members: &str) -> Completion {
        let body =
            format!(r#"{{"model": "gpt-4o", "messages": [{{"role": "user", "content": "hi"}}]{members}}}"#);
        Completion::new(ChatRequest::parse(body.as_bytes()).unwrap())
    }

    /// The chunks of a stream; checks that it ends as it should.
    fn chunks(completion: &Completion) -> Vec<Value> {
        let stream = completion.events().concat();
        let stream = stream.strip_suffix("data: [DONE]\n\n").unwrap();
        stream
            .split_terminator("\n\n")
            .map(|event| serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap())
            .collect()
    }

    fn member<'a>(value: &'a Value, pointer: &str) -> &'a Value {
        value.pointer(pointer).unwrap()
    }

    #[test]
    fn object_counts_every_choice() {
        let object = completion(r#", "max_tokens": 5, "n": 3"#).object();
        assert_eq!(member(&object, "/choices").as_array().unwrap().len(), 3);
        assert_eq!(member(&object, "/choices/2/finish_reason"), "length");
        assert_eq!(member(&object, "/usage/prompt_tokens"), 8);
        assert_eq!(member(&object, "/usage/completion_tokens"), 15);
        assert_eq!(member(&object, "/usage/total_tokens"), 23);
    }

    #[test]
    fn stream_says_the_same_as_the_object() {
        let completion = completion(r#", "stream": true, "n": 2"#);
        let chunks = chunks(&completion);
        for index in 0..2 {
            let text: String = chunks
                .iter()
                .filter(|chunk| member(chunk, "/choices/0/index") == index)
                .filter_map(|chunk| chunk.pointer("/choices/0/delta/content")?.as_str())
                .collect();
            assert_eq!(text, completion.answer.text());
        }
        assert_eq!(member(chunks.last().unwrap(), "/choices/0/finish_reason"), "stop");
        assert!(chunks.iter().all(|chunk| chunk.get("usage").is_none()));
    }

    #[test]
    fn stream_ends_with_usage_when_asked_for() {
        let completion = completion(r#", "stream": true, "stream_options": {"include_usage": true}"#);
        let chunks = chunks(&completion);
        let (last, deltas) = chunks.split_last().unwrap();
        assert_eq!(member(last, "/choices"), &json!([]));
        assert_eq!(member(last, "/usage"), &completion.usage());
        assert!(deltas.iter().all(|chunk| member(chunk, "/usage").is_null()));
    }
}
