#!/usr/bin/env python3
"""Small requests on an Envoy with one worker, while another client sends hostile prompts of 1 MB.

    worker.py NAME=WASM…       (SECONDS=, of each run; ROUNDS=; KINDS=, of prompts, parted by commas; SIZE=, of each)

The filters take turns. The small requests go to a provider and back, one after the other; the hostile ones are
counted and then refused. Prints milliseconds. Needs what the end-to-end tests need: `make e2e` builds it.
"""

import multiprocessing as mp
import os
import platform
import random
import shutil
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from harness import chat, http1  # noqa: E402
from harness.envoy import Envoy  # noqa: E402
from harness.policy import Policy, Tenant  # noqa: E402
from harness.ports import free_port  # noqa: E402
from harness.process import Process  # noqa: E402
from harness.service import quota_service  # noqa: E402

SECONDS = float(os.environ.get("SECONDS", 10))
ROUNDS = int(os.environ.get("ROUNDS", 2))
PAUSE_S = 0.005
SIZE = int(os.environ.get("SIZE", 1_000_000))

rng = random.Random(1)
LETTERS = "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=SIZE))
# Contents of a message.
HOSTILE: dict[str, Any] = {
    "none": None,
    "random words": " ".join("".join(rng.choices("etaoinshrdlu", k=rng.randint(1, 9))) for _ in range(SIZE // 5))[:SIZE],
    "random letters": LETTERS,
    "spaces before letters": (" " * 126 + "x") * (SIZE // 127),
    # Read again when its end is there.
    "type last": [{"text": LETTERS, "type": "text"}],
    "numbers": [1] * (SIZE // 3),
}
CHOSEN = os.environ.get("KINDS", ",".join(HOSTILE)).split(",")


def send_hostile(port: int, tenant: Tenant, content: Any, stop: "mp.synchronize.Event", counted: "mp.Queue[int]") -> None:
    body = chat.encode(chat.body(messages=[{"role": "user", "content": content}]))
    request = http1.encode("POST", chat.PATH, [tenant.bearer, ("connection", "close")], body)
    done = 0
    while not stop.is_set():
        connection = http1.Connection(port)
        connection.send(request)
        assert connection.response().status == 429
        connection.close()
        done += 1
    counted.put(done)


def measure(port: int, tenant: Tenant, seconds: float) -> list[float]:
    """Latencies in milliseconds."""
    request = http1.encode("POST", chat.PATH, [tenant.bearer], chat.encode(chat.body()))
    connection = http1.Connection(port)
    found = []
    end = time.perf_counter() + seconds
    while (began := time.perf_counter()) < end:
        connection.send(request)
        assert connection.response().status == 200
        found.append(1000 * (time.perf_counter() - began))
        time.sleep(PAUSE_S)
    connection.close()
    return found


def run(port: int, small: Tenant, hostile: Tenant, content: Any) -> tuple[list[float], float]:
    measure(port, small, 0.5)
    if content is None:
        return measure(port, small, SECONDS), 0.0
    stop, counted = mp.Event(), mp.Queue()
    sender = mp.Process(target=send_hostile, args=(port, hostile, content, stop, counted))
    sender.start()
    try:
        time.sleep(0.3)
        found = measure(port, small, SECONDS)
    finally:
        stop.set()
    done = counted.get(timeout=60) / (SECONDS + 0.3)
    sender.join()
    return found, done


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def main() -> None:
    modules = {name: Path(path).resolve() for name, path in (argument.split("=", 1) for argument in sys.argv[1:])}
    assert modules, __doc__
    latencies: dict[tuple[str, str], list[float]] = {}
    rates: dict[tuple[str, str], list[float]] = {}
    with ExitStack() as closing:
        folder = Path(closing.enter_context(tempfile.TemporaryDirectory()))
        policy = Policy()
        service = closing.enter_context(quota_service(policy, folder))
        upstream_port = free_port()
        command = [str(ROOT / "target/debug/tokengate-demo-upstream"), "--listen", f"127.0.0.1:{upstream_port}"]
        closing.callback(Process(command, folder / "upstream.log", os.environ, ROOT).stop)
        envoys = {}
        for name, wasm in modules.items():
            copy = shutil.copy(wasm, folder / f"{name}.wasm")

            def use(config, copy=copy):  # type: ignore[no-untyped-def]
                config.plugin["vm_config"]["code"] = {"local": {"filename": str(copy)}}

            envoys[name] = Envoy(folder, upstream_port, service.port, {"quota": {"timeout_ms": 5000}}, 1, use)
            closing.callback(envoys[name].stop)
            envoys[name].wait_for_models()
        for _ in range(ROUNDS):
            for kind in CHOSEN:
                for name, envoy in envoys.items():
                    small, tiny = policy.fresh_tenant("roomy"), policy.fresh_tenant("tiny")
                    found, rate = run(envoy.port, small, tiny, HOSTILE[kind])
                    latencies.setdefault((kind, name), []).extend(found)
                    rates.setdefault((kind, name), []).append(rate)
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    print(f"{os.cpu_count()} cores of {cpu}, {platform.system()}")
    print("| beside prompts of | filter | p50 ms | p99 ms | longest ms | prompts a second |\n|---|---|---|---|---|---|")
    for (kind, name), found in latencies.items():
        rate = sum(rates[kind, name]) / len(rates[kind, name])
        numbers = [f"{value:.1f}" for value in (quantile(found, 0.5), quantile(found, 0.99), max(found), rate)]
        print(f"| {kind} | {name} | {' | '.join(numbers)} |")


if __name__ == "__main__":
    main()
