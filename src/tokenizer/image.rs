//! What an image costs at most. The size of a remote image is unknown before the provider fetches it, so
//! the model's maximum is held and the usage corrects it.

/// An image as large as the rules let one be, so that it costs the most: 2 × 4 tiles, 24 × 64 patches.
const LARGEST: (u32, u32) = (2_048, 768);
/// An image is scaled down to a square of this side, then to this shorter side, and cut into tiles.
const LONGEST_SIDE: f64 = 2_048.0;
const SHORTER_SIDE: f64 = 768.0;
const TILE: f64 = 512.0;
/// Or it is cut into patches, after being scaled down to so many.
const PATCH: f64 = 32.0;
const MAX_PATCHES: f64 = 1_536.0;

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

/// The most that one image costs, for a normalised model name.
pub fn tokens(model: &str, low_detail: bool) -> u64 {
    match rule(model) {
        Rule::Tiles { base, .. } if low_detail => base,
        rule => of_size(&rule, LARGEST),
    }
}

/// Tokens of an image of so many pixels, in full detail.
fn of_size(rule: &Rule, (width, height): (u32, u32)) -> u64 {
    let (width, height) = (f64::from(width.max(1)), f64::from(height.max(1)));
    match rule {
        Rule::Tiles { base, tile } => {
            let scale = (LONGEST_SIDE / width.max(height)).min(1.0);
            let scale = scale * (SHORTER_SIDE / (scale * width.min(height))).min(1.0);
            base + tile * cut(scale * width / TILE) * cut(scale * height / TILE)
        }
        Rule::Patches { factor } => (factor * patches(width / PATCH, height / PATCH)).div_ceil(100),
    }
}

/// The number of patches of an image whose sides are given in patches.
fn patches(width: f64, height: f64) -> u64 {
    let whole = cut(width) * cut(height);
    if whole as f64 <= MAX_PATCHES {
        return whole;
    }
    let scale = (MAX_PATCHES / (width * height)).sqrt();
    let (width, height) = (scale * width, scale * height);
    // One side then is a whole number of patches.
    let scale = (width.floor().max(1.0) / width).min(height.floor().max(1.0) / height);
    (cut(scale * width) * cut(scale * height)).min(MAX_PATCHES as u64)
}

/// How many parts of length 1 it takes to cover a length, rounding errors aside.
fn cut(length: f64) -> u64 {
    (length - 1e-9).ceil().max(1.0) as u64
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
    fn published_sizes() {
        for (model, size, published) in [
            ("gpt-4o", (1_024, 1_024), 765),
            ("gpt-4o", (2_048, 4_096), 1_105),
            ("gpt-4.1", (1_024, 1_024), 765),
            ("gpt-4o-mini", (1_024, 1_024), 25_501),
            ("gpt-4o-mini", (2_048, 4_096), 36_835),
            ("gpt-5", (1_024, 1_024), 630),
            ("gpt-5", (2_048, 4_096), 910),
            ("o1", (1_024, 1_024), 675),
            ("o3", (2_048, 4_096), 975),
            ("gpt-4.1-mini", (1_024, 1_024), 1_659),
            ("gpt-5-mini", (1_800, 2_400), 2_353),
            ("gpt-4o", (1, 1), 255),
        ] {
            assert_eq!(of_size(&rule(model), size), published, "{model} {size:?}");
        }
        assert_eq!(patches(1_800.0 / PATCH, 2_400.0 / PATCH), 1_452);
    }

    #[test]
    fn no_image_costs_more_than_the_largest() {
        for model in ["gpt-4o", "gpt-4o-mini", "gpt-5", "o1", "gpt-4.1-mini", "gpt-4.1-nano", "o4-mini"] {
            for width in (1..9_000).step_by(97) {
                for height in (1..9_000).step_by(89).chain([767, 768, 769, 2_048, u32::MAX]) {
                    let counted = of_size(&rule(model), (width, height));
                    assert!(counted <= tokens(model, false), "{model} {width} × {height}: {counted}");
                }
            }
        }
    }

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
