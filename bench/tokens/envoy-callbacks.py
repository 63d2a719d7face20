#!/usr/bin/env python3
"""How long the filter holds an Envoy's worker at a time while it counts prompts: envoy-callbacks.py WASM   (SIZE=, ROUNDS=)

By the times in Envoy's own log, which are whole milliseconds: each call of the filter's body callback and of its
tick, what the machine did in between included. Needs what the end-to-end tests need: `make e2e` builds it.
"""

import os
import random
import re
import sys
import tempfile
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from harness import chat, http1  # noqa: E402
from harness.envoy import Envoy  # noqa: E402
from harness.policy import MODELS, Tenant  # noqa: E402
from harness.quota import FakeQuota  # noqa: E402
from harness.upstream import Upstream  # noqa: E402

SIZE = int(os.environ.get("SIZE", 1_000_000))
ROUNDS = int(os.environ.get("ROUNDS", 5))
LINE = re.compile(r"^\[([\d-]+ [\d:.]+)\]\[(\d+)\]\[trace\]\[wasm\] \[[^]]+\] \[host(->|<-)vm\] (proxy_on_\w+)")
TENANT = Tenant("callbacks", "roomy")

rng = random.Random(1)
letters = "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=SIZE))
spaces = (" " * 126 + "x") * (SIZE // 127)
# A small one first, which makes the tables; then requests but for their model, which comes first or last.
PROMPTS: dict[str, tuple[str, bool]] = {
    "a small one": ('"x"', True),
    "random letters": (f'"{letters}"', True),
    "model last": (f'"{letters}"', False),
    "a part, type first": (f'[{{"type":"text","text":"{letters}"}}]', True),
    "type last": (f'[{{"text":"{letters}","type":"text"}}]', True),
    "type last, model last": (f'[{{"text":"{letters}","type":"text"}}]', False),
    "no type": (f'[{{"text":"{letters}"}}]', True),
    "type given twice": (f'[{{"type":"text","text":"{letters}","type":"odd"}}]', True),
    "spaces before letters, type last": (f'[{{"text":"{spaces}","type":"text"}}]', True),
    "numbers": (f"[{'1,' * (SIZE // 2)}1]", True),
}


def request(content: str, is_model_first: bool) -> bytes:
    members = ['"model":"gpt-4o"', f'"messages":[{{"role":"user","content":{content}}}]']
    return ("{" + ",".join(members if is_model_first else reversed(members)) + "}").encode()


def durations(log: str) -> dict[str, list[float]]:
    """Milliseconds of each call, by callback."""
    began: dict[str, datetime] = {}
    found: dict[str, list[float]] = {"proxy_on_request_body": [], "proxy_on_tick": []}
    for line in log.splitlines():
        # Memory is asked for inside of the other calls.
        if not (call := LINE.match(line)) or call[4] not in found:
            continue
        at, thread = datetime.fromisoformat(call[1]), call[2]
        if call[3] == "->":
            began[thread] = at
        elif thread in began:
            found[call[4]].append((at - began.pop(thread)).total_seconds() * 1000)
    return {name: sorted(times) for name, times in found.items()}


def main() -> None:
    [wasm] = sys.argv[1:]

    def use(config):  # type: ignore[no-untyped-def]
        config.plugin["vm_config"]["code"] = {"local": {"filename": str(Path(wasm).resolve())}}

    with ExitStack() as closing:
        folder = Path(closing.enter_context(tempfile.TemporaryDirectory()))
        quota = FakeQuota(MODELS)
        closing.callback(quota.stop)
        upstream = Upstream(chat.raw_json(chat.completion("x", chat.Usage(1, 1))))
        closing.callback(upstream.stop)
        plugin = {"quota": {"timeout_ms": 5000}}
        envoy = Envoy(folder, upstream.port, quota.port, plugin, 1, use, ("--component-log-level", "wasm:trace"))
        closing.callback(envoy.stop)
        envoy.wait_for_models()
        print("| prompt | callbacks | longest, ms | ticks | p90 | longest, ms |\n|---|---|---|---|---|---|")
        seen = 0
        for name, (content, is_model_first) in PROMPTS.items():
            body = request(content, is_model_first)
            for _ in range(ROUNDS):
                answer = http1.request(envoy.port, "POST", chat.PATH, [TENANT.bearer], body)
                assert answer.status == 200, answer
            log = envoy.output()
            found, seen = durations(log[seen:]), len(log)
            bodies, ticks = found["proxy_on_request_body"], found["proxy_on_tick"] or [0.0]
            cells = [len(bodies), bodies[-1], len(ticks), ticks[len(ticks) * 9 // 10], ticks[-1]]
            print(f"| {name} | {' | '.join(f'{cell:.0f}' for cell in cells)} |")
    print(f"\n{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {ROUNDS} of each, {SIZE / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
