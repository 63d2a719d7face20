"""The bound of 8 MiB on a request body, to the byte, over both protocols."""

from collections.abc import Callable, Iterator

import pytest

from harness import chat, http1, http2
from harness.http1 import Response
from harness.policy import Tenant
from harness.refusals import assert_refused
from harness.service import Bucket
from harness.stack import Stack

LIMIT = 8 << 20


def body_of(size: int) -> bytes:
    """The padding sits in a member that nobody counts: this is about size, not about counting."""
    frame = chat.encode(chat.body(padding=""))
    return chat.encode(chat.body(padding="x" * (size - len(frame))))


def chunked(body: bytes) -> Iterator[bytes]:
    for at in range(0, len(body), 1 << 16):
        piece = body[at : at + (1 << 16)]
        yield b"%x\r\n%s\r\n" % (len(piece), piece)
    yield b"0\r\n\r\n"


def over_http1(port: int, tenant: Tenant, body: bytes) -> Response:
    return http1.request(port, "POST", chat.PATH, [tenant.bearer], body)


def over_http1_chunked(port: int, tenant: Tenant, body: bytes) -> Response:
    client = http1.Connection(port)
    head = http1.encode("POST", chat.PATH, [tenant.bearer, ("transfer-encoding", "chunked")], b"", length=False)
    client.send(head + b"".join(chunked(body)))
    response = client.response()
    client.close()
    return response


def over_http2(port: int, tenant: Tenant, body: bytes) -> Response:
    return http2.request(port, [tenant.bearer], [body], chat.PATH)


Send = Callable[[int, Tenant, bytes], Response]
PROTOCOLS = pytest.mark.parametrize("send", [over_http1, over_http1_chunked, over_http2])


@PROTOCOLS
def test_exactly_the_bound_passes(stack: Stack, tenant: Tenant, send: Send) -> None:
    body = body_of(LIMIT)
    assert len(body) == LIMIT
    assert send(stack.envoy.port, tenant, body).status == 200
    assert stack.upstream.only_request().body == body
    stack.settles_to(tenant, chat.usage_of(chat.body()).total, requests=1)


def test_a_client_that_waits_for_100_continue_gets_it(stack: Stack, tenant: Tenant) -> None:
    body = chat.encode(chat.body())
    head = http1.encode("POST", chat.PATH, [tenant.bearer, ("expect", "100-continue")], body)[: -len(body)]
    client = http1.Connection(stack.envoy.port)
    client.send(head)
    assert client.head().status == 100
    client.send(body)
    assert client.response().status == 200
    client.close()


# Around the defaults of Envoy's buffers, which others' gateways have stumbled over.
SIZES = [31_000, 33_000, (1 << 20) + 1, 6_000_000]


@PROTOCOLS
@pytest.mark.parametrize("size", SIZES)
def test_any_size_below_passes(stack: Stack, tenant: Tenant, send: Send, size: int) -> None:
    body = body_of(size)
    assert send(stack.envoy.port, tenant, body).status == 200
    assert stack.upstream.only_request().body == body
    stack.settles_to(tenant, chat.usage_of(chat.body()).total, requests=1)


@pytest.mark.parametrize("size", SIZES)
def test_any_size_in_pieces_passes(stack: Stack, tenant: Tenant, size: int) -> None:
    body = body_of(size)
    pieces = [body[at : at + 1000] for at in range(0, size, 1000)]
    assert http2.request(stack.envoy.port, [tenant.bearer], pieces, chat.PATH).status == 200
    assert stack.upstream.only_request().body == body


@PROTOCOLS
def test_one_byte_more_is_refused(stack: Stack, tenant: Tenant, send: Send) -> None:
    response = send(stack.envoy.port, tenant, body_of(LIMIT + 1))
    assert_refused(response, 413, "invalid_request_error", "request_too_large")
    assert stack.upstream.requests == []
    assert stack.service.bucket(tenant.name) == Bucket(0, 0)


@PROTOCOLS
def test_far_more_is_refused(stack: Stack, tenant: Tenant, send: Send) -> None:
    """More than any buffer of Envoy's: whoever answers, the answer is the same."""
    response = send(stack.envoy.port, tenant, body_of(3 * LIMIT))
    assert_refused(response, 413, "invalid_request_error", "request_too_large")
    assert stack.upstream.requests == []
    assert stack.service.bucket(tenant.name) == Bucket(0, 0)
