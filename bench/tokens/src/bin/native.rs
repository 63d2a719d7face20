//! The counters natively, interleaved: native DIRECTORY [encoding]. Prints one JSON line per text.

use std::{env, fs, time::Instant};

use bench_tokens::counters;

const ROUNDS: usize = 3;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = env::args().nth(1).ok_or("native DIRECTORY [o200k|cl100k]")?;
    let encoding = u32::from(env::args().nth(2).as_deref() == Some("cl100k"));
    type Counter = fn(u32, &str) -> usize;
    let counters: [(&str, Counter); 4] = [
        ("tokengate", counters::tokengate),
        ("tiktoken-rs", counters::tiktoken),
        ("bpe-openai", counters::bpe),
        ("toktok-rs", counters::toktok),
    ];
    for (name, counter) in counters {
        let start = Instant::now();
        counter(encoding, "ready");
        println!("{{\"ready\":\"{name}\",\"ms\":{:.2}}}", start.elapsed().as_secs_f64() * 1e3);
    }
    let mut paths: Vec<_> = fs::read_dir(directory)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    for path in paths.iter().filter(|path| path.extension().is_some_and(|ending| ending == "txt")) {
        let text = fs::read_to_string(path)?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let white = name.contains("space") || name == "~tabs" || name == "~newlines";
        let mut best = [f64::MAX; 4];
        let mut counts = [0; 4];
        for _ in 0..ROUNDS {
            for (at, (name, counter)) in counters.iter().enumerate() {
                // tiktoken-rs panics on 1 MB of white space.
                let text = if white && *name == "tiktoken-rs" {
                    &text[..text.floor_char_boundary(200_000)]
                } else {
                    &text
                };
                let start = Instant::now();
                counts[at] = counter(encoding, text);
                let seconds = start.elapsed().as_secs_f64();
                best[at] = best[at].min(seconds * 1e6 / text.len() as f64);
                if seconds > 3.0 {
                    break;
                }
            }
        }
        let rates: Vec<String> = counters
            .iter()
            .zip(best)
            .map(|((name, _), best)| format!("\"{name}\":{:.1}", 1.0 / best))
            .collect();
        println!("{{\"text\":\"{name}\",\"tokens\":{counts:?},{}}}", rates.join(","));
    }
    Ok(())
}
