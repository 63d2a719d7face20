//! The published rules for what a chat prompt costs beyond its texts.

/// Tokens of every prompt: the start of the reply.
pub const PROMPT_OVERHEAD: u64 = 3;
/// Tokens of every message beside its texts.
pub const MESSAGE_OVERHEAD: u64 = 3;
/// Tokens of a message's name beside its text.
pub const NAME_OVERHEAD: u64 = 1;
/// What audio, a video, a file or another piece of binary data is taken for. No rule is published, and its base64 is no text.
pub const MEDIA_TOKENS: u64 = 2_000;
/// What a source is taken for that the provider reads by itself: search results, an earlier session. About five
/// documents of 1,024 tokens, as a retrieval puts in where nothing else is said, and the words around them.
pub const HIDDEN_TOKENS: u64 = 6_000;
