"""A backend's key may say who its own users are; from every other key the same headers say nothing."""

from collections.abc import Iterator
from typing import Any

import pytest

from harness import chat, http1
from harness.http1 import Response
from harness.policy import Plan, Policy, Tenant
from harness.refusals import assert_refused
from harness.stack import Stack, running

BACKEND, OTHER = Tenant("roomy-0", "roomy"), Tenant("roomy-1", "roomy")
USER, PLAN = "x-end-user", "x-end-user-plan"


def with_users(document: dict[str, Any]) -> None:
    document["keys"][0]["asserts"] = {"user": USER, "plan": PLAN}
    one = {"count": "requests", "algorithm": "fixed_window", "every": "24h"}
    document["limits"] += [
        {"name": "per-user", "per": ["user"], **one, "limit": {"roomy": 2, "gold": 3}},
        {"name": "per-address", "per": ["ip"], "shared": True, **one, "limit": {"roomy": 1000, "gold": 1000}},
    ]


@pytest.fixture(scope="module")
def shared_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    policy = Policy({"roomy": Plan(), "gold": Plan()}, with_users)
    with running(tmp_path_factory.mktemp("stack"), policy=policy) as stack:
        yield stack


def ask(stack: Stack, key: Tenant, *headers: tuple[str, bytes | str]) -> Response:
    return stack.post([key.bearer, *headers], chat.body())


def test_users_of_a_backend_have_limits_of_their_own(stack: Stack) -> None:
    for _ in range(2):
        assert ask(stack, BACKEND, (USER, "ann")).status == 200
    refused = ask(stack, BACKEND, (USER, "ann"))
    assert_refused(refused, 429, "rate_limit_error", "rpm_limit_exceeded")
    limit = refused.error()["limit"]
    assert (limit["name"], limit["scope"]) == ("per-user", {"tenant": BACKEND.name, "user": "ann"})
    assert ask(stack, BACKEND, (USER, "bob")).status == 200
    assert [ask(stack, BACKEND, (USER, "carl"), (PLAN, "gold")).status for _ in range(4)] == [200, 200, 200, 429]
    for request in stack.upstream.requests:
        assert (request.all(USER), request.all(PLAN)) == ([], []), "the provider is told nothing of users"


def test_another_keys_word_is_nothing(stack: Stack) -> None:
    assert [ask(stack, OTHER, (USER, f"user-{n}"), (PLAN, "gold")).status for n in range(3)] == [200, 200, 429]
    assert all(request.all(USER) == [] for request in stack.upstream.requests)


def test_also_requests_without_tokens_lose_the_headers(stack: Stack) -> None:
    headers = [Tenant("roomy-2", "roomy").bearer, (USER, "ann")]
    assert http1.request(stack.envoy.port, "GET", "/v1/models", headers).status == 200
    assert stack.upstream.only_request().all(USER) == []


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ([(USER, "ann"), (USER, "ann")], "ambiguous_identity"),
        ([(USER, "ann"), (USER, "bob")], "ambiguous_identity"),
        ([(USER, "x" * 129)], "invalid_identity"),
        ([(USER, b"\xff\xfe")], "invalid_identity"),
        ([(USER, "ann"), (PLAN, "platinum")], "invalid_identity"),
    ],
    ids=["twice the same", "two", "too long", "not UTF-8", "no such plan"],
)
def test_what_cannot_be_said_of_a_user(stack: Stack, headers: list[tuple[str, bytes | str]], code: str) -> None:
    assert_refused(ask(stack, BACKEND, *headers), 401, "authentication_error", code)
    assert stack.upstream.requests == []
