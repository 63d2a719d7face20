//! Made-up texts that should differ from the oracle's count if anything does: for the tests and for
//! `examples/proof_tokens.rs`. The same seed makes the same text.

/// xorshift64*.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize) % limit.max(1)
    }

    pub fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from.get(self.below(from.len())).copied().unwrap_or_default()
    }
}

/// Where the split patterns or the merges have something to decide.
pub const UNITS: &[&str] = &[
    "a",
    "A",
    "aA",
    "Aa",
    "b",
    "the",
    "The",
    "THE",
    "'",
    "'s",
    "'S",
    "'ſ",
    "'t",
    "'T",
    "'re",
    "'Re",
    "'vE",
    "'ll",
    "'LL",
    "'d",
    "'m",
    "'x",
    "’s",
    "\u{212a}",
    "ſ",
    "/",
    "//",
    "0",
    "12",
    "345",
    "1\n",
    " ",
    "  ",
    "   ",
    "\t",
    "\n",
    "\n\n",
    "\r",
    "\r\n",
    "\n ",
    " \n",
    "\u{b}",
    "\u{c}",
    "\u{85}",
    "\u{a0}",
    "\u{1680}",
    "\u{2003}",
    "\u{2028}",
    "\u{2029}",
    "\u{202f}",
    "\u{3000}",
    "\u{200b}",
    "\u{feff}",
    "\u{180e}",
    "\u{301}",
    "\u{20dd}",
    "\u{93f}",
    "^",
    "!",
    "!?",
    ".",
    ",",
    "()",
    "{\"",
    "\":",
    "==",
    "---",
    "的",
    "世界",
    "カタ",
    "ひら",
    "ー",
    "・",
    "한국",
    "ы",
    "Ж",
    "ǅ",
    "ʰ",
    "ª",
    "İ",
    "ß",
    "é",
    "e\u{301}",
    "א",
    "ع",
    "ـ",
    "हि",
    "ไทย",
    "٣",
    "४",
    "Ⅷ",
    "½",
    "²",
    "〇",
    "🙂",
    "👩\u{200d}👧",
    "🏽",
    "🇨🇭",
    "\0",
    "\u{10ffff}",
    "\u{e000}",
    "$",
    "€",
    "+",
    "_",
    "$x",
    "x_y",
    "HTMLParser",
    "camelCase",
    "\\n",
    "<|endoftext|>",
];

/// First code points of ranges worth a run.
const SCRIPTS: &[u32] = &[
    0x20, 0x60, 0x80, 0xc0, 0x180, 0x2b0, 0x300, 0x370, 0x400, 0x560, 0x5d0, 0x620, 0x660, 0x900, 0x940,
    0x980, 0xb80, 0xe00, 0xe40, 0xf00, 0x10a0, 0x1100, 0x1780, 0x1e00, 0x1f80, 0x2000, 0x2070, 0x2150,
    0x2190, 0x2460, 0x2600, 0x3000, 0x3040, 0x30a0, 0x3400, 0x4e00, 0x5b00, 0x7000, 0x9fc0, 0xa640, 0xac00,
    0xc800, 0xd7c0, 0xe000, 0xf900, 0xfb00, 0xfe00, 0xff00, 0xffc0, 0x1_0000, 0x1_0400, 0x1_d400, 0x1_d7c0,
    0x1_f300, 0x1_f600, 0x2_0000, 0xe_0100, 0x10_ffc0,
];

/// A text of about `length` bytes. `token` gives the bytes of a token of the vocabulary by any number.
pub fn text(seed: u64, length: usize, token: &dyn Fn(usize) -> Vec<u8>) -> String {
    let mut random = Random::new(seed);
    let mut bytes = Vec::with_capacity(length + 64);
    let kind = random.below(10);
    let alphabet = 1 + random.below(26);
    let script = SCRIPTS.get(random.below(SCRIPTS.len())).copied().unwrap_or_default();
    while bytes.len() < length {
        match kind {
            0 => bytes.push(random.below(256) as u8),
            1 => push(&mut bytes, random.below(0x11_0000) as u32),
            2 => push(&mut bytes, random.below(0x3000) as u32),
            3 => push(&mut bytes, script + random.below(64) as u32),
            4 => bytes.extend(random.pick(UNITS).as_bytes()),
            5 => {
                let unit = [random.pick(UNITS), random.pick(UNITS), random.pick(UNITS)].concat();
                bytes.extend(unit.repeat(1 + random.below(40)).as_bytes());
            }
            6 => bytes.extend(token(random.below(usize::MAX))),
            7 => near_miss(&mut random, token, &mut bytes),
            8 => bytes.push(b'a' + random.below(alphabet) as u8),
            _ => match random.below(4) {
                0 => push(&mut bytes, script + random.below(64) as u32),
                1 => bytes.extend(random.pick(UNITS).as_bytes()),
                2 => bytes.extend(token(random.below(usize::MAX))),
                _ => bytes.push(random.below(128) as u8),
            },
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn push(bytes: &mut Vec<u8>, code: u32) {
    let character = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
    bytes.extend(character.encode_utf8(&mut [0; 4]).as_bytes());
}

/// A token with a byte changed, lost or doubled, some times over.
fn near_miss(random: &mut Random, token: &dyn Fn(usize) -> Vec<u8>, bytes: &mut Vec<u8>) {
    let mut near = token(random.below(usize::MAX));
    let at = random.below(near.len());
    match random.below(4) {
        0 => near.truncate(at),
        1 => drop(near.remove(at)),
        2 => near.insert(at, b'a' + random.below(26) as u8),
        _ => near.extend_from_within(at..),
    }
    for _ in 0..1 + random.below(8) {
        bytes.extend(&near);
    }
}
