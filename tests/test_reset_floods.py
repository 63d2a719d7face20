"""Floods of requests that are given up at once: they displace no settle, and leave nothing behind."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from harness import chat, http1, http2
from harness.oracle import oracle
from harness.policy import Tenant
from harness.quota import Reply, Silence, allow
from harness.stack import FakeStack, Stack, running, running_fake
from harness.wait import becomes, eventually

ROOM = 16
# More than the outbox has room for settles, and fewer resets than make Envoy close a connection: more than half of the
# streams that it looks at.
RESETS, CONNECTIONS = 40, 6
LIMIT = chat.body()["max_tokens"]
# The outbox backs off up to 5 s while nobody answers.
SENT_WITHIN_S = 20
CALLER = Tenant("any", "any")
UNKNOWN = Reply(200, json.dumps({"decision": "deny", "reason": "unknown_key", "policy_version": "fake"}).encode())


def stat(stack: FakeStack | Stack, name: str) -> int:
    return sum(stack.envoy.stats(f"tokengate_{name}$").values())


def flood(stack: FakeStack | Stack) -> None:
    """Requests with made-up keys, each reset right behind its last byte."""

    def resets(number: int) -> None:
        client = http2.Http2(stack.envoy.port)
        for count in range(RESETS):
            key = ("authorization", f"Bearer sk-test-made-up-{number}-{count}")
            stream = client.start("POST", chat.PATH, [key, ("content-length", str(len(BODY)))])
            client.data(stream, [BODY], end=True)
            client.reset(stream)
        client.close()

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        list(pool.map(resets, range(CONNECTIONS)))
    becomes(stack.envoy.active_requests, 0, 20)


BODY = chat.encode(chat.body())


def all_are_answered(stack: FakeStack) -> None:
    """The calls of the filter, those of clients that are gone as well."""
    name = f"cluster.{stack.envoy.quota_cluster}.upstream_rq_active"
    becomes(lambda: stack.envoy.stats(f"^{name}$")[name], 0, 20)


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeStack]:
    plugin = {"outbox": {"max_items": ROOM}, "quota": {"timeout_ms": 1000}}
    with running_fake(tmp_path_factory.mktemp("resets"), plugin) as stack:
        yield stack


@pytest.fixture
def fake(started: FakeStack) -> Iterator[FakeStack]:
    started.upstream.reset()
    started.quota.reset()
    yield started
    started.check()


def test_what_held_nothing_is_not_released(fake: FakeStack) -> None:
    """The answer to a reserve whose client is gone says that there is nothing to give back."""
    fake.quota.on_reserve = lambda reserve: UNKNOWN
    flood(fake)
    all_are_answered(fake)
    asked = len(fake.quota.reserves)
    assert asked > ROOM
    fake.quota.on_reserve = allow
    assert fake.post([CALLER.bearer], chat.body()).status == 200
    eventually(lambda: fake.quota.settles_of(fake.quota.reserves[-1]), bool)
    assert len(fake.quota.settles) == 1
    assert (stat(fake, "outbox_releases"), stat(fake, "releases_dropped")) == (0, 0)


def test_what_was_held_is_given_back_with_its_account(fake: FakeStack) -> None:
    flood(fake)
    all_are_answered(fake)
    held = {reserve["id"] for reserve in fake.quota.reserves}
    assert len(held) > ROOM
    eventually(lambda: {item["id"] for item in fake.quota.settles}, lambda settled: settled == held)
    assert len(fake.quota.settles) == len(held)
    told = [(item["outcome"], item["sent"], item["account"], item.get("reserve")) for item in fake.quota.settles]
    # A reset may come behind the answer: that request has gone to the provider.
    sent = told.count(("held", True, "account-1", None))
    assert told.count(("released", False, "account-1", None)) == len(held) - sent > ROOM


def test_a_release_without_an_answer_names_its_caller_and_no_more(fake: FakeStack) -> None:
    fake.quota.on_reserve = lambda reserve: Silence()
    assert fake.post([CALLER.bearer], chat.body()).status == 503
    [item] = eventually(lambda: fake.quota.settles_of(fake.quota.reserves[0]), bool)
    named: dict[str, Any] = item["reserve"]
    assert (named["id"], named["key_hash"]) == (fake.quota.reserves[0]["id"], CALLER.key_hash)
    assert not named.keys() & {"model", "ip", "request_id"} and named["prompt_tokens"] == 0


def test_a_hold_that_was_forgotten_is_booked(fake: FakeStack) -> None:
    """The service knows nothing of what it has allowed: a second settle says what was asked for."""
    fake.quota.settled_as = lambda item: "booked" if item.get("reserve") else "unknown"
    assert fake.post([CALLER.bearer], chat.body()).status == 200
    [reserve] = fake.quota.reserves
    first, second = eventually(lambda: fake.quota.settles_of(reserve), lambda items: len(items) == 2)
    assert (first.get("reserve"), second["reserve"]) == (None, reserve)
    assert (first["usage"], first["outcome"]) == (second["usage"], second["outcome"])
    becomes(lambda: stat(fake, "settles_rebooked"), 1)
    # Once: another unknown changes nothing.
    fake.quota.settled_as = lambda item: "unknown"
    assert fake.post([CALLER.bearer], chat.body()).status == 200
    again = fake.quota.reserves[-1]
    eventually(lambda: fake.quota.settles_of(again), lambda items: len(items) == 2)
    fake.quota.settled_as = lambda item: "settled"
    assert fake.post([CALLER.bearer], chat.body()).status == 200
    eventually(lambda: fake.quota.settles_of(fake.quota.reserves[-1]), bool)
    assert len(fake.quota.settles_of(again)) == 2


@pytest.fixture(scope="module")
def shared_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    plugin = {"outbox": {"max_items": ROOM}, "quota": {"timeout_ms": 300}}
    with running(tmp_path_factory.mktemp("displaced"), plugin) as stack:
        yield stack


def test_no_settle_is_displaced_while_the_service_is_away(stack: Stack) -> None:
    tenants = [stack.tenant() for _ in range(5)]
    gate = stack.upstream.gate()
    stack.upstream.handler = chat.answer(gate=gate)
    clients = [http1.Connection(stack.envoy.port) for _ in tenants]
    hold = oracle().prompt(chat.body()["messages"]) + LIMIT
    for tenant, client in zip(tenants, clients, strict=True):
        client.send(http1.encode("POST", chat.PATH, [tenant.bearer], BODY))
        stack.holds(tenant, hold)
    stack.proxy.silence()
    try:
        gate.open()
        for client in clients:
            assert client.response().status == 200
            client.close()
        becomes(lambda: stat(stack, "outbox_items"), len(tenants))
        flood(stack)
        eventually(lambda: stat(stack, "outbox_releases"), lambda count: count > 2 * ROOM)
        assert stat(stack, "outbox_items") == len(tenants)
    finally:
        stack.proxy.speak()
    for tenant in tenants:
        stack.settles_to(tenant, chat.usage_of(chat.body()).total, requests=1, timeout=SENT_WITHIN_S)
    becomes(lambda: (stat(stack, "outbox_items"), stat(stack, "outbox_releases")), (0, 0), SENT_WITHIN_S)
    assert (stat(stack, "settles_dropped"), stat(stack, "releases_dropped")) == (0, 0)
    last = stack.tenant()
    assert stack.ask(last).status == 200, "and the next caller is served"
