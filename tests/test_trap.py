"""A filter that stops, as none should: the requests of that worker fail, the next ones are served, nothing goes by
unmetered, and what was held stays charged."""

from collections.abc import Iterator

import pytest

from harness import chat, http1, places
from harness.envoy import Config
from harness.http1 import Response
from harness.policy import Tenant
from harness.stack import Stack, running
from harness.wait import eventually

STOP = ("x-tokengate-trap", "now")
USAGE = chat.usage_of(chat.body())


def can_be_stopped(config: Config) -> None:
    """The filter as it ships but for one header."""
    config.plugin["vm_config"]["code"]["local"]["filename"] = str(places.trap())


@pytest.fixture
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Not checked when it ends: that the VM stops is what these tests are about."""
    with running(tmp_path_factory.mktemp("trap"), edit=can_be_stopped, checked=False) as stack:
        yield stack


@pytest.fixture
def tenant(stack: Stack) -> Tenant:
    return stack.tenant()


def stop(stack: Stack, tenant: Tenant) -> Response:
    data = chat.encode(chat.body())
    return http1.request(stack.envoy.port, "POST", chat.PATH, [tenant.bearer, STOP], data)


def reloads(stack: Stack) -> int:
    return sum(stack.envoy.stats("vm_reload_success").values())


def serves_again(stack: Stack, tenant: Tenant) -> None:
    eventually(lambda: stack.ask(tenant).status, lambda status: status == 200, timeout=20)


def test_the_next_requests_are_served(stack: Stack, tenant: Tenant) -> None:
    assert stop(stack, tenant).status == 503
    assert reloads(stack) == 0
    serves_again(stack, tenant)
    assert reloads(stack) == 1
    for _ in range(100):
        assert stack.ask(tenant).status == 200
    assert reloads(stack) == 1
    assert [request for request in stack.upstream.requests if request.all(STOP[0])] == []


def test_nothing_goes_by_unmetered(stack: Stack, tenant: Tenant) -> None:
    """From the stop on, whatever reaches the provider was counted."""
    assert stop(stack, tenant).status == 503
    statuses = []
    eventually(lambda: statuses.append(stack.ask(tenant).status) or statuses, lambda seen: 200 in seen, timeout=20)
    assert set(statuses) <= {200, 503}
    served = len(stack.upstream.requests)
    assert served == statuses.count(200)
    stack.settles_to(tenant, served * USAGE.total, requests=served)


def test_what_was_held_stays_charged(stack: Stack, tenant: Tenant) -> None:
    """The VM takes its streams' ends along: nobody is left to settle them, so the hold is what is charged."""
    gate = stack.upstream.gate()
    stack.upstream.handler = chat.answer(gate=gate)
    connection = stack.open(tenant, chat.body())
    gate.reached(1)
    held = USAGE.prompt + chat.body()["max_tokens"]
    stack.holds(tenant, held)
    other = stack.tenant()
    assert stop(stack, other).status == 503
    gate.open()
    connection.close()
    stack.upstream.handler = chat.answer()
    serves_again(stack, other)
    stack.settles_to(other, USAGE.total, requests=1)
    stack.holds(tenant, held)
