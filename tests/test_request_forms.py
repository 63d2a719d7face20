"""Requests of every form HTTP allows: upgrades, CONNECT, without a body, with one that is framed oddly or lies."""

from collections.abc import Iterator

import pytest

from harness import chat, http1, http2
from harness.envoy import Config
from harness.policy import Tenant
from harness.refusals import assert_refused
from harness.routes import connection_manager
from harness.service import Bucket
from harness.stack import Stack, running
from harness.wait import becomes

BODY = chat.encode(chat.body())
TOTAL = chat.usage_of(chat.body()).total


def with_upgrades(config: Config) -> None:
    """An operator may allow them; then they come to the filter."""
    manager = connection_manager(config)
    manager["upgrade_configs"] = [{"upgrade_type": "websocket"}, {"upgrade_type": "CONNECT"}]
    manager["http2_protocol_options"]["allow_connect"] = True
    routes = manager["route_config"]["virtual_hosts"][0]["routes"]
    tunnel = {"upgrade_configs": [{"upgrade_type": "CONNECT", "connect_config": {}}]}
    routes.insert(0, {"match": {"connect_matcher": {}}, "route": {"cluster": "provider", **tunnel}})


@pytest.fixture(scope="module")
def shared_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(tmp_path_factory.mktemp("forms"), edit=with_upgrades) as stack:
        yield stack


def assert_closed(stack: Stack, tenant: Tenant, response: http1.Response) -> None:
    assert_refused(response, 404, "invalid_request_error", "unknown_endpoint")
    assert_untouched(stack, tenant)


def assert_untouched(stack: Stack, tenant: Tenant) -> None:
    assert stack.upstream.requests == []
    assert stack.service.bucket(tenant.name) == Bucket(0, 0)
    assert stack.service.account_requests(tenant.name) == 0


def send(stack: Stack, data: bytes) -> http1.Response:
    client = http1.Connection(stack.envoy.port)
    try:
        client.send(data)
        return client.response()
    finally:
        client.close()


WEBSOCKET = [("connection", "Upgrade"), ("upgrade", "websocket"), ("sec-websocket-version", "13")]


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("path", [chat.PATH, "/v1/realtime", "/v1/models"])
def test_an_upgrade_is_closed(stack: Stack, tenant: Tenant, path: str, method: str) -> None:
    data = http1.encode(method, path, [tenant.bearer, *WEBSOCKET], b"", length=False)
    assert_closed(stack, tenant, send(stack, data))


def test_an_upgrade_over_http2_is_closed(stack: Stack, tenant: Tenant) -> None:
    client = http2.Http2(stack.envoy.port)
    client.start("CONNECT", chat.PATH, [(":protocol", "websocket"), tenant.bearer])
    assert_closed(stack, tenant, client.response())
    client.close()


def test_an_upgrade_to_what_is_not_allowed_is_refused_by_the_proxy(stack: Stack, tenant: Tenant) -> None:
    headers = [tenant.bearer, ("connection", "Upgrade"), ("upgrade", "h2c")]
    response = send(stack, http1.encode("GET", chat.PATH, headers, b""))
    assert response.status in (403, 404)
    assert_untouched(stack, tenant)


@pytest.mark.parametrize("target", ["gate.test:443", "provider.test:80"])
def test_connect_is_closed(stack: Stack, tenant: Tenant, target: str) -> None:
    head = f"CONNECT {target} HTTP/1.1\r\nhost: {target}\r\nauthorization: Bearer {tenant.key}\r\n\r\n"
    assert_closed(stack, tenant, send(stack, head.encode()))


@pytest.mark.parametrize("headers", [[("content-length", "0")], [], [("transfer-encoding", "chunked")]], ids=repr)
def test_a_post_without_a_body(stack: Stack, tenant: Tenant, headers: http1.Headers) -> None:
    end = b"0\r\n\r\n" if ("transfer-encoding", "chunked") in list(headers) else b""
    data = http1.encode("POST", chat.PATH, [tenant.bearer, *headers], b"", length=False)
    assert_refused(send(stack, data + end), 400, "invalid_request_error", None)
    assert_untouched(stack, tenant)


@pytest.mark.parametrize(
    ("method", "path"),
    [(method, chat.PATH) for method in ("GET", "HEAD", "OPTIONS", "DELETE", "TRACE", "PURGE")]
    + [("HEAD", "/v1/models"), ("OPTIONS", "/v1/models"), ("POST", "/v1/models"), ("post", chat.PATH)],
)
def test_a_method_that_is_not_served(stack: Stack, tenant: Tenant, method: str, path: str) -> None:
    client = http1.Connection(stack.envoy.port)
    client.send(http1.encode(method, path, [tenant.bearer], b"", length=False))
    head = client.head()
    client.close()
    # An unheard-of method is Envoy's own 400, or ours like any other.
    assert head.status in ((404,) if method.isupper() else (400, 404))
    assert_untouched(stack, tenant)


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_over_http2_without_a_body(stack: Stack, tenant: Tenant, method: str) -> None:
    client = http2.Http2(stack.envoy.port)
    client.start(method, chat.PATH, [tenant.bearer], end=True)
    assert client.response().status == 404
    client.close()
    assert_untouched(stack, tenant)


def test_options_with_half_a_preflight_is_closed(stack: Stack, tenant: Tenant) -> None:
    headers = [tenant.bearer, ("origin", "https://app.test"), ("access-control-request-headers", "authorization")]
    assert_closed(stack, tenant, http1.request(stack.envoy.port, "OPTIONS", chat.PATH, headers))


@pytest.mark.parametrize(
    ("headers", "status"),
    [([], 401), ([("content-encoding", "unheard-of")], 415)],
    ids=["no identity", "coding"],
)
def test_a_refusal_does_not_wait_for_100_continue(
    stack: Stack, tenant: Tenant, headers: list[tuple[str, str]], status: int
) -> None:
    """The body is never sent: Envoy's own 100 may come first, the answer does come."""
    given = [*headers, *([tenant.bearer] if headers else []), ("expect", "100-continue"), ("content-length", "100")]
    client = http1.Connection(stack.envoy.port)
    client.send(http1.encode("POST", chat.PATH, given, b"", length=False))
    head = client.head()
    if head.status == 100:
        head = client.head()
    assert head.status == status
    client.close()
    assert_untouched(stack, tenant)


def test_another_expectation_is_refused_or_ignored(stack: Stack, tenant: Tenant) -> None:
    response = send(stack, http1.encode("POST", chat.PATH, [tenant.bearer, ("expect", "a-miracle")], BODY))
    assert response.status in (200, 417)
    served = int(response.status == 200)
    stack.settles_to(tenant, served * TOTAL, served)


CHUNKED = ("transfer-encoding", "chunked")


@pytest.mark.parametrize("trailer", [b"", b"x-checksum: abc\r\n"], ids=["end", "trailers"])
@pytest.mark.parametrize("extension", [b"", b";name=value"], ids=["plain", "extension"])
@pytest.mark.parametrize("size", [1, 7])
def test_a_body_in_tiny_chunks(stack: Stack, tenant: Tenant, size: int, extension: bytes, trailer: bytes) -> None:
    parts = [BODY[at : at + size] for at in range(0, len(BODY), size)]
    chunks = b"".join(b"%x%s\r\n%s\r\n" % (len(part), extension, part) for part in parts) + b"0\r\n" + trailer
    head = http1.encode("POST", chat.PATH, [tenant.bearer, CHUNKED], b"", length=False)
    assert send(stack, head + chunks + b"\r\n").status == 200
    assert stack.upstream.only_request().body == BODY
    stack.settles_to(tenant, TOTAL, requests=1)


def test_one_segment_for_each_byte(stack: Stack, tenant: Tenant) -> None:
    data = http1.encode("POST", chat.PATH, [tenant.bearer], BODY)
    client = http1.Connection(stack.envoy.port)
    for at in range(len(data)):
        client.send(data[at : at + 1])
    assert client.response().status == 200
    client.close()
    stack.settles_to(tenant, TOTAL, requests=1)


HALF = len(BODY) // 2
FRAMES = {
    "first": [b"", BODY],
    "last": [BODY, b""],
    "in the middle": [BODY[:HALF], b"", BODY[HALF:]],
    "everywhere": [b"", BODY[:1], b"", BODY[1:-1], b"", BODY[-1:], b""],
}


def end(client: http2.Http2, stream: int, with_trailers: bool) -> None:
    if with_trailers:
        client.trailers(stream, [("x-checksum", "abc")])
    else:
        client.frame(stream, b"", end=True)


@pytest.mark.parametrize("trailers", [False, True], ids=["end of stream", "trailers"])
@pytest.mark.parametrize("pieces", FRAMES.values(), ids=FRAMES)
def test_empty_data_frames(stack: Stack, tenant: Tenant, pieces: list[bytes], trailers: bool) -> None:
    client = http2.Http2(stack.envoy.port)
    stream = client.start("POST", chat.PATH, [tenant.bearer])
    for piece in pieces:
        client.frame(stream, piece)
    end(client, stream, trailers)
    assert client.response().status == 200
    client.close()
    assert stack.upstream.only_request().body == BODY
    stack.settles_to(tenant, TOTAL, requests=1)


@pytest.mark.parametrize("trailers", [False, True], ids=["end of stream", "trailers"])
def test_nothing_but_empty_frames(stack: Stack, tenant: Tenant, trailers: bool) -> None:
    client = http2.Http2(stack.envoy.port)
    stream = client.start("POST", chat.PATH, [tenant.bearer])
    client.frame(stream, b"")
    end(client, stream, trailers)
    assert_refused(client.response(), 400, "invalid_request_error", None)
    client.close()
    assert_untouched(stack, tenant)


def test_a_flood_of_empty_frames_is_cut_by_the_proxy(stack: Stack, tenant: Tenant) -> None:
    client = http2.Http2(stack.envoy.port)
    stream = client.start("POST", chat.PATH, [tenant.bearer])
    client.frame(stream, BODY[:HALF])
    with pytest.raises(ConnectionError):
        for _ in range(100):
            client.frame(stream, b"")
        client.response()
    client.close()
    becomes(stack.envoy.active_requests, 0)
    assert_untouched(stack, tenant)
