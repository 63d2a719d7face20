"""The quota service away or silent: closed refuses at once, open serves, marks, and books later, once."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from harness import chat, http1
from harness.http1 import Response
from harness.policy import Tenant
from harness.refusals import assert_refused
from harness.stack import Stack, running
from harness.wait import becomes, eventually

DEADLINE_MS = 100
QUICK_S = 0.3
# The outbox backs off up to 5 s while nobody answers.
BOOKED_WITHIN_S = 20


@contextmanager
def started(folder_factory: pytest.TempPathFactory, mode: str) -> Iterator[Stack]:
    plugin = {"failure_mode": mode, "quota": {"timeout_ms": DEADLINE_MS}}
    with running(folder_factory.mktemp(mode), plugin) as stack:
        tenant = stack.tenant()
        eventually(lambda: warmed(stack, tenant), bool, 20)
        yield stack


def warmed(stack: Stack, tenant: Tenant) -> bool:
    """The encoding is loaded, and the busy machine answers within the deadline."""
    response = stack.ask(tenant)
    return response.status == 200 and response.header("x-tokengate-degraded") is None


@pytest.fixture(scope="module")
def closed_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with started(tmp_path_factory, "closed") as stack:
        yield stack


@pytest.fixture(scope="module")
def open_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with started(tmp_path_factory, "open") as stack:
        yield stack


@pytest.fixture
def closed(closed_stack: Stack) -> Iterator[Stack]:
    closed_stack.upstream.reset()
    yield closed_stack
    closed_stack.check()


@pytest.fixture
def opened(open_stack: Stack) -> Iterator[Stack]:
    open_stack.upstream.reset()
    yield open_stack
    open_stack.check()


@contextmanager
def down(stack: Stack) -> Iterator[None]:
    stack.proxy.refuse()
    try:
        yield
    finally:
        stack.proxy.accept()


@contextmanager
def silent(stack: Stack) -> Iterator[None]:
    stack.proxy.silence()
    try:
        yield
    finally:
        stack.proxy.speak()


Outage = Callable[[Stack], AbstractContextManager[None]]
OUTAGES = pytest.mark.parametrize("outage", [down, silent])


def timed(ask: Callable[[], Response]) -> tuple[float, Response]:
    start = time.monotonic()
    response = ask()
    return time.monotonic() - start, response


@OUTAGES
@pytest.mark.parametrize("stream", [False, True])
def test_closed_refuses_quickly_and_leaves_nothing_held(closed: Stack, outage: Outage, stream: bool) -> None:
    tenant = closed.tenant()
    with outage(closed):
        answers = [timed(lambda: closed.ask(tenant, stream=stream)) for _ in range(5)]
    for _, response in answers:
        assert_refused(response, 503, "api_error", "quota_unavailable")
        assert response.header("retry-after") == "1"
    # Other tests share the machine: the median is the gate's own time.
    assert sorted(seconds for seconds, _ in answers)[2] < QUICK_S
    assert closed.upstream.requests == []
    # Where the service did hear of them, it hears of their end as well.
    closed.settles_to(tenant, tokens=0, requests=0, timeout=BOOKED_WITHIN_S)
    recovers(closed, tenant)


def recovers(stack: Stack, tenant: Tenant) -> None:
    eventually(lambda: stack.ask(tenant).status, lambda status: status == 200, 10)


@OUTAGES
@pytest.mark.parametrize("stream", [False, True])
def test_open_serves_and_books_later_exactly_once(opened: Stack, outage: Outage, stream: bool) -> None:
    tenant, count = opened.tenant(), 3
    with outage(opened):
        answers = [opened.ask(tenant, stream=stream) for _ in range(count)]
    for response in answers:
        assert response.status == 200
        assert response.header("x-tokengate-degraded") == "open"
        assert b'"usage":{' not in response.body.replace(b" ", b"") or not stream
    assert len(opened.upstream.requests) == count
    total = chat.usage_of(chat.body()).total
    opened.settles_to(tenant, count * total, count, timeout=BOOKED_WITHIN_S)
    # A later request is settled behind everything that was queued: had something been booked twice, it would show.
    eventually(lambda: opened.ask(tenant).header("x-tokengate-degraded"), lambda mark: mark is None, 10)
    served = len(opened.upstream.requests)
    opened.settles_to(tenant, served * total, served, timeout=BOOKED_WITHIN_S)


def test_open_releases_a_request_that_never_reached_the_provider(opened: Stack) -> None:
    tenant = opened.tenant()
    with silent(opened):
        opened.upstream.refuse()
        try:
            assert opened.ask(tenant).status == 503
        finally:
            opened.upstream.accept()
        becomes(lambda: opened.service.bucket(tenant.name).open_holds, 1)
    opened.settles_to(tenant, tokens=0, requests=0, timeout=BOOKED_WITHIN_S)


def test_open_still_refuses_what_needs_no_service(opened: Stack) -> None:
    with down(opened):
        assert_refused(opened.post([], chat.body()), 401, "authentication_error", "missing_identity")
        response = opened.post([opened.tenant().bearer], b"no json")
        assert_refused(response, 400, "invalid_request_error", None)
    assert opened.upstream.requests == []


def test_a_listed_path_is_closed_as_well(closed: Stack) -> None:
    with down(closed):
        response = list_models(closed)
    assert_refused(response, 503, "api_error", "quota_unavailable")
    assert closed.upstream.requests == []


def test_a_listed_path_is_open_as_well(opened: Stack) -> None:
    with down(opened):
        response = list_models(opened)
    assert (response.status, response.header("x-tokengate-degraded")) == (200, "open")


def list_models(stack: Stack) -> Response:
    return http1.request(stack.envoy.port, "GET", "/v1/models", [stack.tenant().bearer])
