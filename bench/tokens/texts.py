#!/usr/bin/env python3
"""Gathers about 1 MB per kind of text from what is installed, and makes up the hostile ones.

    texts.py OUT [DIRECTORY…]
"""
import base64, gettext, json, os, random, re, sys
from pathlib import Path

SIZE = 1_000_000
out = Path(sys.argv[1])
roots = [Path(p) for p in sys.argv[2:]] or [Path("/usr/share"), Path("/usr/lib"), Path("/usr/local"),
                                            Path.home() / ".cargo/registry/src", Path.home() / ".rustup"]
out.mkdir(parents=True, exist_ok=True)
rng = random.Random(1)
LANGUAGES = {"zh_CN": "chinese", "ja": "japanese", "ko": "korean", "ar": "arabic", "hi": "hindi", "ru": "russian"}
ENDINGS = {".md": "english", ".rs": "rust", ".py": "python", ".c": "c", ".h": "c", ".go": "go", ".min.js": "minified-js",
           ".json": "json", ".html": "html"}


def walk():
    for root in roots:
        for folder, folders, names in os.walk(root):
            folders.sort()
            for name in sorted(names):
                yield Path(folder, name)


found = {}
for path in walk():
    if "LC_MESSAGES" in path.parts and path.suffix == ".mo":
        if kind := LANGUAGES.get(path.parts[path.parts.index("LC_MESSAGES") - 1]):
            found.setdefault(kind, []).append(path)
        continue
    for ending, kind in ENDINGS.items():
        if path.name.endswith(ending):
            found.setdefault(kind, []).append(path)

texts = {}
for kind, paths in sorted(found.items()):
    rng.shuffle(paths)
    seen, parts, size = set(), [], 0
    for path in paths:
        try:
            if path.suffix == ".mo":
                with open(path, "rb") as file:
                    messages = [t for t in gettext.GNUTranslations(file)._catalog.values() if isinstance(t, str)]
            else:
                messages = [path.read_text("utf-8")[:60_000]]
        except (OSError, UnicodeDecodeError, ValueError):
            continue
        for message in messages:
            if hash(message) in seen or len(message) < 8:
                continue
            if path.suffix == ".mo" and sum(ord(c) > 127 for c in message) * 2 < len(message):
                continue
            seen.add(hash(message))
            parts.append(message)
            size += len(message.encode())
        if size >= SIZE:
            break
    texts[kind] = "\n".join(parts)

letters = "abcdefghijklmnopqrstuvwxyz"
emoji = [chr(c) for c in [*range(0x1F600, 0x1F64F), *range(0x1F300, 0x1F5FF), *range(0x1F900, 0x1F9FF)]]
texts["emoji"] = "".join(rng.choice(emoji) + rng.choice(["", "", " ", "\u200d", "\U0001f3fd", "\ufe0f"])
                         for _ in range(SIZE // 5))
texts["base64"] = base64.b64encode(rng.randbytes(SIZE * 3 // 4)).decode()
pick = lambda alphabet, n: "".join(rng.choices(alphabet, k=n))
hostile = {
    "letters": pick(letters, SIZE), "mixed-letters": pick(letters + letters.upper(), SIZE), "a": "a" * SIZE,
    "aA": "aA" * (SIZE // 2), "two-letters": pick("ab", SIZE), "spaces": " " * SIZE, "tabs": "\t" * SIZE,
    "newlines": "\n" * SIZE, "ideographic-spaces": "\u3000" * (SIZE // 3), "mixed-space": pick(" \t\n\r\u3000\u00a0", SIZE // 2),
    "bangs": "!" * SIZE, "slashes": "/" * SIZE, "punctuation": pick("!\"#$%&'()*+,-./:;<=>?@[]^_`{|}~", SIZE),
    "digits": pick("0123456789", SIZE), "marks": "\u0301" * (SIZE // 2), "hex": pick("0123456789abcdef", SIZE),
    "latin-1": "".join(chr(rng.randrange(0x80, 0x800)) for _ in range(SIZE // 2)),
    "scripts": "".join(chr(rng.choice([0x61, 0x3B1, 0x430, 0x5D0, 0x627, 0x905, 0x4E00, 0xAC00]) + rng.randrange(24))
                       for _ in range(SIZE // 3)),
    "rare-ideographs": "".join(chr(rng.randrange(0x20000, 0x2A000)) for _ in range(SIZE // 4)),
    "near-space": (" " * 127 + "a") * (SIZE // 128), "near-dashes": ("-" * 95 + "=") * (SIZE // 96),
    "camel": "".join(rng.choice("ABCDEFGH") + pick(letters, rng.randrange(3)) for _ in range(SIZE // 3)),
}
# The slowest found for o200k_base: nothing is to be split at, and many tokens start like what comes but fit badly.
words = sorted(set(re.findall("[a-z]{4,}", texts["english"])))
hostile["word-ends"] = "".join(word[rng.randrange(len(word)):] for word in rng.choices(words, k=SIZE // 3))
texts.update({"~" + name: text for name, text in hostile.items()})
for name, text in texts.items():
    data = text.encode()[:SIZE].decode(errors="ignore").encode()
    (out / f"{name}.txt").write_bytes(data)
    print(f"{name:20} {len(data):8}", file=sys.stderr)
(out / "index.json").write_text(json.dumps(sorted(texts)))
