//! Unicode classes, as the regular expressions behind tiktoken-rs see them.

use std::collections::HashMap;

use regex_syntax::hir::{Class, HirKind};

pub struct Classes {
    /// Per 128 code points: the number of their block.
    pub index: Vec<u8>,
    /// The different blocks: a class per code point.
    pub blocks: Vec<u8>,
}

const BLOCK: usize = 128;
const CODE_POINTS: usize = 0x11_0000;

/// The numbers are those of `src/lib.rs`.
pub const CLASSES: &[(&str, u8)] = &[
    (r"[\p{Lu}\p{Lt}]", 1),
    (r"\p{Ll}", 2),
    (r"[\p{Lm}\p{Lo}]", 3),
    (r"\p{M}", 4),
    (r"\p{N}", 5),
    (r"\s", 6),
    (r"[\r\n]", 7),
    (r"[ ]", 8),
];

/// Likewise, for deepseek_v3.
#[cfg(feature = "deepseek_v3")]
pub const KINDS: &[(&str, u8)] = &[
    (r"[\p{L}\p{M}]", 1),
    (r"[\p{P}\p{S}]", 2),
    (r"[\u{4e00}-\u{9fa5}\u{3040}-\u{30ff}]", 9),
    (r"[[\u{4e00}-\u{9fa5}\u{3040}-\u{30ff}]&&[\p{L}\p{M}]]", 3),
    (r"[[\u{4e00}-\u{9fa5}\u{3040}-\u{30ff}]&&[\p{P}\p{S}]]", 4),
    (r"\p{N}", 5),
    (r"\s", 6),
    (r"[\r\n]", 7),
    (r"[ ]", 8),
];

/// What is in several classes is in the last of them.
pub fn classes(patterns: &[(&str, u8)]) -> Result<Classes, Box<dyn std::error::Error>> {
    let mut all = vec![0_u8; CODE_POINTS];
    for &(pattern, class) in patterns {
        let hir = regex_syntax::parse(pattern)?;
        let ranges: Vec<(u32, u32)> = match hir.kind() {
            HirKind::Class(Class::Unicode(set)) => {
                set.iter().map(|range| (range.start().into(), range.end().into())).collect()
            }
            HirKind::Class(Class::Bytes(set)) => {
                set.iter().map(|range| (range.start().into(), range.end().into())).collect()
            }
            HirKind::Literal(literal) => {
                literal.0.iter().map(|byte| ((*byte).into(), (*byte).into())).collect()
            }
            _ => return Err(format!("{pattern} is no class").into()),
        };
        for (start, end) in ranges {
            all.get_mut(start as usize..=end as usize).ok_or("a code point too far")?.fill(class);
        }
    }
    let mut classes = Classes { index: Vec::new(), blocks: Vec::new() };
    let mut known: HashMap<&[u8], u8> = HashMap::new();
    for block in all.chunks(BLOCK) {
        let next = u8::try_from(known.len())?;
        let number = *known.entry(block).or_insert_with(|| {
            classes.blocks.extend(block);
            next
        });
        classes.index.push(number);
    }
    Ok(classes)
}
