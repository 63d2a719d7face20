//! What an image costs at most. The size of a remote image is unknown before the provider fetches it, so
//! the model's maximum is held and the usage corrects it.

/// A wide image that fits 2048 × 2048, its short side 768: 2 × 4 tiles of 512 pixels.
const MAX_TILES: u64 = 8;
/// Images above this many 32-pixel patches are scaled down to it.
const MAX_PATCHES: u64 = 1_536;

enum Rule {
    Tiles {
        base: u64,
        tile: u64,
    },
    /// Tokens per patch, in hundredths.
    Patches {
        factor: u64,
    },
}

/// Tokens of one image for a normalised model name.
pub fn tokens(model: &str, low_detail: bool) -> u64 {
    match rule(model) {
        Rule::Tiles { base, .. } if low_detail => base,
        Rule::Tiles { base, tile } => base + MAX_TILES * tile,
        Rule::Patches { factor } => (MAX_PATCHES * factor).div_ceil(100),
    }
}

fn rule(model: &str) -> Rule {
    let is = |prefix: &str| model.starts_with(prefix);
    if is("gpt-4o-mini") {
        Rule::Tiles { base: 2_833, tile: 5_667 }
    } else if is("gpt-4.1-mini") || is("gpt-5-mini") {
        Rule::Patches { factor: 162 }
    } else if is("gpt-4.1-nano") || is("gpt-5-nano") {
        Rule::Patches { factor: 246 }
    } else if is("o4-mini") {
        Rule::Patches { factor: 172 }
    } else if is("gpt-5") {
        Rule::Tiles { base: 70, tile: 140 }
    } else if is("o1") || is("o3") {
        Rule::Tiles { base: 75, tile: 150 }
    } else {
        Rule::Tiles { base: 85, tile: 170 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_maxima() {
        for (model, high, low) in [
            ("gpt-4o", 1_445, 85),
            ("gpt-4o-mini-2024", 48_169, 2_833),
            ("gpt-4.1-mini", 2_489, 2_489),
            ("gpt-5", 1_190, 70),
        ] {
            assert_eq!((tokens(model, false), tokens(model, true)), (high, low), "{model}");
        }
    }
}
