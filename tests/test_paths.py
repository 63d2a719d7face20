"""Which paths are metered, listed, passed, and closed; no spelling gets around the gate."""

import pytest

from harness import chat, http1, http2
from harness.policy import Tenant
from harness.refusals import assert_refused
from harness.stack import Stack


@pytest.mark.parametrize(
    "path",
    [
        "/v1/chat/completions?x=1",
        "//v1/chat/completions",
        "/v1//chat/completions",
        "/v1/./chat/completions",
        "/v1/models/../chat/completions",
        "/v1/chat/completions?",
    ],
)
def test_spellings_of_a_metered_path(stack: Stack, tenant: Tenant, path: str) -> None:
    assert stack.post([tenant.bearer], chat.body(), path).status == 200
    stack.settles_to(tenant, chat.usage_of(chat.body()).total, requests=1)


@pytest.mark.parametrize(
    "path",
    [
        "/v1/chat",
        "/v1/responses?beta=true",
        "/v1/batches",
        "/v1/realtime",
        "/v1/embeddings",
        "/openai/deployments/d/chat/completions?api-version=2024-06-01",
        "/",
    ],
)
def test_other_paths_are_closed(stack: Stack, tenant: Tenant, path: str) -> None:
    response = stack.post([tenant.bearer], chat.body(), path)
    assert_refused(response, 404, "invalid_request_error", "unknown_endpoint")
    assert "paths.other" in response.error()["message"], "the message names the setting"
    assert stack.upstream.requests == []


@pytest.mark.parametrize(
    "path",
    [
        "/v1/chat/completions/",
        "/V1/Chat/Completions",
        "/v1/chat/completions;x=1",
        "/v1/chat/completions%20",
        "/v1/chat%252fcompletions",
    ],
)
def test_another_spelling_of_a_metered_path_is_closed(stack: Stack, tenant: Tenant, path: str) -> None:
    response = stack.post([tenant.bearer], chat.body(), path)
    assert_refused(response, 404, "invalid_request_error", "unknown_endpoint")
    assert "POST /v1/chat/completions." in response.error()["message"], "the message names the right one"
    assert stack.upstream.requests == []


@pytest.mark.parametrize(
    "path", ["/%2Fv1/chat%2Fcompletions", "/v1/chat%2Fcompletions", "/v1/chat%2fcompletions", "/v1/%63hat/completions"]
)
def test_an_escaped_path_is_limited_or_refused(stack: Stack, tenant: Tenant, path: str) -> None:
    """Envoy's own settings decide which; nobody is served without being charged."""
    response = stack.post([tenant.bearer], chat.body(), path)
    if response.status == 200:
        stack.settles_to(tenant, chat.usage_of(chat.body()).total, requests=1)
    else:
        assert response.status in (307, 400, 404)
        assert stack.upstream.requests == []


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH"])
def test_other_methods_on_a_metered_path_are_closed(stack: Stack, tenant: Tenant, method: str) -> None:
    response = http1.request(stack.envoy.port, method, chat.PATH, [tenant.bearer])
    assert_refused(response, 404, "invalid_request_error", "unknown_endpoint")
    assert stack.upstream.requests == []


@pytest.mark.parametrize("connection", ["upgrade", "Upgrade"])
def test_an_upgrade_is_closed_also_on_a_metered_path(stack: Stack, tenant: Tenant, connection: str) -> None:
    headers = [tenant.bearer, ("connection", connection), ("upgrade", "websocket")]
    client = http1.Connection(stack.envoy.port)
    client.send(http1.encode("GET", chat.PATH, headers, b""))
    # 403 is Envoy's own, where its configuration allows no upgrade at all.
    assert client.response().status in (403, 404)
    client.close()
    assert stack.upstream.requests == []


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/gpt-4o"])
def test_a_listed_path_counts_a_request_and_no_tokens(stack: Stack, tenant: Tenant, path: str) -> None:
    response = http1.request(stack.envoy.port, "GET", path, [tenant.bearer])
    assert (response.status, response.json()) == (200, {"object": "list", "data": []})
    assert stack.upstream.only_request().path == path
    assert stack.service.account_requests(tenant.name) == 1
    stack.settles_to(tenant, tokens=0, requests=0)


def test_a_listed_path_needs_an_identity(stack: Stack) -> None:
    response = http1.request(stack.envoy.port, "GET", "/v1/models")
    assert_refused(response, 401, "authentication_error", "missing_identity")
    assert stack.upstream.requests == []


PREFLIGHT = [("origin", "https://app.test"), ("access-control-request-method", "POST")]


@pytest.mark.parametrize("path", [chat.PATH, "/v1/files", "/v1/models"])
def test_a_preflight_is_like_any_other_request(stack: Stack, path: str) -> None:
    response = http1.request(stack.envoy.port, "OPTIONS", path, PREFLIGHT, b"a body")
    assert_refused(response, 404, "invalid_request_error", "unknown_endpoint")
    assert stack.upstream.requests == []


def test_a_listed_path_takes_no_body(stack: Stack, tenant: Tenant) -> None:
    chunked = ("transfer-encoding", "chunked")
    for request in (
        http1.encode("GET", "/v1/models", [tenant.bearer], b"a body"),
        http1.encode("GET", "/v1/models", [tenant.bearer, chunked], b"1\r\na\r\n0\r\n\r\n", length=False),
    ):
        client = http1.Connection(stack.envoy.port)
        client.send(request)
        assert_refused(client.response(), 400, "invalid_request_error", None)
        client.close()
    assert stack.upstream.requests == []
    stack.settles_to(tenant, tokens=0, requests=0)


def test_a_listed_path_over_http2_takes_an_empty_body_and_no_other(stack: Stack, tenant: Tenant) -> None:
    """Some clients end a request without a body by an empty frame of its own."""
    client = http2.Http2(stack.envoy.port)
    stream = client.start("GET", "/v1/models", [tenant.bearer])
    client.data(stream, [], end=True)
    assert client.response().status == 200
    client.close()
    assert stack.upstream.only_request().body == b""
    client = http2.Http2(stack.envoy.port)
    stream = client.start("GET", "/v1/models", [tenant.bearer])
    client.data(stream, [b"a body"], end=True)
    assert client.response().status == 400
    client.close()
    assert all(seen.body == b"" for seen in stack.upstream.requests)


def test_options_that_is_no_preflight_is_closed(stack: Stack) -> None:
    response = http1.request(stack.envoy.port, "OPTIONS", chat.PATH, [("origin", "https://app.test")])
    assert_refused(response, 404, "invalid_request_error", "unknown_endpoint")
    assert stack.upstream.requests == []
