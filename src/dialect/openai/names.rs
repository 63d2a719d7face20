//! The members of a request that are acted on, by their names.

use crate::dialect::BadRequest;
use crate::json::{Fault, Meant, meant};

/// The names of the output limit. The first counts reasoning; it and the second are known to every server, the
/// others to some.
pub const LIMITS: [&str; 6] = [
    "max_completion_tokens",
    "max_tokens",
    "n_predict",
    "num_predict",
    "max_new_tokens",
    "max_output_tokens",
];
/// The least that is to be written. It raises what can be written, and bounds nothing.
pub const LEAST: &str = "min_tokens";
/// How many choices are wanted; a server takes one of them.
pub const CHOICES: [&str; 3] = ["n", "n_cmpl", "best_of"];
/// Lists of models that may answer in the place of the one that was asked for.
pub const ALTERNATIVES: [&str; 4] =
    ["models", "fallbacks", "context_window_fallbacks", "content_policy_fallbacks"];
/// What chooses a model, or takes back what we write, in ways that cannot be read here.
pub const NOT_ALLOWED: [&str; 5] =
    ["deployment_id", "engine", "model_list", "user_config", "additional_drop_params"];
/// Merged by some gateways into what the provider gets.
pub const EXTRA: &str = "extra_body";

/// What the provider turns into prompt tokens. All of it is in [`ACTED_ON`].
pub const COUNTED: [&str; 12] = [
    "messages",
    "tools",
    "functions",
    "response_format",
    "documents",
    "chat_template",
    "chat_template_kwargs",
    "input_ids",
    "prediction",
    "data_sources",
    "session_params",
    "lora_path",
];

/// All that is acted on at the top, be it only by counting it.
pub const ACTED_ON: [&str; 36] = [
    "model",
    "messages",
    "stream",
    "stream_options",
    "service_tier",
    LIMITS[0],
    LIMITS[1],
    LIMITS[2],
    LIMITS[3],
    LIMITS[4],
    LIMITS[5],
    LEAST,
    CHOICES[0],
    CHOICES[1],
    CHOICES[2],
    ALTERNATIVES[0],
    ALTERNATIVES[1],
    ALTERNATIVES[2],
    ALTERNATIVES[3],
    NOT_ALLOWED[0],
    NOT_ALLOWED[1],
    NOT_ALLOWED[2],
    NOT_ALLOWED[3],
    NOT_ALLOWED[4],
    EXTRA,
    "tools",
    "functions",
    "response_format",
    "documents",
    "chat_template",
    "chat_template_kwargs",
    "input_ids",
    "prediction",
    "data_sources",
    "session_params",
    "lora_path",
];

/// What is neither acted on nor becomes a part of the prompt, however long.
pub const HARMLESS: [&str; 50] = [
    "metadata",
    "user",
    "tool_choice",
    "function_call",
    "logit_bias",
    "stop",
    "audio",
    "modalities",
    "reasoning",
    "reasoning_effort",
    "verbosity",
    "store",
    "seed",
    "temperature",
    "top_p",
    "top_k",
    "top_logprobs",
    "logprobs",
    "frequency_penalty",
    "presence_penalty",
    "parallel_tool_calls",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "web_search_options",
    "stop_token_ids",
    "bad_words",
    "allowed_token_ids",
    "logits_processors",
    "custom_logit_processor",
    "custom_params",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "guided_decoding_backend",
    "structured_outputs",
    "grammar",
    "json_schema",
    "regex",
    "ebnf",
    "samplers",
    "mm_processor_kwargs",
    "kv_transfer_params",
    "vllm_xargs",
    "provider",
    "transforms",
    "safety_settings",
    "litellm_metadata",
    "cache_salt",
];

/// The name of a member that a parameter of the request's URL is named like, too: some gateways read it there.
pub fn in_query(query: &[u8]) -> Option<&'static str> {
    let is_separator = |byte: &u8| matches!(byte, b'&' | b';');
    query.split(is_separator).find_map(|pair| {
        let name = pair.split(|byte| *byte == b'=').next().unwrap_or(&[]);
        let name = crate::paths::percent_decoded(name, true);
        // `models[]` and `models[0]` are ways to write a list.
        let name = name.split(|byte| *byte == b'[').next().unwrap_or(&[]);
        meant(name.trim_ascii(), ACTED_ON).map(Meant::name)
    })
}

/// For a member that stands in the URL.
pub fn in_wrong_place(name: &'static str) -> BadRequest {
    super::request::bad(
        name,
        "stands in the URL's query, where some servers read it: give it in the body alone",
    )
}

macro_rules! names {
    ($at:literal, $($name:literal)*) => { &[$(($name, concat!($at, $name))),*] };
}

/// Names that are read in one kind of object, each with what it is called in an error.
pub type Names = &'static [(&'static str, &'static str)];

pub const MESSAGE: Names = names!("messages.",
    "role" "content" "name" "refusal" "tool_calls" "tool_call_id" "function_call" "tools" "audio" "reasoning"
    "reasoning_content");
pub const PART: Names = names!("messages.content.",
    "type" "text" "refusal" "image_url" "detail" "input_audio" "audio" "audio_url" "video" "video_url" "image"
    "file" "file_url" "document" "document_url" "image_embeds" "audio_embeds" "image_pil");
pub const IMAGE: Names = names!("messages.content.image_url.", "url" "detail");
pub const PREDICTION: Names = names!("prediction.", "type" "content");
pub const TOOL: Names =
    names!("tools.", "type" "function" "name" "description" "parameters" "strict" "custom");
pub const FUNCTION: Names = names!("tools.function.", "name" "description" "parameters" "strict");

/// The members that were seen in one object, a bit each.
pub type Seen = u32;

/// Notes a member of an object that holds these names, or says why it must not be there.
pub fn note(key: &[u8], names: Names, seen: &mut Seen) -> Result<(), Fault> {
    let Some(meant) = meant(key, names.iter().map(|(name, _)| *name)) else { return Ok(()) };
    let at = names.iter().position(|(name, _)| *name == meant.name()).unwrap_or(0);
    let shown = names.get(at).map_or("", |(_, shown)| *shown);
    let bit = 1 << at;
    match meant {
        Meant::Resembles(_) => Err(Fault::Resembles(shown)),
        Meant::Is(_) if *seen & bit != 0 => Err(Fault::Twice(shown)),
        Meant::Is(_) => {
            *seen |= bit;
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts_is_checked() {
        assert!(COUNTED.iter().all(|name| ACTED_ON.contains(name)));
    }

    #[test]
    fn each_name_is_there_once() {
        for names in [ACTED_ON.as_slice(), HARMLESS.as_slice()] {
            for (at, name) in names.iter().enumerate() {
                assert_eq!(names.iter().position(|other| other == name), Some(at), "{name}");
            }
        }
        assert!(ACTED_ON.iter().all(|name| !HARMLESS.contains(name)));
        for names in [MESSAGE, PART, IMAGE, PREDICTION, TOOL, FUNCTION] {
            assert!(names.len() < 32, "a bit each");
        }
    }

    #[test]
    fn parameters_named_like_members() {
        for (query, name) in [
            ("model=gpt-4o", Some("model")),
            ("a=1&Model=gpt-4o", Some("model")),
            ("a=1;model=gpt-4o", Some("model")),
            ("m%6fdel=gpt-4o", Some("model")),
            ("%4d%4FDEL", Some("model")),
            ("max_to%E2%84%AAens=5", Some("max_tokens")),
            ("models[]=gpt-4o", Some("models")),
            ("models%5B0%5D=gpt-4o", Some("models")),
            ("+stream=true", Some("stream")),
            ("n", Some("n")),
            ("api-version=2024-10-21&beta=true", None),
            ("x=model&y=model=1", None),
            ("m%256fdel=gpt-4o", None),
            ("model%", None),
            ("", None),
            ("&&=;", None),
        ] {
            assert_eq!(in_query(query.as_bytes()), name, "{query}");
        }
    }

    #[test]
    fn a_member_is_noted_once() {
        let mut seen = 0;
        assert_eq!(note(b"role", MESSAGE, &mut seen), Ok(()));
        assert_eq!(note(b"other", MESSAGE, &mut seen), Ok(()));
        assert_eq!(note(b"other", MESSAGE, &mut seen), Ok(()));
        assert_eq!(note(b"Content", MESSAGE, &mut seen), Err(Fault::Resembles("messages.content")));
        assert_eq!(note(b"content", MESSAGE, &mut seen), Ok(()));
        assert_eq!(note(b"role", MESSAGE, &mut seen), Err(Fault::Twice("messages.role")));
    }
}
