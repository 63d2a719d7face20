"""The filter's own configuration, as far as Envoy's has to fit it. The filter itself refuses what is wrong at its
start; this says so before."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from .node import Node

DEFAULT_HEADERS = ("authorization", "x-api-key", "api-key")

# Every key and the values it takes; None: any. A test compares the keys with README.
KEYS: dict[str, Any] = {
    "quota": {"cluster": None, "authority": None, "timeout_ms": range(1, 10_001), "token_env": None},
    "failure_mode": ("closed", "open"),
    "mode": ("enforce", "observe"),
    "hold_at": ("headers", "body"),
    "identity": {"sources": None, "credential": ("strip", "forward"), "keep_headers": None},
    "paths": {"allow": None, "other": ("deny", "requests", "pass"), "preflight": ("other", "pass")},
    "max_body_bytes": range(1, 67_108_865),
    "missing_usage": ("auto", "estimate", "hold"),
    "overrun": ("allow", "stop"),
    "headers": {"rate_limit": ("replace", "keep"), "reset": ("duration", "seconds")},
    "outbox": {"tick_ms": range(10, 1_001), "max_items": range(16, 65_537)},
}


@dataclass(frozen=True)
class Settings:
    """What the filter would read, with its defaults where the text gives nothing usable."""

    values: dict[str, Any]

    @classmethod
    def of(cls, configuration: Node) -> Settings:
        try:
            values = parse(configuration["value"].text())
        except ValueError:
            values = {}
        return cls(values)

    def _get(self, section: str, key: str, default: Any) -> Any:
        members = self.values.get(section)
        value = members.get(key) if isinstance(members, dict) else None
        return value if isinstance(value, type(default)) and not isinstance(value, bool) else default

    @property
    def quota_cluster(self) -> str:
        return self._get("quota", "cluster", "tokengate_quota")

    @property
    def quota_timeout_s(self) -> float:
        return self._get("quota", "timeout_ms", 100) / 1000

    @property
    def token_env(self) -> str:
        return self._get("quota", "token_env", "")

    @property
    def strips_credential(self) -> bool:
        return self._get("identity", "credential", "strip") != "forward"

    @property
    def holds_body_only(self) -> bool:
        return self.values.get("hold_at") == "body"

    @property
    def max_body_bytes(self) -> int:
        value = self.values.get("max_body_bytes")
        return value if isinstance(value, int) and value in KEYS["max_body_bytes"] else 8_388_608

    @property
    def identity_headers(self) -> list[str]:
        """Where callers' keys stand, lower case."""
        found: list[str] = []
        for source in self._get("identity", "sources", []):
            key = source.get("api_key") if isinstance(source, dict) else None
            names = key.get("headers", []) if isinstance(key, dict) else []
            found += [name.lower() for name in names if isinstance(name, str)]
        return found or list(DEFAULT_HEADERS)

    @property
    def verifying_filters(self) -> list[str]:
        """The filters whose word a `jwt` source takes."""
        found = []
        for source in self._get("identity", "sources", []):
            token = source.get("jwt") if isinstance(source, dict) else None
            if isinstance(token, dict):
                metadata = token.get("metadata", ["envoy.filters.http.jwt_authn"])
                found += metadata[:1] if isinstance(metadata, list) else []
        return [name for name in found if isinstance(name, str)]


def parse(text: str) -> dict[str, Any]:
    """Fails with ValueError, and the reason, on what the filter does not take."""
    values = json.loads(text, object_pairs_hook=_without_duplicates)
    if not isinstance(values, dict):
        raise ValueError("it is no JSON object")
    return values


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, value in pairs:
        if name in members:
            raise ValueError(f"{name!r} is given twice")
        members[name] = value
    return members


def problems(values: dict[str, Any]) -> list[tuple[str, str]]:
    """Each key that is unknown or has a bad value, with what it takes."""
    return _problems(values, KEYS, "")


def _problems(values: dict[str, Any], keys: dict[str, Any], prefix: str) -> list[tuple[str, str]]:
    found = []
    for name, value in values.items():
        path = prefix + name
        if name not in keys:
            found.append((f"unknown key `{path}`", f"one of {', '.join(keys)}, or nothing"))
        elif isinstance(keys[name], dict):
            if isinstance(value, dict):
                found += _problems(value, keys[name], f"{path}.")
            else:
                found.append((f"`{path}` is no object", f"an object with {', '.join(keys[name])}"))
        elif isinstance(keys[name], range):
            if isinstance(value, bool) or not isinstance(value, int) or value not in keys[name]:
                allowed = keys[name]
                found.append((f"`{path}` is {value!r}", f"a whole number from {allowed[0]} to {allowed[-1]}"))
        elif keys[name] is not None and value not in keys[name]:
            found.append((f"`{path}` is {value!r}", f"one of {', '.join(keys[name])}"))
    return found
