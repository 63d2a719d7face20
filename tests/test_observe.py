"""`mode: observe`: everything is measured, nothing is refused, and a header says what would have happened."""

from collections.abc import Iterator

import pytest

from harness import chat, http1
from harness.policy import Tenant
from harness.stack import Stack, running

OBSERVED = "x-tokengate-observed"


@pytest.fixture(scope="module")
def shared_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(tmp_path_factory.mktemp("observe"), plugin={"mode": "observe"}) as stack:
        yield stack


def test_an_allowed_request_is_measured_and_not_marked(stack: Stack, tenant: Tenant) -> None:
    response = stack.ask(tenant)
    assert response.status == 200 and response.header(OBSERVED) is None
    assert response.header("x-ratelimit-remaining-tokens") is not None
    stack.settles_to(tenant, chat.usage_of(chat.body()).total, requests=1)


def test_over_the_limit_is_served_marked_and_charged(stack: Stack) -> None:
    tenant = stack.tenant("one-request")
    assert stack.ask(tenant).header(OBSERVED) is None
    second = stack.ask(tenant)
    assert second.status == 200
    assert second.header(OBSERVED) == "rpm_limit_exceeded"
    stack.settles_to(tenant, 2 * chat.usage_of(chat.body()).total, requests=2)


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("/v1/audio", b"{}", "unknown_endpoint"),
        (chat.PATH, b"not json", "invalid_request"),
        (chat.PATH, b'{"model":"nobody-knows","messages":[]}', "model_not_found"),
    ],
)
def test_what_would_be_refused_goes_through_unchanged(
    stack: Stack, tenant: Tenant, path: str, body: bytes, code: str
) -> None:
    stack.upstream.handler = chat.raw_json(b"{}")
    response = stack.post([tenant.bearer], body, path)
    assert (response.status, response.body) == (200, b"{}")
    assert response.header(OBSERVED) == code
    assert [request.body for request in stack.upstream.requests] == [body]


def test_a_caller_s_key_never_reaches_the_provider(stack: Stack, tenant: Tenant) -> None:
    stack.upstream.handler = chat.raw_json(b"{}")
    for path in ("/v1/audio", chat.PATH):
        assert stack.post([("x-api-key", tenant.key), ("x-tokengate-x", "1")], b"{}", path).status == 200
    for request in stack.upstream.requests:
        names = [name.lower() for name, _ in request.headers]
        assert "x-api-key" not in names and "x-tokengate-x" not in names


def test_no_key(stack: Stack) -> None:
    response = http1.request(stack.envoy.port, "POST", chat.PATH, [], chat.encode(chat.body()))
    assert response.status == 200
    assert response.header(OBSERVED) == "missing_identity"
