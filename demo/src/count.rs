//! Tokens of prompts and answers, with OpenAI's own vocabularies and chat framing.

use tiktoken_rs::CoreBPE;

use crate::request::Message;

const PER_MESSAGE: usize = 3;
const PER_NAME: usize = 1;
/// The answer begins with the frame of a message.
const PER_ANSWER: usize = 3;

/// The vocabulary of a model. Loaded at its first use, which takes a while: keep it off the async threads.
pub fn encoding_of(model: &str) -> &'static CoreBPE {
    let old =
        model == "gpt-4" || ["gpt-4-", "gpt-3.5", "gpt-35"].iter().any(|family| model.starts_with(family));
    if old { tiktoken_rs::cl100k_base_singleton() } else { tiktoken_rs::o200k_base_singleton() }
}

pub fn prompt_tokens(encoding: &CoreBPE, messages: &[Message]) -> usize {
    messages.iter().map(|message| message_tokens(encoding, message)).sum::<usize>() + PER_ANSWER
}

fn message_tokens(encoding: &CoreBPE, message: &Message) -> usize {
    let content: usize = message.texts().iter().map(|text| encoding.count_ordinary(text)).sum();
    let name = message.name.as_ref().map_or(0, |name| PER_NAME + encoding.count_ordinary(name));
    PER_MESSAGE + encoding.count_ordinary(&message.role) + content + name
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::request::ChatRequest;

    fn prompt(model: &str, messages: &str) -> usize {
        let body = format!(r#"{{"model": "{model}", "messages": [{messages}]}}"#);
        prompt_tokens(encoding_of(model), &ChatRequest::parse(body.as_bytes()).unwrap().messages)
    }

    /// The numbers are those of OpenAI's tiktoken with the framing of the openai-cookbook.
    #[test]
    fn counts_as_openai_does() {
        for (messages, old, new) in [
            (r#"{"role": "user", "content": "hi"}"#, 8, 8),
            (r#"{"role": "user", "content": ""}"#, 7, 7),
            (r#"{"role": "user", "content": "hi", "name": "alice"}"#, 10, 10),
            (r#"{"role": "system", "content": "You are terse."}, {"role": "user", "content": "hi"}"#, 16, 16),
            (r#"{"role": "user", "content": "你好世界"}"#, 12, 9),
            (r#"{"role": "user", "content": "<|endoftext|>"}"#, 14, 14),
        ] {
            for model in ["gpt-4", "gpt-4-turbo", "gpt-3.5-turbo"] {
                assert_eq!(prompt(model, messages), old, "{model} {messages}");
            }
            for model in ["gpt-4o", "gpt-4.1", "o4-mini", "anything"] {
                assert_eq!(prompt(model, messages), new, "{model} {messages}");
            }
        }
    }
}
