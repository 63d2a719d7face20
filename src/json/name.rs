//! The names of members that some answer's reader asks for.

macro_rules! names {
    ($($variant:ident = $text:literal),* $(,)?) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Name { $($variant,)* Other }

        impl Name {
            pub fn of(key: &[u8]) -> Self {
                match key {
                    $($text => Self::$variant,)*
                    // `errors`, `error_message`, `errorCode`, …
                    _ if key.starts_with(b"error") => Self::ErrorLike,
                    _ => Self::Other,
                }
            }
        }
    };
}

names! {
    Annotations = b"annotations",
    Arguments = b"arguments",
    Audio = b"audio",
    B64Json = b"b64_json",
    BaseResponse = b"base_resp",
    CacheCreationInputTokens = b"cache_creation_input_tokens",
    CacheReadInputTokens = b"cache_read_input_tokens",
    CacheWriteTokens = b"cache_write_tokens",
    CachedTokens = b"cached_tokens",
    CallId = b"call_id",
    Choices = b"choices",
    Citations = b"citations",
    CompletionTokens = b"completion_tokens",
    CompletionTokensDetails = b"completion_tokens_details",
    Content = b"content",
    Created = b"created",
    Data = b"data",
    Delta = b"delta",
    Detail = b"detail",
    EncryptedContent = b"encrypted_content",
    Error = b"error",
    ErrorLike = b"errors",
    FileData = b"file_data",
    FinishReason = b"finish_reason",
    Format = b"format",
    Function = b"function",
    FunctionCall = b"function_call",
    Id = b"id",
    Index = b"index",
    Input = b"input",
    InputTokens = b"input_tokens",
    InputTokensDetails = b"input_tokens_details",
    Logprobs = b"logprobs",
    Message = b"message",
    Model = b"model",
    Name = b"name",
    Object = b"object",
    Obfuscation = b"obfuscation",
    OutputTokens = b"output_tokens",
    OutputTokensDetails = b"output_tokens_details",
    PromptCacheHitTokens = b"prompt_cache_hit_tokens",
    PromptTokens = b"prompt_tokens",
    PromptTokensDetails = b"prompt_tokens_details",
    ProviderSpecificFields = b"provider_specific_fields",
    Reasoning = b"reasoning",
    ReasoningContent = b"reasoning_content",
    ReasoningDetails = b"reasoning_details",
    ReasoningText = b"reasoning_text",
    ReasoningTokens = b"reasoning_tokens",
    Refusal = b"refusal",
    Response = b"response",
    Role = b"role",
    ServiceTier = b"service_tier",
    Signature = b"signature",
    Status = b"status",
    StatusCode = b"status_code",
    SystemFingerprint = b"system_fingerprint",
    Text = b"text",
    Thinking = b"thinking",
    ThinkingBlocks = b"thinking_blocks",
    ThoughtSignature = b"thought_signature",
    Thoughts = b"thoughts",
    ToolCallId = b"tool_call_id",
    ToolCalls = b"tool_calls",
    TotalTokens = b"total_tokens",
    Transcript = b"transcript",
    Type = b"type",
    Url = b"url",
    Usage = b"usage",
    XGroq = b"x_groq",
}
