"""Compressed bodies, both ways: read where it can be, bounded, refused or charged as held where it cannot."""

import gzip
import zlib
from collections.abc import Callable

import pytest

from harness import chat, http1, http2
from harness.holding import needs_headers
from harness.oracle import oracle
from harness.policy import Tenant
from harness.refusals import assert_refused
from harness.service import Bucket
from harness.stack import Stack
from harness.upstream import Exchange, Handler

GZIP = ("content-encoding", "gzip")
LIMIT = chat.body()["max_tokens"]
TOTAL = chat.usage_of(chat.body()).total
BODY, STREAMED = chat.encode(chat.body()), chat.encode(chat.body(stream=True))
ASKED = chat.encode(chat.body(stream=True, stream_options={"include_usage": True}))
BOUND = 8 << 20
USAGE = chat.Usage(10, 5)


def assert_untouched(stack: Stack, tenant: Tenant) -> None:
    assert stack.upstream.requests == []
    assert stack.service.bucket(tenant.name) == Bucket(0, 0)


@pytest.mark.parametrize("coding", ["gzip", "GZIP", "x-gzip", " gzip ", "identity, gzip"])
def test_a_request_without_edits_goes_on_as_received(stack: Stack, tenant: Tenant, coding: str) -> None:
    packed = gzip.compress(BODY)
    stack.upstream.handler = chat.raw_json(chat.completion("x", USAGE))
    response = stack.post([tenant.bearer, ("content-encoding", coding)], packed)
    assert response.status == 200, response.body
    seen = stack.upstream.only_request()
    assert seen.body == packed
    assert seen.header("content-encoding") == coding.strip()
    assert seen.header("content-length") == str(len(packed))
    stack.settles_to(tenant, USAGE.total, requests=1)


def over_http1(stack: Stack, tenant: Tenant, packed: bytes) -> http1.Response:
    return stack.post([tenant.bearer, GZIP], packed)


def over_http2(stack: Stack, tenant: Tenant, packed: bytes) -> http1.Response:
    pieces = [packed[at : at + 3] for at in range(0, len(packed), 3)]
    return http2.request(stack.envoy.port, [tenant.bearer, GZIP], pieces, chat.PATH, [("x-checksum", "abc")])


@needs_headers("held at the body it is packed again: test_hold_at_body.py")
@pytest.mark.parametrize("send", [over_http1, over_http2])
def test_an_edited_request_is_unpacked(stack: Stack, tenant: Tenant, send: Callable[..., http1.Response]) -> None:
    response = send(stack, tenant, gzip.compress(STREAMED))
    assert response.status == 200, response.body
    seen = stack.upstream.only_request()
    assert seen.body == STREAMED.replace(b"{", b'{"stream_options":{"include_usage":true},', 1)
    assert seen.all("content-encoding") == []
    assert seen.header("content-length") in (str(len(seen.body)), None)
    stack.settles_to(tenant, TOTAL, requests=1)


PACKED = gzip.compress(BODY)
DAMAGED = {
    "cut": PACKED[:-9],
    "no trailer": PACKED[:-8],
    "wrong checksum": PACKED[:-8] + b"\0\0\0\0" + PACKED[-4:],
    "wrong size": PACKED[:-4] + b"\1\0\0\0",
    "not packed": BODY,
    "text behind": PACKED + b"x",
    "empty": b"",
    "head only": PACKED[:10],
    "zlib": zlib.compress(BODY),
    "packed twice": gzip.compress(PACKED),
    "no JSON within": gzip.compress(b"no json"),
}


@pytest.mark.parametrize("packed", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_request_is_refused(stack: Stack, tenant: Tenant, packed: bytes) -> None:
    assert_refused(over_http1(stack, tenant, packed), 400, "invalid_request_error", None)
    assert_untouched(stack, tenant)


def test_a_request_in_several_members_is_read_whole_or_refused(stack: Stack, tenant: Tenant) -> None:
    """RFC 1952 allows it; whoever reads only the first would miss the rest."""
    half = len(STREAMED) // 2
    stack.upstream.handler = chat.raw_stream(chat.DONE)
    response = over_http1(stack, tenant, gzip.compress(STREAMED[:half]) + gzip.compress(STREAMED[half:]))
    if response.status == 200:
        seen = stack.upstream.only_request()
        body = gzip.decompress(seen.body) if seen.all("content-encoding") else seen.body
        assert body == STREAMED.replace(b"{", b'{"stream_options":{"include_usage":true},', 1)
    else:
        assert_refused(response, 400, "invalid_request_error", None)
        assert_untouched(stack, tenant)


def bomb(size: int) -> bytes:
    packer = zlib.compressobj(9, wbits=31)
    frame = chat.encode(chat.body(padding="")).rstrip(b'"}')
    packed = packer.compress(frame + b'"')
    for _ in range(size >> 20):
        packed += packer.compress(b" " * (1 << 20))
    return packed + packer.compress(b'"}') + packer.flush()


@pytest.mark.parametrize("megabytes", [9, 200])
def test_a_bomb_is_refused(stack: Stack, tenant: Tenant, megabytes: int) -> None:
    packed = bomb(megabytes << 20)
    assert len(packed) < BOUND // 8
    assert_refused(over_http1(stack, tenant, packed), 413, "invalid_request_error", "request_too_large")
    assert_untouched(stack, tenant)


def test_many_bombs_leave_the_gate_as_it_was(stack: Stack, tenant: Tenant) -> None:
    packed = bomb(64 << 20)
    for _ in range(20):
        assert over_http1(stack, tenant, packed).status == 413
    assert stack.ask(tenant).status == 200
    stack.settles_to(tenant, TOTAL, requests=1)


@pytest.mark.parametrize(
    "coding", ["deflate", "br", "zstd", "compress", "gzip, gzip", "gzip, br", "gzip;q=1", "utf-8", "*"]
)
def test_a_request_in_another_coding_is_refused(stack: Stack, tenant: Tenant, coding: str) -> None:
    response = stack.post([tenant.bearer, ("content-encoding", coding)], PACKED)
    assert response.status == 415
    assert response.error()["type"] == "invalid_request_error"
    assert_untouched(stack, tenant)


def test_two_fields_of_codings_are_a_list(stack: Stack, tenant: Tenant) -> None:
    """Envoy joins them with a comma, as it is for everyone behind us."""
    response = stack.post([tenant.bearer, GZIP, GZIP], PACKED)
    assert response.status == 415
    assert_untouched(stack, tenant)


@pytest.mark.parametrize("coding", ["identity", "Identity", ""])
def test_identity_is_no_coding(stack: Stack, tenant: Tenant, coding: str) -> None:
    assert stack.post([tenant.bearer, ("content-encoding", coding)], BODY).status == 200
    stack.settles_to(tenant, TOTAL, requests=1)


def answering(data: bytes, coding: str, size: int) -> Handler:
    async def handler(exchange: Exchange) -> None:
        await exchange.head(200, [*chat.EVENT_STREAM, ("content-encoding", coding)])
        for at in range(0, len(data), size):
            await exchange.chunk(data[at : at + size])
        await exchange.finish()

    return handler


EVENTS = b"".join(chat.stream_events(chat.DELTAS, USAGE))
BARE = b"".join(chat.stream_events(chat.DELTAS, None))


@pytest.mark.parametrize("size", [1, 1 << 20], ids=["a byte at a time", "whole"])
@pytest.mark.parametrize(
    "plain", [EVENTS, chat.completion(chat.DELTAS, USAGE)], ids=["a stream", "JSON"]
)
def test_usage_is_read_from_an_answer_in_gzip(stack: Stack, tenant: Tenant, plain: bytes, size: int) -> None:
    """Although identity was asked for."""
    packed = gzip.compress(plain)
    stack.upstream.handler = answering(packed, "gzip", size)
    response = stack.post([tenant.bearer], ASKED)
    assert (response.body, response.header("content-encoding")) == (packed, "gzip")
    assert stack.upstream.only_request().header("accept-encoding") == "identity"
    stack.settles_to(tenant, USAGE.total, requests=1)


@pytest.mark.parametrize("coding", ["UTF-8", "none", "chunked", ", ,", "aws-chunked, utf-8"])
def test_what_is_no_coding_hides_nothing(stack: Stack, tenant: Tenant, coding: str) -> None:
    """The usage is read, and the chunk that only we asked for is taken out."""
    stack.upstream.handler = answering(EVENTS, coding, 1 << 20)
    assert stack.post([tenant.bearer], STREAMED).body == EVENTS.replace(chat.usage_event(USAGE), b"")
    stack.settles_to(tenant, USAGE.total, requests=1)


@pytest.mark.parametrize("coding", ["identity", "UTF-8"])
def test_gzip_without_a_word_is_read(stack: Stack, tenant: Tenant, coding: str) -> None:
    packed = gzip.compress(EVENTS)
    stack.upstream.handler = answering(packed, coding, 7)
    assert stack.post([tenant.bearer], STREAMED).body == packed
    stack.settles_to(tenant, USAGE.total, requests=1)


@pytest.mark.parametrize("packed", [zlib.compress(EVENTS), zlib.compress(BARE)[:40]], ids=["whole", "cut"])
def test_what_is_compressed_without_a_word_costs_the_hold(stack: Stack, tenant: Tenant, packed: bytes) -> None:
    stack.upstream.handler = answering(packed, "identity", 1 << 20)
    assert stack.post([tenant.bearer], ASKED).body == packed
    stack.settles_to(tenant, prompt() + LIMIT, requests=1)


def prompt() -> int:
    return oracle().prompt(chat.body()["messages"])


@pytest.mark.parametrize(
    ("packed", "coding", "tokens"),
    [
        (gzip.compress(BARE), "gzip", lambda: prompt() + oracle().text("".join(chat.DELTAS))),
        (gzip.compress(EVENTS)[:30], "gzip", None),
        (b"\x1f\x8b nonsense", "gzip", lambda: prompt() + LIMIT),
        (EVENTS, "gzip", lambda: USAGE.total),
        (b"\x8b\x0b\x80", "br", lambda: prompt() + LIMIT),
        (zlib.compress(EVENTS), "deflate", lambda: prompt() + LIMIT),
        (gzip.compress(gzip.compress(EVENTS)), "gzip, gzip", lambda: prompt() + LIMIT),
    ],
    ids=["no usage", "cut", "nonsense", "not packed", "br", "deflate", "twice"],
)
def test_an_answer_that_cannot_be_read_is_never_free(
    stack: Stack, tenant: Tenant, packed: bytes, coding: str, tokens: Callable[[], int] | None
) -> None:
    stack.upstream.handler = answering(packed, coding, 1 << 20)
    assert stack.post([tenant.bearer], ASKED).body == packed
    if tokens:
        stack.settles_to(tenant, tokens(), requests=1)
    else:
        charged = {prompt() + extra for extra in range(LIMIT + 1)} | {USAGE.total}
        eventually_charged(stack, tenant, charged)


def eventually_charged(stack: Stack, tenant: Tenant, allowed: set[int]) -> None:
    bucket = stack.closed_bucket(tenant)
    assert (bucket.requests, bucket.tokens in allowed) == (1, True), bucket


def test_an_answer_that_is_a_bomb(stack: Stack, tenant: Tenant) -> None:
    """A hundred megabytes of comments around the usage; the client gets what the provider sent."""
    packer = zlib.compressobj(9, wbits=31)
    packed = packer.compress(chat.delta_event("Hel"))
    for _ in range(100):
        packed += packer.compress(b": " + b" " * (1 << 20) + b"\n\n")
    packed += packer.compress(chat.usage_event(USAGE)) + packer.flush()
    stack.upstream.handler = answering(packed, "gzip", 1 << 14)
    assert stack.post([tenant.bearer], ASKED).body == packed
    eventually_charged(stack, tenant, {USAGE.total, prompt() + oracle().text("Hel"), prompt() + LIMIT})
