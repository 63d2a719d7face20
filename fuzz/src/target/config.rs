//! Plugin configurations: what is accepted keeps what the documentation promises.

use tokengate::config::{Config, Source};

use super::signature;

pub fn run(input: &[u8]) -> u64 {
    let config = match Config::parse(input) {
        Ok(config) => config,
        Err(error) => {
            let message = error.to_string();
            assert!(message.starts_with("configuration: "), "{message}");
            return signature(message.chars().filter(|c| !c.is_ascii_digit()).take(64).collect::<String>());
        }
    };
    assert!((1..=10_000).contains(&config.quota.timeout_ms));
    assert!((1..=67_108_864).contains(&config.max_body_bytes.0));
    assert!((10..=1_000).contains(&config.outbox.tick_ms));
    assert!((16..=65_536).contains(&config.outbox.max_items));
    for name in [&config.quota.cluster, &config.quota.authority] {
        assert!(!name.is_empty() && !name.contains(|c: char| c.is_ascii_control() || c == ' '), "{name:?}");
    }
    assert!(!config.identity.sources.is_empty());
    for source in &config.identity.sources {
        let names: Vec<&str> = match source {
            Source::ApiKey(source) => source.headers.iter().map(String::as_str).collect(),
            Source::TrustedHeader(source) => source.names().collect(),
            Source::Jwt(source) => {
                let paths = [Some(&source.tenant), source.user.as_ref(), source.plan.as_ref()];
                for path in paths.into_iter().flatten().map(|claim| &claim.0).chain([&source.metadata]) {
                    assert!(!path.is_empty() && !path.iter().any(|key| key.is_empty() || key.contains('\0')));
                }
                continue;
            }
            Source::Mtls(_) => continue,
        };
        assert!(!names.is_empty());
        for name in names {
            let is_good = |b: u8| {
                b.is_ascii_graphic() && !b.is_ascii_uppercase() && !b"(),/:;<=>?@[\\]{}\"".contains(&b)
            };
            assert!(!name.is_empty() && name.bytes().all(is_good), "{name:?}");
        }
    }
    for listed in &config.paths.allow {
        assert!(listed.path.starts_with('/') && !listed.path.contains(['*', ' ', '?', '#']), "{listed:?}");
        assert!(
            !listed.method.is_empty() && listed.method.bytes().all(|b| b.is_ascii_uppercase()),
            "{listed:?}"
        );
    }
    let padded = [b" \n", input, b"\t\r\n "].concat();
    assert_eq!(Config::parse(&padded).ok().as_ref(), Some(&config), "white space around it");
    let tail = [input, b"x"].concat();
    assert!(Config::parse(&tail).is_err(), "text after it");
    signature((
        config.failure_mode,
        config.mode,
        config.hold_at,
        config.missing_usage,
        config.overrun,
        config.paths.other,
        config.headers,
    ))
}
