//! The body of a chat request: what of it this server acts on, and what it refuses. Members that it does not
//! know are ignored; they change neither the words nor the count.

use serde::Deserialize;

use crate::error::ApiError;

const MAX_CHOICES: u32 = 128;

#[derive(Debug, Deserialize)]
pub struct ChatRequest {
    pub model: String,
    pub messages: Vec<Message>,
    #[serde(default)]
    n: Option<u32>,
    #[serde(default)]
    stream: Option<bool>,
    #[serde(default)]
    stream_options: Option<StreamOptions>,
    #[serde(default)]
    max_tokens: Option<u64>,
    #[serde(default)]
    max_completion_tokens: Option<u64>,
}

#[derive(Debug, Deserialize)]
pub struct Message {
    pub role: String,
    #[serde(default)]
    pub name: Option<String>,
    #[serde(default)]
    content: Option<Content>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a string or an array of text parts")]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part {
    Text { text: String },
    Refusal { refusal: String },
}

#[derive(Debug, Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: Option<bool>,
}

impl Message {
    /// The texts of the content, in order.
    pub fn texts(&self) -> Vec<&str> {
        match &self.content {
            None => Vec::new(),
            Some(Content::Text(text)) => vec![text],
            Some(Content::Parts(parts)) => parts
                .iter()
                .map(|part| match part {
                    Part::Text { text } | Part::Refusal { refusal: text } => text.as_str(),
                })
                .collect(),
        }
    }
}

impl ChatRequest {
    pub fn parse(body: &[u8]) -> Result<Self, ApiError> {
        let mut json = serde_json::Deserializer::from_slice(body);
        let request: Self = serde_path_to_error::deserialize(&mut json).map_err(|error| {
            let path = error.path().to_string();
            let param = (path != ".").then_some(path.as_str());
            ApiError::bad_request(format!("The body cannot be read: {}.", error.inner()), param)
        })?;
        json.end().map_err(|error| ApiError::bad_request(format!("The body is not JSON: {error}."), None))?;
        request.check()?;
        Ok(request)
    }

    pub fn choices(&self) -> u32 {
        self.n.unwrap_or(1)
    }

    pub fn streams(&self) -> bool {
        self.stream.unwrap_or(false)
    }

    /// Whether a stream ends with a chunk that holds the usage.
    pub fn wants_usage(&self) -> bool {
        self.stream_options.as_ref().and_then(|options| options.include_usage).unwrap_or(false)
    }

    /// Tokens that one choice may have; of two limits the smaller.
    pub fn output_limit(&self) -> Option<usize> {
        let limit = self.max_tokens.into_iter().chain(self.max_completion_tokens).min()?;
        Some(usize::try_from(limit).unwrap_or(usize::MAX))
    }

    fn check(&self) -> Result<(), ApiError> {
        if self.model.is_empty() {
            return Err(ApiError::bad_request("`model` is empty.", Some("model")));
        }
        if self.messages.is_empty() {
            return Err(ApiError::bad_request("`messages` is empty.", Some("messages")));
        }
        if !(1..=MAX_CHOICES).contains(&self.choices()) {
            return Err(ApiError::bad_request(format!("`n` is not within 1 and {MAX_CHOICES}."), Some("n")));
        }
        for (name, limit) in
            [("max_tokens", self.max_tokens), ("max_completion_tokens", self.max_completion_tokens)]
        {
            if limit == Some(0) {
                return Err(ApiError::bad_request(format!("`{name}` is less than 1."), Some(name)));
            }
        }
        if self.stream_options.is_some() && !self.streams() {
            let message = "`stream_options` is only for requests with `stream: true`.";
            return Err(ApiError::bad_request(message, Some("stream_options")));
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn parse(members: &str) -> Result<ChatRequest, ApiError> {
        let body =
            format!(r#"{{"model": "gpt-4o", "messages": [{{"role": "user", "content": "hi"}}]{members}}}"#);
        ChatRequest::parse(body.as_bytes())
    }

    #[test]
    fn reads_what_clients_send() {
        let request =
            parse(r#", "stream": true, "stream_options": {"include_usage": true}, "n": 2"#).unwrap();
        assert!(request.streams() && request.wants_usage());
        assert_eq!(request.choices(), 2);
        assert_eq!(request.output_limit(), None);
        let limited = parse(r#", "max_tokens": 9, "max_completion_tokens": 7, "temperature": 0"#).unwrap();
        assert_eq!(limited.output_limit(), Some(7));
        let empty =
            parse(r#", "n": null, "stream": null, "stream_options": null, "max_tokens": null"#).unwrap();
        assert!(!empty.streams() && empty.choices() == 1);
    }

    #[test]
    fn refuses_what_cannot_be_acted_on() {
        for members in [
            r#", "n": 0"#,
            r#", "n": 129"#,
            r#", "n": "1""#,
            r#", "stream": 1"#,
            r#", "max_tokens": 0"#,
            r#", "max_tokens": 1.5"#,
            r#", "max_completion_tokens": -1"#,
            r#", "stream_options": {"include_usage": true}"#,
            r#"} {"#,
        ] {
            assert!(parse(members).is_err(), "{members}");
        }
        for body in ["", "[]", "{}", r#"{"model": "gpt-4o"}"#, r#"{"model": "gpt-4o", "messages": []}"#] {
            assert!(ChatRequest::parse(body.as_bytes()).is_err(), "{body}");
        }
    }

    #[test]
    fn content_may_come_in_parts() {
        let part = r#"{"type": "text", "text": "a"}"#;
        let body =
            format!(r#"{{"model": "m", "messages": [{{"role": "user", "content": [{part}, {part}]}}]}}"#);
        let request = ChatRequest::parse(body.as_bytes()).unwrap();
        assert_eq!(request.messages.first().unwrap().texts(), ["a", "a"]);
    }
}
