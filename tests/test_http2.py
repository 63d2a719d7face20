"""HTTP/2 requests are limited and charged like any other, however they are framed and however they end."""

from collections.abc import Iterable

import pytest

from harness import chat, http2
from harness.oracle import oracle
from harness.policy import Tenant
from harness.refusals import assert_refused
from harness.stack import Stack
from harness.wait import becomes

BODY = chat.encode(chat.body())
STREAMED = chat.encode(chat.body(stream=True))
TRAILERS = [("x-checksum", "abc")]


def framings(body: bytes) -> dict[str, Iterable[bytes]]:
    return {
        "whole": [body],
        "a byte a frame": [body[at : at + 1] for at in range(len(body))],
        "cut in the middle": [body[:40], body[40:]],
    }


@pytest.mark.parametrize("trailers", [None, TRAILERS], ids=["end of stream", "trailers"])
@pytest.mark.parametrize("framing", framings(b""))
def test_charged_however_framed(
    stack: Stack, tenant: Tenant, framing: str, trailers: list[tuple[str, str]] | None
) -> None:
    pieces = framings(BODY)[framing]
    response = http2.request(stack.envoy.port, [tenant.bearer], pieces, chat.PATH, trailers)
    assert response.status == 200
    assert stack.upstream.only_request().body == BODY
    stack.settles_to(tenant, chat.usage_of(chat.body()).total, requests=1)


def test_with_trailers_it_is_limited_like_any_other(stack: Stack) -> None:
    tenant = stack.tenant("one-request")
    assert http2.request(stack.envoy.port, [tenant.bearer], [BODY], chat.PATH, TRAILERS).status == 200
    refused = http2.request(stack.envoy.port, [tenant.bearer], [BODY], chat.PATH, TRAILERS)
    assert_refused(refused, 429, "rate_limit_error", "rpm_limit_exceeded")
    assert len(stack.upstream.requests) == 1


def test_with_trailers_a_bad_body_is_refused(stack: Stack, tenant: Tenant) -> None:
    refused = http2.request(stack.envoy.port, [tenant.bearer], [b"no json"], chat.PATH, TRAILERS)
    assert_refused(refused, 400, "invalid_request_error", None)
    assert stack.upstream.requests == []


@pytest.mark.parametrize("trailers", [None, TRAILERS], ids=["end of stream", "trailers"])
def test_a_rewritten_body_has_no_wrong_length(
    stack: Stack, tenant: Tenant, trailers: list[tuple[str, str]] | None
) -> None:
    headers = [tenant.bearer, ("content-length", str(len(STREAMED)))]
    response = http2.request(stack.envoy.port, headers, [STREAMED], chat.PATH, trailers)
    assert response.status == 200
    seen = stack.upstream.only_request()
    assert seen.body == STREAMED.replace(b"{", b'{"stream_options":{"include_usage":true},', 1)
    assert seen.header("content-length") in (str(len(seen.body)), None)
    stack.settles_to(tenant, chat.usage_of(chat.body()).total, requests=1)


def test_an_empty_body_is_refused(stack: Stack, tenant: Tenant) -> None:
    client = http2.Http2(stack.envoy.port)
    client.start("POST", chat.PATH, [tenant.bearer], end=True)
    assert_refused(client.response(), 400, "invalid_request_error", None)
    client.close()
    assert stack.upstream.requests == []


def test_a_stream_that_the_client_resets_is_charged_for_what_was_delivered(stack: Stack, tenant: Tenant) -> None:
    delivered = chat.DELTAS[:3]
    stack.upstream.handler = chat.stream_until_gone(delivered)
    client = http2.Http2(stack.envoy.port)
    stream = client.start("POST", chat.PATH, [tenant.bearer])
    client.data(stream, [STREAMED], end=True)
    client.response(until=chat.delta_event(delivered[-1]))
    client.reset(stream)
    expected = oracle().prompt(chat.body()["messages"]) + oracle().text("".join(delivered))
    stack.settles_to(tenant, expected, requests=1)
    client.close()


def test_a_request_reset_before_its_body_is_complete_costs_nothing(stack: Stack, tenant: Tenant) -> None:
    client = http2.Http2(stack.envoy.port)
    stream = client.start("POST", chat.PATH, [tenant.bearer])
    client.data(stream, [BODY[:20]], end=False)
    becomes(stack.envoy.active_requests, 1)
    client.reset(stream)
    becomes(stack.envoy.active_requests, 0)
    stack.settles_to(tenant, tokens=0, requests=0)
    assert stack.upstream.requests == []
    client.close()


def test_credentials_in_several_header_fields(stack: Stack, tenant: Tenant) -> None:
    refused = http2.request(stack.envoy.port, [tenant.bearer, stack.tenant().bearer], [BODY], chat.PATH)
    assert_refused(refused, 401, "authentication_error", "ambiguous_identity")
    assert stack.upstream.requests == []
