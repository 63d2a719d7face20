"""Envoy's own bounds on requests: 408 and 413 come from the proxy, in the API's shape, and cost nothing."""

from collections.abc import Callable, Iterator

import pytest

from harness import chat, http1, http2
from harness.envoy import Config
from harness.policy import Tenant
from harness.refusals import assert_refused
from harness.routes import connection_manager
from harness.stack import Stack, running
from harness.wait import eventually

BODY = chat.encode(chat.body())
SMALL = 1 << 16


def impatient(config: Config) -> None:
    connection_manager(config)["request_timeout"] = "0.4s"
    config.listener["per_connection_buffer_limit_bytes"] = SMALL
    connection_manager(config)["http2_protocol_options"]["initial_stream_window_size"] = SMALL
    # Where there is a buffer filter, its bound takes the place of both.
    for entry in connection_manager(config)["http_filters"]:
        if "max_request_bytes" in entry["typed_config"]:
            entry["typed_config"]["max_request_bytes"] = SMALL


@pytest.fixture(scope="module")
def shared_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(tmp_path_factory.mktemp("limits"), edit=impatient) as stack:
        yield stack


def begun_http1(stack: Stack, tenant: Tenant, body: bytes) -> http1.Response:
    """The body never ends."""
    client = http1.Connection(stack.envoy.port)
    head = http1.encode("POST", chat.PATH, [tenant.bearer, ("content-length", str(1 << 20))], b"", length=False)
    client.send(head + body)
    response = client.response()
    client.close()
    return response


def begun_http2(stack: Stack, tenant: Tenant, body: bytes) -> http1.Response:
    client = http2.Http2(stack.envoy.port)
    stream = client.start("POST", chat.PATH, [tenant.bearer])
    client.data(stream, [body], end=False)
    response = client.response()
    client.close()
    return response


Begin = Callable[[Stack, Tenant, bytes], http1.Response]
PROTOCOLS = pytest.mark.parametrize("begin", [begun_http1, begun_http2])


@PROTOCOLS
@pytest.mark.parametrize("body", [b"", BODY[:1], BODY[:-1], BODY], ids=["nothing", "a byte", "all but one", "all"])
def test_a_body_that_does_not_end_in_time(stack: Stack, tenant: Tenant, body: bytes, begin: Begin) -> None:
    response = begin(stack, tenant, body)
    assert_refused(response, 408, "invalid_request_error", "request_timeout")
    [entry] = stack.envoy.logged(response)
    assert (entry["details"], entry["flags"]) == ("request_overall_timeout", "-")
    assert stack.upstream.requests == []
    stack.settles_to(tenant, tokens=0, requests=0)


@PROTOCOLS
def test_more_than_the_proxy_holds(stack: Stack, tenant: Tenant, begin: Begin) -> None:
    response = begin(stack, tenant, chat.encode(chat.body(padding="x" * 4 * SMALL)))
    assert_refused(response, 413, "invalid_request_error", "request_too_large")
    [entry] = stack.envoy.logged(response)
    assert entry["details"] == "request_payload_too_large"
    assert stack.upstream.requests == []
    stack.settles_to(tenant, tokens=0, requests=0)


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_that_is_whole_may_take_longer(stack: Stack, tenant: Tenant, stream: bool) -> None:
    """The bound is on sending it, not on answering it."""
    gate = stack.upstream.gate()
    stack.upstream.handler = chat.answer(gate=gate)
    client = stack.open(tenant, chat.body(stream=stream))
    gate.reached(1)
    # Another runs into the bound meanwhile, so that this one has been there longer.
    assert begun_http1(stack, stack.tenant(), BODY[:-1]).status == 408
    gate.open()
    assert client.response().status == 200
    client.close()
    stack.settles_to(tenant, chat.usage_of(chat.body()).total, requests=1)


def test_a_request_that_is_held_meanwhile(stack: Stack, tenant: Tenant) -> None:
    """Whole, and waiting for the quota service for longer than the bound: answered when the service does."""
    stack.proxy.silence()
    try:
        client = stack.open(tenant, chat.body())
        eventually(lambda: stack.service.bucket(tenant.name).open_holds, lambda held: held == 1)
        assert begun_http1(stack, stack.tenant(), BODY[:-1]).status == 408
    finally:
        stack.proxy.speak()
    assert client.response().status == 200
    client.close()
    stack.settles_to(tenant, chat.usage_of(chat.body()).total, requests=1)
