//! One counter behind a C interface, chosen by feature: a module per counter, so that memory and the time
//! until it is ready are its own.

/// Counts with one of the counters; 0 is o200k_base, 1 is cl100k_base.
pub mod counters {
    #[cfg(feature = "tokengate")]
    pub fn tokengate(encoding: u32, text: &str) -> usize {
        use tokengate::tokenizer::Encoding;
        let encoding = if encoding == 0 { Encoding::O200kBase } else { Encoding::Cl100kBase };
        encoding.count(text) as usize
    }

    #[cfg(feature = "tiktoken-rs")]
    pub fn tiktoken(encoding: u32, text: &str) -> usize {
        let bpe = if encoding == 0 {
            tiktoken_rs::o200k_base_singleton()
        } else {
            tiktoken_rs::cl100k_base_singleton()
        };
        bpe.encode_ordinary(text).len()
    }

    #[cfg(feature = "bpe-openai")]
    pub fn bpe(encoding: u32, text: &str) -> usize {
        let tokenizer = if encoding == 0 { bpe_openai::o200k_base() } else { bpe_openai::cl100k_base() };
        tokenizer.count(text)
    }

    #[cfg(feature = "toktok-rs")]
    pub fn toktok(encoding: u32, text: &str) -> usize {
        use std::sync::OnceLock;
        static LOADED: [OnceLock<Option<toktok::Tokenizer>>; 2] = [OnceLock::new(), OnceLock::new()];
        let at = encoding as usize & 1;
        let load = || toktok::Tokenizer::builtin(["o200k_base", "cl100k_base"][at]).ok();
        LOADED[at].get_or_init(load).as_ref().map_or(0, |tokenizer| tokenizer.count(text.as_bytes()))
    }
}

#[cfg(target_arch = "wasm32")]
mod exports {
    #[unsafe(no_mangle)]
    pub extern "C" fn bench_alloc(length: usize) -> *mut u8 {
        Box::leak(vec![0_u8; length].into_boxed_slice()).as_mut_ptr()
    }

    /// # Safety
    /// `at` and `length` come from `bench_alloc`, filled with UTF-8.
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn bench_count(encoding: u32, at: *const u8, length: usize) -> usize {
        let text = unsafe { std::str::from_utf8_unchecked(std::slice::from_raw_parts(at, length)) };
        #[cfg(feature = "tokengate")]
        return super::counters::tokengate(encoding, text);
        #[cfg(feature = "tiktoken-rs")]
        return super::counters::tiktoken(encoding, text);
        #[cfg(feature = "bpe-openai")]
        return super::counters::bpe(encoding, text);
        #[cfg(feature = "toktok-rs")]
        return super::counters::toktok(encoding, text);
    }
}
