"""Which paths are metered, listed, passed, and closed; no spelling gets around the gate."""

import pytest

from harness import chat, http1
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
        "/v1/chat/completions/",
        "/V1/Chat/Completions",
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


def test_a_preflight_passes_untouched(stack: Stack) -> None:
    response = http1.request(stack.envoy.port, "OPTIONS", chat.PATH, [*PREFLIGHT, ("x-kept", "1")])
    assert response.status == 200
    seen = stack.upstream.only_request()
    assert (seen.method, seen.path) == ("OPTIONS", chat.PATH)
    for name, value in [*PREFLIGHT, ("x-kept", "1")]:
        assert seen.header(name) == value


def test_options_that_is_no_preflight_is_closed(stack: Stack) -> None:
    response = http1.request(stack.envoy.port, "OPTIONS", chat.PATH, [("origin", "https://app.test")])
    assert_refused(response, 404, "invalid_request_error", "unknown_endpoint")
    assert stack.upstream.requests == []
