"""Envoy's own replies with the shipped `envoy.yaml`: offers to upgrade that nobody has to take up are ignored, and
whatever Envoy refuses itself is refused in the API's shape, with a text."""

import pytest

from harness import chat, http1
from harness.policy import Tenant
from harness.refusals import assert_refused
from harness.stack import Stack

BODY = chat.encode(chat.body())


def raw(stack: Stack, data: bytes) -> http1.Response:
    client = http1.Connection(stack.envoy.port)
    client.send(data)
    response = client.response()
    client.close()
    return response


@pytest.mark.parametrize("connection", ["Upgrade", "keep-alive, upgrade", "Upgrade, HTTP2-Settings"])
@pytest.mark.parametrize(
    "upgrade", ["TLS/1.2", "tls/1.3", "TLS/1.2, TLS/1.3", "h2c", "h2", "HTTP/2.0", "TLS/1.0, HTTP/1.1", "h2,h2c,TLS/1.2"]
)
def test_an_offer_to_upgrade_is_ignored(stack: Stack, tenant: Tenant, connection: str, upgrade: str) -> None:
    offer = [("Connection", connection), ("Upgrade", upgrade)]
    response = raw(stack, http1.encode("POST", chat.PATH, [tenant.bearer, *offer], BODY))
    assert response.status == 200, response.body
    seen = stack.upstream.only_request()
    assert (seen.header("upgrade"), seen.header("connection"), seen.body) == (None, None, BODY)
    stack.settles_to(tenant, chat.usage_of(chat.body()).total, requests=1)


@pytest.mark.parametrize("upgrade", ["websocket", "WebSocket", "websocket, TLS/1.2", "something"])
def test_an_upgrade_that_is_one_is_refused_with_a_text(stack: Stack, tenant: Tenant, upgrade: str) -> None:
    headers = [tenant.bearer, ("connection", "upgrade"), ("upgrade", upgrade)]
    response = raw(stack, http1.encode("GET", chat.PATH, headers, b""))
    assert_refused(response, 403, "invalid_request_error", "upgrade_refused")
    assert stack.upstream.requests == []
    stack.settles_to(tenant, tokens=0, requests=0)


HOST = b"host: gate.test\r\n"


@pytest.mark.parametrize(
    ("data", "status", "code", "says"),
    [
        (b"GET /v1/models HTTP/1.1\r\n\r\n", 400, "proxy_error", "missing_host_header"),
        (b"GET /%00 HTTP/1.1\r\n" + HOST + b"\r\n", 400, "proxy_error", "path_normalization_failed"),
        (b"no HTTP\r\n\r\n", 400, "proxy_error", "http1.codec_error"),
        (b"GET /v1/models HTTP/1.0\r\n" + HOST + b"\r\n", 426, "proxy_error", "low_version"),
        (b"GET / HTTP/1.1\r\n" + HOST + b"x: " + b"a" * 70_000 + b"\r\n\r\n", 431, "request_headers_too_large", "too large"),
        (b"GET / HTTP/1.1\r\n" + HOST + b"x: a\r\n" * 200 + b"\r\n", 431, "request_headers_too_large", "too large"),
        (b"POST / HTTP/1.1\r\n" + HOST + b"content-length: 1\r\ntransfer-encoding: chunked\r\n\r\n", 400, "proxy_error",
         "content_length_and_chunked_not_allowed"),
    ],
    ids=lambda value: None if isinstance(value, bytes) else str(value),
)  # fmt: skip
def test_what_envoy_refuses_itself_has_a_text(stack: Stack, data: bytes, status: int, code: str, says: str) -> None:
    response = raw(stack, data)
    assert_refused(response, status, "invalid_request_error", code)
    assert says in response.error()["message"]
    assert stack.upstream.requests == []


def test_what_envoy_cannot_do_itself_has_a_text(stack: Stack) -> None:
    response = raw(stack, b"POST / HTTP/1.1\r\n" + HOST + b"transfer-encoding: unknown\r\n\r\n")
    assert_refused(response, 501, "api_error", "gateway_error")
    assert "invalid_transfer_encoding" in response.error()["message"]


def test_a_provider_that_cannot_be_reached_is_called_that(stack: Stack, tenant: Tenant) -> None:
    stack.upstream.refuse()
    try:
        response = stack.ask(tenant)
    finally:
        stack.upstream.accept()
    assert_refused(response, 503, "api_error", "upstream_unavailable")
    assert "upstream connect error" in response.error()["message"]
