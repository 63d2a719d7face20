"""With everything open that is not metered: a metered path stays closed in every other spelling, a preflight may pass."""

from collections.abc import Iterator

import pytest

from harness import chat, http1
from harness.policy import Tenant
from harness.refusals import assert_refused
from harness.stack import Stack, running


@pytest.fixture(scope="module")
def shared_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(tmp_path_factory.mktemp("open"), {"paths": {"other": "pass", "preflight": "pass"}}) as stack:
        yield stack


@pytest.mark.parametrize(
    "path",
    [
        "/v1/chat/completions/",
        "/v1/chat/completions//",
        "/V1/chat/completions",
        "/v1/chat/completions;x",
        "/v1/chat/completions;x/",
        "/v1/chat/completions%20",
        "/v1/chat%252Fcompletions",
        "/v1/chat/completions%253Fx",
        "/v1/chat/compl%65tions/",
    ],
)
def test_another_spelling_of_a_metered_path_is_closed(stack: Stack, tenant: Tenant, path: str) -> None:
    response = stack.post([tenant.bearer], chat.body(), path)
    assert_refused(response, 404, "invalid_request_error", "unknown_endpoint")
    assert stack.upstream.requests == []


def test_what_is_open_passes(stack: Stack) -> None:
    assert http1.request(stack.envoy.port, "GET", "/v1/chat/completions/").status == 200
    assert stack.upstream.only_request().path == "/v1/chat/completions/"


PREFLIGHT = [("origin", "https://app.test"), ("access-control-request-method", "POST")]


def test_a_preflight_passes_without_what_is_not_for_the_provider(stack: Stack) -> None:
    stripped = [("cookie", "a=b"), ("x-original-url", "/x"), ("authorization", "Bearer x"), ("x-tokengate-x", "1")]
    response = http1.request(stack.envoy.port, "OPTIONS", chat.PATH, [*PREFLIGHT, *stripped, ("x-kept", "1")])
    assert response.status == 200
    seen = stack.upstream.only_request()
    assert (seen.method, seen.path) == ("OPTIONS", chat.PATH)
    for name, value in [*PREFLIGHT, ("x-kept", "1")]:
        assert seen.header(name) == value
    for name, _ in stripped:
        assert seen.header(name) != "Bearer x" and (name == "authorization" or seen.header(name) is None), name


def test_a_preflight_with_a_body_goes_nowhere(stack: Stack) -> None:
    response = http1.request(stack.envoy.port, "OPTIONS", chat.PATH, PREFLIGHT, b"a body")
    assert_refused(response, 400, "invalid_request_error", None)
    assert stack.upstream.requests == []
