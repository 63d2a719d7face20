"""`hold_at: body`, for proxies that cannot set the flag: Envoy's own buffer filter behind ours holds the headers."""

import gzip
from collections.abc import Iterator

import pytest

from harness import chat, http1, http2
from harness.holding import at_body
from harness.policy import Tenant
from harness.refusals import assert_refused
from harness.stack import Stack, running


@pytest.fixture(scope="module")
def shared_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(tmp_path_factory.mktemp("body"), edit=at_body) as stack:
        yield stack


def test_an_allowed_request(stack: Stack, tenant: Tenant) -> None:
    body = chat.encode(chat.body())
    assert stack.post([tenant.bearer], body).status == 200
    stack.settles_to(tenant, chat.usage_of(chat.body()).total, requests=1)
    [request] = stack.upstream.requests
    assert request.body == body


def test_a_refused_request_reaches_nobody(stack: Stack) -> None:
    tenant = stack.tenant("tiny")
    assert_refused(stack.ask(tenant), 429, "rate_limit_error", "request_exceeds_limit")
    assert stack.upstream.requests == []


def test_a_streamed_request_is_rewritten(stack: Stack, tenant: Tenant) -> None:
    response = stack.ask(tenant, stream=True)
    assert response.status == 200
    assert b'"choices":[]' not in response.body.replace(b" ", b""), "the usage chunk is hidden"
    stack.settles_to(tenant, chat.usage_of(chat.body()).total, requests=1)
    [request] = stack.upstream.requests
    assert request.body.startswith(b'{"stream_options":{"include_usage":true},')


def test_a_packed_body_is_packed_again(stack: Stack, tenant: Tenant) -> None:
    body = chat.encode(chat.body(stream=True))
    stack.upstream.handler = chat.raw_stream(b"data: [DONE]\n\n")
    response = stack.post([tenant.bearer, ("content-encoding", "gzip")], gzip.compress(body))
    assert response.status == 200
    [request] = stack.upstream.requests
    assert gzip.decompress(request.body).startswith(b'{"stream_options":{"include_usage":true},')


def test_bad_bodies_are_refused(stack: Stack, tenant: Tenant) -> None:
    assert_refused(stack.post([tenant.bearer], b"nope"), 400, "invalid_request_error", "invalid_request")
    assert_refused(stack.post([], b"nope"), 401, "authentication_error", "missing_identity")
    assert stack.upstream.requests == []


def test_trailers_end_the_body(stack: Stack, tenant: Tenant) -> None:
    client = http2.Http2(stack.envoy.port)
    try:
        stream = client.start("POST", chat.PATH, [tenant.bearer])
        client.data(stream, [chat.encode(chat.body())], end=False)
        client.trailers(stream, [("x-end", "1")])
        assert client.response().status == 200
    finally:
        client.close()
    stack.settles_to(tenant, chat.usage_of(chat.body()).total, requests=1)


def test_a_listed_path(stack: Stack, tenant: Tenant) -> None:
    assert http1.request(stack.envoy.port, "GET", "/v1/models", [tenant.bearer]).status == 200
    assert http1.request(stack.envoy.port, "GET", "/v1/models", []).status == 401
