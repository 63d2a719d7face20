"""Honest callers beside attackers: they are served, charged exactly, and wait at most three times as long as without.

The second part of `make soak`. The same paced requests come twice, first in quiet; then all of `soak_attacks` go on at
once. Says of each promise whether it held, and ends with 1 where one did not.
"""

import json
import multiprocessing
import os
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.queues import Queue
from pathlib import Path

import soak_attacks
from harness import chat
from harness.oracle import oracle
from harness.stack import Stack, running
from harness.upstream import Exchange
from harness.wait import eventually
from soak import CONCURRENCY, REQUESTS, SEED, resident_kb
from soak_attacks import ATTACKS, MARK, Did
from soak_kinds import Maker
from soak_request import NUMBER, Request

# In each of the two phases.
HONEST = max(400, min(REQUESTS // 4, 3_000))
A_SECOND = 40
SLOWER_AT_MOST = 3.0
SETTLED_WITHIN_S, CALM_WITHIN_S = 15.0, 30.0
# A VM's memory never shrinks below the most that it needed at once; what piles up comes on top.
KEPT_AT_MOST_KB = 64 << 10
TENANTS, ATTACKERS = 32, 8
# For the attackers to come up, and to be through when their time is over.
PATIENCE_S = 60.0


def _stream(deltas: int) -> bytes:
    """The chunks of an answer."""
    events = [chat.delta_event("word ")] * deltas + [chat.DONE]
    return b"".join(b"%x\r\n%s\r\n" % (len(event), event) for event in events)


SHORT, LONG = _stream(20), _stream(2_000)


class Attacked:
    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        tenants = [stack.tenant() for _ in range(TENANTS)]
        self.attackers = [stack.tenant() for _ in range(ATTACKERS)]
        self.maker = Maker(SEED, tenants, tenants, [])
        # Only requests of which every token is known beforehand.
        self.maker.kinds = [
            self.maker.plain, self.maker.streamed, self.maker.without_usage, self.maker.json_without_usage,
            self.maker.packed, self.maker.packed,
        ]  # fmt: skip
        self.charges: Counter[tuple[str, str]] = Counter()
        self.counts: Counter[tuple[str, str]] = Counter()
        self.wrong: list[str] = []
        self.promises: list[tuple[bool, str]] = []
        self._requests: dict[str, Request] = {}
        stack.upstream.handler = self._answer

    async def _answer(self, exchange: Exchange) -> None:
        attack = exchange.request.header(MARK)
        if attack:
            await exchange.head(200, chat.EVENT_STREAM)
            # As fast as Envoy takes it, and made beforehand: this provider shares a processor with the honest callers.
            await exchange.send(LONG if attack == "long" else SHORT)
            await exchange.finish()
            return
        request = self._requests[exchange.request.header(NUMBER) or ""]
        assert request.handler, "this must not reach the provider"
        await request.handler(exchange)

    def phase(self, name: str) -> list[float]:
        """The seconds of each request, from the moment at which it was due."""
        requests = [self.maker.make() for _ in range(HONEST)]
        self._requests = {f"{name}-{at}": request for at, request in enumerate(requests)}
        begin = time.monotonic() + 0.2

        def send(numbered: tuple[int, Request]) -> float:
            at, request = numbered
            due = begin + at / A_SECOND
            time.sleep(max(0.0, due - time.monotonic()))
            status = request.send(self.stack.envoy.port, f"{name}-{at}")
            if status not in request.status:
                self.wrong.append(f"{name}: {status} instead of {request.status}")
            return time.monotonic() - due

        with ThreadPoolExecutor(CONCURRENCY) as callers:
            took = list(callers.map(send, enumerate(requests)))
        for request in requests:
            assert len({*request.tokens}) == len({*request.requests}) == 1, "every token is known"
            key = (request.tenant.name, request.model)
            self.charges[key] += request.tokens[0]
            self.counts[key] += request.requests[0]
        self.stack.upstream.requests.clear()
        print(f"{name}: {HONEST} requests, {A_SECOND} a second: p50 {at(took, 0.5):.1f} ms, p99 {at(took, 0.99):.1f} ms")
        return took

    def run(self) -> None:
        self.phase("warming up")
        quiet = self.phase("quiet")
        before = used_kb(self.stack)
        with attackers(self.stack.envoy.port, [tenant.bearer for tenant in self.attackers], HONEST / A_SECOND) as done:
            attacked = self.phase("attacked")
            most = used_kb(self.stack)
            for _ in ATTACKS:
                name, did = done.get(timeout=2 * PATIENCE_S)
                print(f"  {name}: " + ", ".join(f"{count} {what}" for what, count in sorted(did.items())))
        ratio = at(attacked, 0.99) / at(quiet, 0.99)
        self.promise(ratio <= SLOWER_AT_MOST, f"the p99 under attack is {ratio:.1f} times the quiet one")
        self.promise(not self.wrong, f"{len(self.wrong)} wrong statuses {Counter(self.wrong).most_common(5)}")
        self._check_charges()
        self._check_memory(before, most)

    def promise(self, held: bool, what: str) -> None:
        self.promises.append((held, what))
        print(f"{'held' if held else 'NOT HELD'}: {what}")

    def _check_charges(self) -> None:
        deadline = time.monotonic() + SETTLED_WITHIN_S
        wrong = []
        for (tenant, model), tokens in self.charges.items():
            expected = (tokens, self.counts[tenant, model], 0)
            while True:
                bucket = self.stack.service.bucket(tenant, model)
                seen = (bucket.tokens, bucket.requests, bucket.open_holds)
                if seen == expected or time.monotonic() > deadline:
                    break
                time.sleep(0.1)
            if seen != expected:
                wrong.append(f"{tenant} {model}: tokens, requests, holds {seen} instead of {expected}")
        self.promise(not wrong, f"{len(self.charges) - len(wrong)} of {len(self.charges)} honest buckets exact {wrong[:3]}")

    def _check_memory(self, before: int, most: int) -> None:
        envoy = self.stack.envoy
        try:
            eventually(envoy.active_requests, lambda active: active == 0, CALM_WITHIN_S)
        except AssertionError:
            self.promise(False, f"{envoy.active_requests()} requests are still there {CALM_WITHIN_S:.0f} s after the attack")
        deadline = time.monotonic() + CALM_WITHIN_S
        while (after := used_kb(self.stack)) > before + KEPT_AT_MOST_KB and time.monotonic() < deadline:
            time.sleep(0.5)
        print(f"Envoy's memory, MB: {before >> 10} before, {most >> 10} at the end of the attack, {after >> 10} after")
        kept = max(0, after - before) >> 10
        self.promise(after <= before + KEPT_AT_MOST_KB, f"{kept} MB of memory are kept after the attack")
        defences = envoy.stats("premature_resets|overload.*active$|downstream_global_cx_overflow")
        print("what Envoy did about it:", {name: count for name, count in defences.items() if count})


def used_kb(stack: Stack) -> int:
    """What is resident, without the free pages that the allocator has yet to give back."""
    with urllib.request.urlopen(f"http://127.0.0.1:{stack.envoy.admin_port}/memory", timeout=10) as answer:
        free = int(json.load(answer)["pageheap_free"])
    return resident_kb(stack.envoy.port) - (free >> 10)


@contextmanager
def attackers(port: int, known: list[tuple[str, str]], seconds: float) -> "Iterator[Queue[Did]]":
    """All of them at work when the block begins, and gone when it ends."""
    context = multiprocessing.get_context("spawn")
    begin, done = context.Barrier(len(ATTACKS) + 1), context.Queue()
    arguments = (port, tuple(known), seconds, begin, done)
    processes = [context.Process(target=soak_attacks.run, args=(attack, *arguments), daemon=True) for attack in ATTACKS]
    try:
        for process in processes:
            process.start()
        begin.wait(PATIENCE_S)
        yield done
    finally:
        for process in processes:
            process.terminate()
            process.join()


def at(took: list[float], part: float) -> float:
    """In milliseconds."""
    ordered = sorted(took)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] * 1000


def main() -> int:
    oracle()  # its start is nobody's latency
    with tempfile.TemporaryDirectory(prefix="soak-") as folder, running(Path(folder)) as stack:
        attacked = Attacked(stack)
        attacked.run()
    load = os.getloadavg()[0]
    print(f"seed {SEED}, load average {load:.1f} on {os.cpu_count()} processors")
    return 0 if all(held for held, _ in attacked.promises) else 1


if __name__ == "__main__":
    sys.exit(main())
