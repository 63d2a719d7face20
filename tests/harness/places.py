"""Where the programs under test are; every one can be named by an environment variable."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class NotBuilt(Exception):
    """A program that the tests need is not there."""


def _named_or_newest(variable: str, *candidates: str) -> Path:
    named = os.environ.get(variable)
    paths = [Path(named)] if named else [ROOT / candidate for candidate in candidates]
    built = [path for path in paths if path.exists()]
    if not built:
        places = ", ".join(str(path) for path in paths)
        raise NotBuilt(f"{places} is missing: run `make test`, or set {variable}")
    return max(built, key=lambda path: path.stat().st_mtime)


def envoy() -> Path:
    return _named_or_newest("ENVOY", ".venv/bin/envoy")


def ratelimit() -> Path:
    return _named_or_newest(
        "TOKENGATE_RATELIMIT",
        "target/debug/tokengate-ratelimit",
        "target/release/tokengate-ratelimit",
    )


def oracle() -> Path:
    return _named_or_newest("TOKENGATE_ORACLE", "target/debug/examples/count_tokens")


def trap() -> Path:
    return _named_or_newest("TOKENGATE_TRAP", "target/trap/tokengate.wasm")


def vocabularies() -> Path:
    return _named_or_newest("TOKENGATE_VOCABULARIES", "target/vocabularies/tokengate.wasm")


def redis() -> str:
    return os.environ.get("REDIS_SERVER", "redis-server")
