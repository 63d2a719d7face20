"""Settles while the service is away: kept, sent once it is back, the oldest dropped when there are too many."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import chat, http1
from harness.envoy import Envoy
from harness.oracle import oracle
from harness.policy import Tenant
from harness.stack import PATIENT_QUOTA, Stack, running
from harness.wait import becomes, eventually

ROOM = 16
LIMIT = chat.body()["max_tokens"]
# The outbox backs off up to 5 s while nobody answers.
BOOKED_WITHIN_S = 20


@pytest.fixture(scope="module")
def shared_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(tmp_path_factory.mktemp("outbox"), {"outbox": {"max_items": ROOM}}) as stack:
        yield stack


def total() -> int:
    return chat.usage_of(chat.body()).total


def hold() -> int:
    return oracle().prompt(chat.body()["messages"]) + LIMIT


def dropped(stack: Stack) -> int:
    return sum(stack.envoy.stats("tokengate_settles_dropped").values())


class Crowd:
    """Requests that the provider has and has not answered yet, each held by a tenant of its own."""

    def __init__(self, stack: Stack, count: int) -> None:
        self._gates = [stack.upstream.gate() for _ in range(count)]
        self.tenants = [stack.tenant() for _ in range(count)]
        self._clients = []
        for gate, tenant in zip(self._gates, self.tenants, strict=True):
            stack.upstream.handler = chat.answer(gate=gate)
            client = http1.Connection(stack.envoy.port)
            client.send(http1.encode("POST", chat.PATH, [tenant.bearer], chat.encode(chat.body())))
            self._clients.append(client)
            gate.reached(1)
        for tenant in self.tenants:
            stack.holds(tenant, hold())

    def finish(self) -> None:
        """In the order in which they came."""
        for gate, client in zip(self._gates, self._clients, strict=True):
            gate.open()
            assert client.response().status == 200
            client.close()


def attempts(stack: Stack) -> int:
    name = f"cluster.{stack.envoy.quota_cluster}.upstream_cx_connect_fail"
    return stack.envoy.stats(f"^{name}$").get(name, 0)


@pytest.mark.parametrize("outage", ["refuse", "silence"])
def test_settled_afterwards_exactly_once(stack: Stack, outage: str) -> None:
    crowd = Crowd(stack, 5)
    failed = attempts(stack)
    getattr(stack.proxy, outage)()
    try:
        crowd.finish()
        if outage == "refuse":
            # Tried, more than once, and kept.
            eventually(lambda: attempts(stack), lambda count: count >= failed + 2, 20)
            for tenant in crowd.tenants:
                stack.holds(tenant, hold())
    finally:
        {"refuse": stack.proxy.accept, "silence": stack.proxy.speak}[outage]()
    for tenant in crowd.tenants:
        stack.settles_to(tenant, total(), requests=1, timeout=BOOKED_WITHIN_S)
    # What is settled behind them has found nothing booked twice.
    last = stack.tenant()
    eventually(lambda: stack.ask(last).status, lambda status: status == 200, 10)
    eventually(lambda: stack.service.bucket(last.name).open_holds, lambda held: held == 0, BOOKED_WITHIN_S)
    for tenant in crowd.tenants:
        stack.settles_to(tenant, total(), requests=1)
    assert dropped(stack) == 0


def test_ten_seconds_without_the_service(stack: Stack, tenant: Tenant) -> None:
    with_hold = Crowd(stack, 1)
    stack.proxy.refuse()
    left = time.monotonic()
    try:
        with_hold.finish()
        # Envoy serves nothing new meanwhile; the settle is tried again and again.
        eventually(lambda: time.monotonic() - left, lambda away: away > 10, 12)
        stack.holds(with_hold.tenants[0], hold())
    finally:
        stack.proxy.accept()
    stack.settles_to(with_hold.tenants[0], total(), requests=1, timeout=BOOKED_WITHIN_S)


def test_a_stopped_proxy_leaves_its_queued_settles_as_charges(stack: Stack, tmp_path: Path) -> None:
    envoy = Envoy(tmp_path, stack.upstream.port, stack.proxy.port, {"quota": PATIENT_QUOTA})
    gate, tenant = stack.upstream.gate(), stack.tenant()
    stack.upstream.handler = chat.answer(gate=gate)
    client = http1.Connection(envoy.port)
    try:
        envoy.wait_for_models()
        client.send(http1.encode("POST", chat.PATH, [tenant.bearer], chat.encode(chat.body())))
        gate.reached(1)
        stack.holds(tenant, hold())
        stack.proxy.refuse()
        gate.open()
        assert client.response().status == 200
        becomes(envoy.active_requests, 0)
        envoy.check()
    finally:
        client.close()
        envoy.stop()
        stack.proxy.accept()
    # The other Envoy's settles go through; this one's never come.
    eventually(lambda: stack.ask(stack.tenant()).status, lambda status: status == 200, 10)
    assert stack.service.bucket(tenant.name).tokens == hold()
    assert stack.service.bucket(tenant.name).requests == 1


def test_when_it_is_full_the_oldest_go_and_stay_charged(stack: Stack) -> None:
    """Last in this file: the counter of dropped settles stays up."""
    too_many = 5
    crowd = Crowd(stack, ROOM + too_many)
    stack.proxy.refuse()
    try:
        crowd.finish()
        becomes(lambda: dropped(stack), too_many, 10)
    finally:
        stack.proxy.accept()

    def charged() -> list[int]:
        return [stack.service.bucket(tenant.name).tokens for tenant in crowd.tenants]

    becomes(charged, [hold()] * too_many + [total()] * ROOM, BOOKED_WITHIN_S)
    assert {stack.service.bucket(tenant.name).requests for tenant in crowd.tenants} == {1}
