//! Counting in step with a body that arrives in pieces: the same count for every way to cut it, and that of a
//! slow reader of the whole.

use tokengate::dialect::openai::{Prompt, parse};
use tokengate::json::{Binary, Member, elements, members, text};
use tokengate::tokenizer::{
    Encoding, HIDDEN_TOKENS, MEDIA_TOKENS, MESSAGE_OVERHEAD, NAME_OVERHEAD, PROMPT_OVERHEAD, Rules, image,
};

use super::chunks::cuts;
use super::signature;

#[path = "../../../src/dialect/openai/prompt_reference.rs"]
mod reference;

/// Longer bodies are not counted: that is a question of time, which has tests of its own.
const MAX_COUNTED: usize = 8 * 1024;
const MODEL: &str = "gpt-4o-mini";

pub fn run(input: &[u8]) -> u64 {
    if input.len() > MAX_COUNTED {
        return 0;
    }
    let accepted = parse(input).is_ok();
    let mut seen = 0;
    for encoding in [Encoding::O200kBase, Encoding::Cl100kBase] {
        let whole = count(input, &[input], encoding);
        for chunks in cuts(input) {
            let counted = count(input, &chunks, encoding);
            assert!(
                !accepted || counted == whole,
                "{counted:?} in {} chunks, {whole:?} at once",
                chunks.len()
            );
        }
        if accepted {
            let body = std::str::from_utf8(input).expect("accepted, so it is UTF-8");
            let slow = reference::prompt_tokens(body, encoding, MODEL).map(|(prompt, _)| prompt);
            assert_eq!(whole, slow, "as the whole is read");
        }
        seen = whole.unwrap_or(0).min(500);
    }
    signature((accepted, seen))
}

/// The count, where the end was reached and nothing is ambiguous. A body that is none must end as well, and soon.
fn count(body: &[u8], chunks: &[&[u8]], encoding: Encoding) -> Option<u64> {
    let mut prompt = Prompt::default();
    let rules = Rules::new(encoding, MODEL);
    let (mut end, mut read) = (0, 0);
    for chunk in chunks {
        end += chunk.len();
        while prompt.position() < end {
            let from = prompt.position();
            // Another model at the end of the body must not matter.
            prompt.push(&body[from..end], |name| {
                Some(if name.len() % 2 == 0 { rules } else { Rules::new(Encoding::O200kBase, name) })
            });
            read += end - from;
        }
    }
    prompt.choose(rules);
    while prompt.position() < body.len() {
        let from = prompt.position();
        prompt.push(&body[from..], |_| None);
        read += body.len() - from;
    }
    assert!(read <= 8 * body.len() + 1_000 * chunks.len(), "read {read} bytes of {}", body.len());
    (prompt.is_done() && prompt.fault().is_none()).then(|| prompt.tokens(MODEL))
}
