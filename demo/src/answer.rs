//! The words of an answer, one token at a time, and where an output limit cuts them.

use tiktoken_rs::CoreBPE;

/// Plain ASCII, so that every token is text on its own.
const WORDS: &str = "Hello from the demo upstream. I am not a language model: whatever you ask, these are my \
    words, sent one token after the other and counted as OpenAI counts them. Put a real provider in my place \
    with UPSTREAM and PROVIDER_KEY.";

pub struct Answer {
    /// The text of each token.
    pub tokens: Vec<String>,
    pub finish_reason: &'static str,
}

impl Answer {
    pub fn new(encoding: &CoreBPE, limit: Option<usize>) -> Self {
        let limit = limit.unwrap_or(usize::MAX);
        let all = encoding.encode_ordinary(WORDS);
        let finish_reason = if all.len() > limit { "length" } else { "stop" };
        let tokens = all
            .iter()
            .take(limit)
            .map(|token| encoding.decode_bytes(std::slice::from_ref(token)).unwrap_or_default())
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .collect();
        Self { tokens, finish_reason }
    }

    pub fn text(&self) -> String {
        self.tokens.concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count::encoding_of;

    #[test]
    fn is_whole_without_a_limit() {
        for model in ["gpt-4", "gpt-4o"] {
            let answer = Answer::new(encoding_of(model), None);
            assert_eq!((answer.text().as_str(), answer.finish_reason), (WORDS, "stop"));
            let exact = Answer::new(encoding_of(model), Some(answer.tokens.len()));
            assert_eq!((exact.text().as_str(), exact.finish_reason), (WORDS, "stop"));
        }
    }

    /// What is charged for a cut answer is what anyone else counts for its text.
    #[test]
    fn is_cut_to_the_token() {
        for model in ["gpt-4", "gpt-4o"] {
            let encoding = encoding_of(model);
            for limit in 1..Answer::new(encoding, None).tokens.len() {
                let answer = Answer::new(encoding, Some(limit));
                assert_eq!((answer.tokens.len(), answer.finish_reason), (limit, "length"));
                assert_eq!(encoding.count_ordinary(&answer.text()), limit);
            }
        }
    }
}
