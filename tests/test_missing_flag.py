"""Without `allow_on_headers_stop_iteration` a held request never sees its body: answered, named once, never hung."""

import time
from collections.abc import Iterator

import pytest

from harness import chat, http1, http2
from harness.envoy import Config
from harness.holding import needs_headers
from harness.http1 import Response
from harness.policy import Tenant
from harness.refusals import assert_refused
from harness.stack import Stack, running
from harness.wait import becomes, eventually

pytestmark = needs_headers("the flag is for holding headers")

FLAG = "allow_on_headers_stop_iteration"
WITHIN_S = 2.0
BODY = chat.encode(chat.body())


def switched_off(config: Config) -> None:
    config.plugin[FLAG] = False


def absent(config: Config) -> None:
    del config.plugin[FLAG]


@pytest.fixture(scope="module", params=[switched_off, absent])
def shared_stack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(tmp_path_factory.mktemp("flag"), edit=request.param) as stack:
        yield stack


def with_length(port: int, tenant: Tenant) -> Response:
    return http1.request(port, "POST", chat.PATH, [tenant.bearer], BODY)


def in_chunks(port: int, tenant: Tenant) -> Response:
    client = http1.Connection(port)
    head = http1.encode("POST", chat.PATH, [tenant.bearer, ("transfer-encoding", "chunked")], b"", length=False)
    client.send(head + b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY))
    response = client.response()
    client.close()
    return response


def half_a_body(port: int, tenant: Tenant) -> Response:
    client = http1.Connection(port)
    client.send(http1.encode("POST", chat.PATH, [tenant.bearer], BODY)[:-10])
    response = client.response()
    client.close()
    return response


def over_http2(port: int, tenant: Tenant) -> Response:
    return http2.request(port, [tenant.bearer], [BODY], chat.PATH)


def over_http2_with_trailers(port: int, tenant: Tenant) -> Response:
    return http2.request(port, [tenant.bearer], [BODY], chat.PATH, [("x-checksum", "abc")])


@pytest.mark.parametrize("send", [with_length, in_chunks, half_a_body, over_http2, over_http2_with_trailers])
def test_answered_soon(stack: Stack, tenant: Tenant, send: type) -> None:
    start = time.monotonic()
    response = send(stack.envoy.port, tenant)
    assert time.monotonic() - start < WITHIN_S
    assert_refused(response, 503, "api_error", "misconfigured_proxy")
    assert stack.upstream.requests == []
    stack.settles_to(tenant, tokens=0, requests=0)


def test_named_once_however_many_ask(stack: Stack) -> None:
    for _ in range(5):
        assert with_length(stack.envoy.port, stack.tenant()).status == 503
    named = [line for line in stack.envoy.output().splitlines() if FLAG in line]
    assert len(named) == 1
    details = eventually(lambda: {entry["details"] for entry in stack.envoy.access_log()}, bool)
    assert "tokengate_misconfigured_proxy" in details


def test_a_request_without_a_body_needs_no_flag(stack: Stack, tenant: Tenant) -> None:
    assert http1.request(stack.envoy.port, "GET", "/v1/models", [tenant.bearer]).status == 200
    assert http1.request(stack.envoy.port, "GET", "/v1/nothing", [tenant.bearer]).status == 404


def test_who_has_sent_nothing_yet_is_left_alone(stack: Stack, tenant: Tenant) -> None:
    """Its body may be on the way: only bytes that have come and are not shown are a sign."""
    waiting = http1.Connection(stack.envoy.port)
    waiting.send(http1.encode("POST", chat.PATH, [tenant.bearer], BODY)[: -len(BODY)])
    becomes(stack.envoy.active_requests, 1)
    # Meanwhile another is found out.
    assert with_length(stack.envoy.port, stack.tenant()).status == 503
    assert stack.envoy.active_requests() == 1
    waiting.send(BODY)
    assert_refused(waiting.response(), 503, "api_error", "misconfigured_proxy")
    waiting.close()


def test_a_client_that_leaves_meanwhile(stack: Stack, tenant: Tenant) -> None:
    client = http1.Connection(stack.envoy.port)
    client.send(http1.encode("POST", chat.PATH, [tenant.bearer], BODY)[:-10])
    client.abort()
    becomes(stack.envoy.active_requests, 0)
    stack.settles_to(tenant, tokens=0, requests=0)
