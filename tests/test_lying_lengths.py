"""Bodies that are longer or shorter than they say, and heads that say it twice: no bytes of another request."""

import pytest

from harness import chat, http1, http2
from harness.policy import Tenant
from harness.service import Bucket
from harness.stack import Stack
from harness.wait import becomes

BODY = chat.encode(chat.body())
TOTAL = chat.usage_of(chat.body()).total
SIZE = len(BODY)


def head(tenant: Tenant, *headers: tuple[str, str]) -> bytes:
    return http1.encode("POST", chat.PATH, [tenant.bearer, *headers], b"", length=False)


def assert_untouched(stack: Stack, tenant: Tenant) -> None:
    becomes(stack.envoy.active_requests, 0)
    assert stack.upstream.requests == []
    assert stack.service.bucket(tenant.name) == Bucket(0, 0)


@pytest.mark.parametrize(
    "headers",
    [
        [("content-length", str(SIZE)), ("content-length", str(SIZE + 1))],
        [("content-length", str(SIZE)), ("transfer-encoding", "chunked")],
        [("content-length", "-1")],
        [("content-length", f"+{SIZE}")],
        [("content-length", "0x10")],
        [("content-length", "99999999999999999999")],
        [("content-length", f"{SIZE}, {SIZE + 1}")],
        [("transfer-encoding", "gzip")],
        [("transfer-encoding", "chunked, identity")],
    ],
    ids=repr,
)
def test_a_head_that_contradicts_itself(stack: Stack, tenant: Tenant, headers: list[tuple[str, str]]) -> None:
    client = http1.Connection(stack.envoy.port)
    client.send(head(tenant, *headers) + BODY)
    assert client.head().status in (400, 413, 501)
    client.close()
    assert_untouched(stack, tenant)


def test_a_shorter_length_makes_the_rest_another_request(stack: Stack, tenant: Tenant) -> None:
    client = http1.Connection(stack.envoy.port)
    client.send(head(tenant, ("content-length", "20")) + BODY)
    assert client.head().status == 400
    client.close()
    assert_untouched(stack, tenant)


def test_a_longer_length_waits_and_costs_nothing(stack: Stack, tenant: Tenant) -> None:
    client = http1.Connection(stack.envoy.port)
    client.send(head(tenant, ("content-length", str(SIZE + 1))) + BODY)
    becomes(stack.envoy.active_requests, 1)
    client.close()
    assert_untouched(stack, tenant)


@pytest.mark.parametrize("chunk", [b"zz\r\n", b"-5\r\n", b"ffffffffffffffffff\r\n", b"5\r\nabc"], ids=repr)
def test_a_chunk_that_is_none(stack: Stack, tenant: Tenant, chunk: bytes) -> None:
    client = http1.Connection(stack.envoy.port)
    client.send(head(tenant, ("transfer-encoding", "chunked")) + b"3\r\n{}\n\r\n" + chunk + b"\r\n\r\n" + b"x" * 40)
    assert client.head().status == 400
    client.close()
    assert_untouched(stack, tenant)


@pytest.mark.parametrize("said", [SIZE - 1, SIZE + 1, 0])
def test_http2_with_another_length_than_its_frames(stack: Stack, tenant: Tenant, said: int) -> None:
    client = http2.Http2(stack.envoy.port)
    stream = client.start("POST", chat.PATH, [tenant.bearer, ("content-length", str(said))])
    with pytest.raises((http2.StreamReset, ConnectionError)):
        client.data(stream, [BODY], end=True)
        client.response()
    client.close()
    assert_untouched(stack, tenant)


def test_pipelined_requests_are_each_answered_and_charged(stack: Stack, tenant: Tenant) -> None:
    """One after the other on a connection, the second sent before the first is answered."""
    other = stack.tenant()
    client = http1.Connection(stack.envoy.port)
    requests = [http1.encode("POST", chat.PATH, [caller.bearer], BODY) for caller in (tenant, other, tenant)]
    client.send(b"".join(requests))
    assert [client.response().status for _ in requests] == [200, 200, 200]
    client.close()
    stack.settles_to(tenant, 2 * TOTAL, requests=2)
    stack.settles_to(other, TOTAL, requests=1)


def test_half_closed_after_the_request(stack: Stack, tenant: Tenant) -> None:
    """A client that says it will send no more may still be read to; Envoy takes it for gone. Either is charged."""
    client = http1.Connection(stack.envoy.port)
    gate = stack.upstream.gate()
    stack.upstream.handler = chat.answer(gate=gate)
    client.send(http1.encode("POST", chat.PATH, [tenant.bearer], BODY))
    gate.reached(1)
    client.shut_down_sending()
    becomes(stack.envoy.active_requests, 0)
    gate.open()
    client.close()
    hold = chat.usage_of(chat.body()).prompt + chat.body()["max_tokens"]
    stack.settles_to(tenant, hold, requests=1)
