"""Thousands of mixed requests through one Envoy: no trap, no hold left open, every bucket right, memory flat.

`make soak`, with REQUESTS, CONCURRENCY and SEED in the environment. The seed is printed, and makes the same
requests again, though not in the same order of arrival.
"""

import os
import sys
import tempfile
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness.stack import Stack, running
from harness.upstream import Exchange
from harness.wait import becomes, eventually
from soak_kinds import Maker
from soak_request import NUMBER, Request

REQUESTS = int(os.environ.get("REQUESTS") or 10_000)
CONCURRENCY = int(os.environ.get("CONCURRENCY") or 16)
SEED = int(os.environ.get("SEED") or time.time())

# Memory is looked at between batches, when nothing is in flight.
BATCH = 500
WARM_UP = 2_000
MAX_GROWTH, MAX_GROWTH_KB = 0.05, 4 << 10
SETTLED_WITHIN_S = 5.0
ROOMY, UNSURE, TINY = 32, 16, 8

Bounds = dict[tuple[str, str], list[int]]


def resident_kb(port: int) -> int:
    """Of the Envoy with the configuration that the harness names by its port."""
    total = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
            status = (process / "status").read_text() if f"envoy-{port}.yaml".encode() in command else ""
        except OSError:  # it has ended
            continue
        total += sum(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    assert total, "Envoy was not found in /proc"
    return total


class Soak:
    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        roomy = [stack.tenant() for _ in range(ROOMY)]
        unsure = [stack.tenant() for _ in range(UNSURE)]
        tiny = [stack.tenant("tiny") for _ in range(TINY)]
        self.maker = Maker(SEED, roomy, unsure, tiny)
        self.memory: dict[int, int] = {}
        self.statuses: dict[int | None, int] = defaultdict(int)
        self.wrong: list[str] = []
        # Least and most tokens, least and most requests, by tenant and model.
        tenants = [*roomy, *unsure, *tiny]
        self.bounds: Bounds = {(tenant.name, model): [0] * 4 for tenant in tenants for model in ("gpt-4o", "gpt-4")}
        self._requests: dict[str, Request] = {}
        stack.upstream.handler = self._answer

    async def _answer(self, exchange: Exchange) -> None:
        request = self._requests[exchange.request.header(NUMBER) or ""]
        assert request.handler, "this must not reach the provider"
        await request.handler(exchange)

    def run(self) -> None:
        started = time.monotonic()
        with ThreadPoolExecutor(CONCURRENCY) as callers:
            for first in range(0, REQUESTS, BATCH):
                batch = {number: self.maker.make() for number in range(first, min(first + BATCH, REQUESTS))}
                self._requests = {str(number): request for number, request in batch.items()}
                for status, request in callers.map(self._send, batch.items()):
                    self._seen(status, request)
                becomes(self.stack.envoy.active_requests, 0)
                self.stack.check()
                self.stack.upstream.requests.clear()
                self.memory[first + len(batch)] = resident_kb(self.stack.envoy.port)
        took = time.monotonic() - started
        print(f"{REQUESTS} requests by {CONCURRENCY} callers in {took:.0f} s, seed {SEED}")
        print("statuses:", dict(sorted(self.statuses.items(), key=str)), "(None: cut, or the caller left)")

    def _send(self, numbered: tuple[int, Request]) -> tuple[int | None, Request]:
        number, request = numbered
        return request.send(self.stack.envoy.port, number), request

    def _seen(self, status: int | None, request: Request) -> None:
        self.statuses[status] += 1
        if not (request.may_end_early() if status is None else status in request.status):
            self.wrong.append(f"{status} instead of {request.status}: {request.headers} {request.body[:120]!r}")
        sums = self.bounds[request.tenant.name, request.model]
        for at, amount in enumerate([*request.tokens, *request.requests]):
            sums[at] += amount

    def check(self) -> None:
        assert not self.wrong, f"{len(self.wrong)} wrong statuses:\n" + "\n".join(self.wrong[:20])
        deadline = time.monotonic() + SETTLED_WITHIN_S
        exact = 0
        for (tenant, model), (least, most, fewest, all_) in self.bounds.items():
            left = max(0.0, deadline - time.monotonic())
            eventually(lambda t=tenant, m=model: self.stack.service.bucket(t, m).open_holds, lambda n: n == 0, left)
            bucket = self.stack.service.bucket(tenant, model)
            what = f"{tenant} {model}: {bucket}, expected {least} to {most} tokens, {fewest} to {all_} requests"
            assert least <= bucket.tokens <= most and fewest <= bucket.requests <= all_, what
            exact += (least, fewest) == (most, all_)
        print(f"no hold open; {exact} buckets exact to the token, {len(self.bounds) - exact} within their bounds")
        reloads = self.stack.envoy.stats(r"^wasm\..*(reload|crash|fail)")
        assert not any(reloads.values()), reloads
        print("VM reloads and faults:", reloads)
        self._check_memory()

    def _check_memory(self) -> None:
        print("resident, kB:", "  ".join(f"{count}: {kb}" for count, kb in self.memory.items()))
        warm = [kb for count, kb in self.memory.items() if count >= WARM_UP]
        if len(warm) < 2:
            print("too few requests to judge memory")
            return
        growth = warm[-1] - warm[0]
        print(f"growth after {WARM_UP} requests: {growth} kB, {growth / warm[0]:.1%}")
        assert growth < max(MAX_GROWTH_KB, warm[0] * MAX_GROWTH), "memory grows"


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="soak-") as folder, running(Path(folder)) as stack:
        soak = Soak(stack)
        soak.run()
        soak.check()


if __name__ == "__main__":
    sys.exit(main())
