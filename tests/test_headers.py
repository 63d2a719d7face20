"""What every answer says about the caller's budget, and what a refusal says about the wait."""

import re

import pytest

from harness import chat
from harness.http1 import Response
from harness.oracle import oracle
from harness.policy import BURST_S, PLANS, Tenant
from harness.refusals import assert_refused
from harness.stack import Stack
from harness.wait import eventually

# OpenAI's grammar, in the part that simple parsers read.
DURATION = re.compile(r"\d+(\.\d{1,3})?s")
LIMITER_HEADERS = [
    f"x-ratelimit-{what}-{of}" for what in ("limit", "remaining", "reset") for of in ("requests", "tokens")
]


def hold(max_tokens: int = 50) -> int:
    return oracle().prompt(chat.body()["messages"]) + max_tokens


def assert_budget(response: Response, requests: tuple[int, int], tokens: tuple[int, int]) -> None:
    """Limit and remaining of both kinds; resets are durations."""
    seen = {name: response.header(name) for name in LIMITER_HEADERS}
    for kind, (limit, remaining) in (("requests", requests), ("tokens", tokens)):
        assert (seen[f"x-ratelimit-limit-{kind}"], seen[f"x-ratelimit-remaining-{kind}"]) == (
            str(limit),
            str(remaining),
        )
        assert DURATION.fullmatch(seen[f"x-ratelimit-reset-{kind}"] or "")


@pytest.mark.parametrize("stream", [False, True])
def test_an_allowed_answer_tells_the_budget_after_the_hold(stack: Stack, stream: bool) -> None:
    response = stack.ask(stack.tenant("two-requests"), stream=stream)
    limits = PLANS["two-requests"]
    assert response.status == 200
    assert_budget(response, (2, 1), (limits.tokens, limits.tokens - hold()))
    assert response.header("retry-after") is None
    assert response.header("x-tokengate-refused-by") is None


def test_the_providers_own_numbers_are_replaced(stack: Stack) -> None:
    stack.upstream.handler = chat.provider_error(429)
    response = stack.ask(stack.tenant("small"), max_tokens=100)
    assert_budget(response, (PLANS["small"].requests, PLANS["small"].requests - 1), (1000, 1000 - hold(100)))


def test_requests_are_used_up(stack: Stack) -> None:
    tenant = stack.tenant("one-request")
    stack.ask(tenant)
    response = stack.ask(tenant)
    assert_refused(response, 429, "rate_limit_error", "rpm_limit_exceeded")
    limits = PLANS["one-request"]
    assert response.header("x-ratelimit-limit-requests") == "1"
    assert response.header("x-ratelimit-remaining-requests") == "0"
    assert response.header("x-ratelimit-limit-tokens") == str(limits.tokens)
    assert_waits_long(response)
    assert_limit_object(response, tenant, "model-requests", "requests", limit=1, remaining=0)


def test_tokens_are_used_up(stack: Stack) -> None:
    tenant = stack.tenant("small")
    with stack.in_flight(tenant, max_tokens=900):
        response = stack.ask(tenant, max_tokens=900)
        left = 1000 - hold(900)
        assert_refused(response, 429, "rate_limit_error", "tpm_limit_exceeded")
        assert response.header("x-ratelimit-limit-tokens") == "1000"
        assert response.header("x-ratelimit-remaining-tokens") == str(left)
        # A request under way is in the way, and not the day: soon it has given back what it did not use.
        assert (response.header("retry-after"), response.header("retry-after-ms")) == ("1", "1000")
        assert response.header("x-should-retry") is None
        assert_limit_object(response, tenant, "model-tokens", "tokens", limit=1000, remaining=left)
        assert response.error()["limit"]["held"] == hold(900)
    used = chat.usage_of(chat.body()).total
    stack.settles_to(tenant, used, requests=1)
    assert stack.ask(tenant, max_tokens=900).status == 200, "it fits now"
    stack.settles_to(tenant, 2 * used, requests=2)
    response = stack.ask(tenant, max_tokens=990 - hold(0))
    assert_refused(response, 429, "rate_limit_error", "tpm_limit_exceeded")
    assert_waits_long(response)
    assert_limit_object(response, tenant, "model-tokens", "tokens", limit=1000, remaining=1000 - 2 * used)
    assert response.error()["limit"]["held"] == 0


def test_a_request_that_can_never_fit(stack: Stack) -> None:
    tenant = stack.tenant("tiny")
    response = stack.ask(tenant)
    assert_refused(response, 429, "rate_limit_error", "request_exceeds_limit")
    assert response.header("retry-after") is None
    assert response.header("retry-after-ms") is None
    assert response.header("x-should-retry") == "false"
    assert response.header("x-tokengate-refused-by") == "quota"
    assert_limit_object(response, tenant, "model-tokens", "tokens", limit=10, remaining=10)
    assert stack.upstream.requests == []


def test_a_short_wait_invites_a_retry(stack: Stack) -> None:
    tenant = stack.tenant("one-per-burst")
    # A window may end between two of these; each admits one at most.
    response = eventually(lambda: stack.ask(tenant), lambda answer: answer.status == 429)
    wait_ms = int(response.header("retry-after-ms") or -1)
    assert 0 < wait_ms <= BURST_S * 1000
    assert response.header("retry-after") == str(-(-wait_ms // 1000))
    assert response.header("x-should-retry") is None
    assert response.header("x-ratelimit-limit-requests") == "1"
    assert response.error()["limit"]["name"] == "burst"
    assert response.error()["limit"]["window_ms"] == BURST_S * 1000


def assert_waits_long(response: Response) -> None:
    """A wait of hours: both headers agree, and clients are told not to sit it out."""
    wait_ms = int(response.header("retry-after-ms") or -1)
    assert wait_ms > 60_000
    assert response.header("retry-after") == str(-(-wait_ms // 1000))
    assert response.header("x-should-retry") == "false"
    assert response.header("x-tokengate-refused-by") == "quota"


def assert_limit_object(response: Response, tenant: Tenant, name: str, metric: str, limit: int, remaining: int) -> None:
    told = response.error()["limit"]
    assert set(told) >= {"name", "scope", "metric", "limit", "remaining", "reset_ms", "window_ms", "plan"}
    assert (told["name"], told["metric"]) == (name, metric)
    assert (told["limit"], told["remaining"], told["plan"]) == (limit, remaining, tenant.plan)
    assert told["scope"] == {"tenant": tenant.name, "model": "gpt-4o"}
    assert 0 <= told["reset_ms"] <= told["window_ms"]


def test_problem_json_for_who_accepts_it(stack: Stack) -> None:
    tenant = stack.tenant("one-request")
    stack.ask(tenant)
    response = stack.post([tenant.bearer, ("accept", "application/problem+json")], chat.body())
    assert response.status == 429
    assert response.header("content-type") == "application/problem+json"
    problem = response.json()
    assert problem["status"] == 429
    for member in ("type", "title", "detail"):
        assert isinstance(problem[member], str) and problem[member], member
    assert problem["code"] == "rpm_limit_exceeded"
    assert_waits_long(response)


def test_an_answer_given_before_a_reserve_tells_no_budget(stack: Stack, tenant: Tenant) -> None:
    response = stack.post([tenant.bearer], b"no json")
    assert response.status == 400
    assert [name for name in LIMITER_HEADERS if response.all(name)] == []


def test_the_length_of_an_answer_that_was_not_changed_stays(stack: Stack, tenant: Tenant) -> None:
    response = stack.ask(tenant)
    assert response.header("content-length") == str(len(response.body))
