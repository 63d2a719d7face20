"""The policy file of a test stack: plans with known limits, and tenants enough for a fresh one per test."""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

# No run lasts this long: a window with so much left does not end under a test.
ROOM_S = 30 * 60
# A limit that recovers soon enough for a client to wait for it.
BURST_S = 2

MODELS: list[dict[str, Any]] = [
    {
        "name": "gpt-4o",
        "match": ["gpt-4o", "gpt-4o-20*", "house-model"],
        "tokenizer": "o200k_base",
        "max_output_tokens": 1000,
        "default_output_tokens": 200,
    },
    {"name": "gpt-4", "match": ["gpt-4"], "max_output_tokens": 800, "default_output_tokens": 100},
    {
        "name": "o3",
        "match": ["o3"],
        "tokenizer": "o200k_base",
        "max_output_tokens": 1000,
        "default_output_tokens": 200,
        "reasoning": True,
    },
]


@dataclass(frozen=True)
class Plan:
    requests: int = 1_000_000
    tokens: int = 1_000_000_000
    burst: int = 1_000_000_000
    models: tuple[str, ...] = ("*",)
    # How many tests of a file can have a tenant of their own.
    tenants: int = 24


PLANS: dict[str, Plan] = {
    "roomy": Plan(tenants=256),
    "one-request": Plan(requests=1),
    "two-requests": Plan(requests=2),
    "small": Plan(tokens=1000),
    "tiny": Plan(tokens=10),
    "one-per-burst": Plan(burst=1),
    "narrow": Plan(models=("gpt-4",)),
}


@dataclass(frozen=True)
class Tenant:
    name: str
    plan: str

    @property
    def key(self) -> str:
        return f"sk-test-{self.name}"

    @property
    def key_hash(self) -> str:
        return hashlib.sha256(self.key.encode()).hexdigest()

    @property
    def bearer(self) -> tuple[str, str]:
        return ("authorization", f"Bearer {self.key}")


@dataclass
class Policy:
    plans: dict[str, Plan] = field(default_factory=lambda: dict(PLANS))
    # Changes the document, for what plans alone do not say.
    edit: Callable[[dict[str, Any]], None] = lambda document: None

    def __post_init__(self) -> None:
        self._tenants = [Tenant(f"{name}-{i}", name) for name, plan in self.plans.items() for i in range(plan.tenants)]
        self._fresh = {plan: [t for t in self._tenants if t.plan == plan] for plan in self.plans}

    def fresh_tenant(self, plan: str) -> Tenant:
        """A tenant that no test has used, so that its buckets are empty."""
        assert self._fresh[plan], f"give the plan {plan} more tenants"
        return self._fresh[plan].pop(0)

    def write(self, path: Path) -> Path:
        document = self._document()
        self.edit(document)
        # In one step: the service must not read half a file.
        fresh = path.with_suffix(".new")
        fresh.write_text(yaml.safe_dump(document, sort_keys=False))
        return fresh.replace(path)

    def _document(self) -> dict[str, Any]:
        def limit(name: str, per: list[str], count: str, amount: Any, every: str) -> dict[str, Any]:
            shape = {"algorithm": "fixed_window", "every": every, "limit": amount}
            return {"name": name, "per": per, "count": count, **shape}

        day, plans, bucket = _window(), self.plans.items(), ["tenant", "model"]
        return {
            "version": "tests-1",
            "models": MODELS,
            "unknown_model": "deny",
            "plans": {name: {"models": list(plan.models)} for name, plan in plans},
            "keys": [{"sha256": t.key_hash, "tenant": t.name, "plan": t.plan} for t in self._tenants],
            "limits": [
                limit("model-requests", bucket, "requests", {name: plan.requests for name, plan in plans}, day),
                limit("model-tokens", bucket, "tokens", {name: plan.tokens for name, plan in plans}, day),
                limit("burst", bucket, "requests", {name: plan.burst for name, plan in plans}, f"{BURST_S}s"),
                # Never the tightest; it also counts requests that name no model.
                limit("account-requests", ["tenant"], "requests", 1_000_000_000, day),
            ],
        }


def _window() -> str:
    """About a day, chosen so that it does not end soon. Windows are aligned to the epoch."""
    now = time.time()
    hours = next(h for h in range(24, 12, -1) if h * 3600 - now % (h * 3600) > ROOM_S)
    return f"{hours}h"
