//! One stream's events as text, a line each, so that mutations of bytes and lines make new orders of events.
//!
//! `␊` and `␍` stand for the line ends inside of a line. A line that means nothing is skipped.

use tokengate::callers::Standing;
use tokengate_api::ExtendStatus;

/// One line of a script.
#[derive(Debug, PartialEq)]
pub enum Line {
    /// The plugin's configuration, before the first event.
    Config(Vec<u8>),
    /// A request header, for the next `headers`.
    Field(Vec<u8>, Vec<u8>),
    Headers {
        end_of_stream: bool,
    },
    /// So many bytes are held.
    Held(usize),
    /// At most so many bytes of a body are counted along.
    Piece(usize, Vec<u8>),
    /// The body's end; in gzip where `packed`.
    End {
        body: Vec<u8>,
        packed: bool,
    },
    Withheld,
    /// The service's answer, as JSON.
    Answer(Vec<u8>),
    Failed(&'static str),
    /// From now on no rewrite succeeds.
    RewritesFail,
    RewriteFailed,
    /// From now on there is no randomness.
    NoId,
    /// What is known of callers from now on.
    Standing(Standing),
    /// The answer to who calls.
    Identified(Standing),
    IdentifyFailed,
    Head {
        status: u16,
        from_provider: bool,
        coding: &'static str,
    },
    Chunk {
        bytes: Vec<u8>,
        is_last: bool,
    },
    /// The answer to an extension.
    Extended(ExtendStatus, Option<u64>),
    Cut,
    Wait(u64),
    Stop {
        reached_provider: bool,
    },
}

pub fn parse(script: &[u8]) -> Vec<Line> {
    script.split(|byte| *byte == b'\n').filter_map(line).collect()
}

fn line(line: &[u8]) -> Option<Line> {
    let (word, rest) = match line.iter().position(|byte| *byte == b' ') {
        Some(at) => (&line[..at], &line[at + 1..]),
        None => (line, &b""[..]),
    };
    let words: Vec<&[u8]> = rest.split(|byte| *byte == b' ').collect();
    let number = |at: usize| -> Option<u64> { std::str::from_utf8(words.get(at)?).ok()?.parse().ok() };
    let has = |word: &str| words.contains(&word.as_bytes());
    Some(match word {
        b"config" => Line::Config(rest.to_vec()),
        b"field" => {
            // Names may begin with a colon.
            let colon = rest.iter().skip(1).position(|byte| *byte == b':')? + 1;
            Line::Field(rest[..colon].to_vec(), rest[colon + 1..].trim_ascii().to_vec())
        }
        b"headers" => Line::Headers { end_of_stream: false },
        b"headers-only" => Line::Headers { end_of_stream: true },
        b"held" => Line::Held(usize::try_from(number(0)?).ok()?),
        b"piece" => {
            Line::Piece(usize::try_from(number(0)?).ok()?, text(rest.get(words.first()?.len() + 1..)?))
        }
        b"end" => Line::End { body: text(rest), packed: false },
        b"end-gzip" => Line::End { body: text(rest), packed: true },
        b"withheld" => Line::Withheld,
        b"answer" => Line::Answer(text(rest)),
        b"allow" => Line::Answer(br#"{"decision":"allow","account":"a","policy_version":"v1"}"#.to_vec()),
        b"deny" => Line::Answer(
            br#"{"decision":"deny","reason":"tpm_limit_exceeded","policy_version":"v1","retry_after_ms":5}"#
                .to_vec(),
        ),
        b"gone" => Line::Answer(br#"{"decision":"gone","policy_version":"v2"}"#.to_vec()),
        b"failed" => Line::Failed(["connection", "deadline", "unusable"].into_iter().find(|word| has(word))?),
        b"rewrites" => Line::RewritesFail,
        b"rewrite-failed" => Line::RewriteFailed,
        b"no-id" => Line::NoId,
        b"standing" => Line::Standing(standing(rest)),
        b"identified" => Line::Identified(standing(rest)),
        b"identify-failed" => Line::IdentifyFailed,
        b"head" => Line::Head {
            status: u16::try_from(number(0)?).ok()?,
            from_provider: has("provider"),
            coding: ["gzip", "br"].into_iter().find(|word| has(word)).unwrap_or(""),
        },
        b"chunk" => Line::Chunk { bytes: text(rest), is_last: false },
        b"last" => Line::Chunk { bytes: text(rest), is_last: true },
        b"extended" => {
            let statuses = [("allow", ExtendStatus::Allow), ("deny", ExtendStatus::Deny)];
            let status = statuses.into_iter().find(|(word, _)| has(word));
            Line::Extended(status.map_or(ExtendStatus::Unknown, |(_, status)| status), number(1))
        }
        b"cut" => Line::Cut,
        b"wait" => Line::Wait(number(0)?.min(1 << 40)),
        b"stop" => Line::Stop { reached_provider: has("provider") },
        _ => return None,
    })
}

fn standing(word: &[u8]) -> Standing {
    match word {
        b"known" => Standing::Known,
        b"unknown" => Standing::Unknown,
        b"untold" => Standing::Untold,
        _ => Standing::Unasked,
    }
}

/// With real line ends.
fn text(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((&byte, after)) = rest.split_first() {
        let stands_for =
            [("␊", b'\n'), ("␍", b'\r')].into_iter().find(|(sign, _)| rest.starts_with(sign.as_bytes()));
        match stands_for {
            Some((sign, end)) => {
                out.push(end);
                rest = &rest[sign.len()..];
            }
            None => {
                out.push(byte);
                rest = after;
            }
        }
    }
    out
}
