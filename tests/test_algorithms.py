"""What a caller sees of each algorithm: one plan for each, with a limit that is for this plan alone."""

import json
import math
from collections.abc import Iterator
from typing import Any

import pytest

from harness import chat, http1
from harness.envoy import Config
from harness.http1 import Response
from harness.policy import Plan, Policy, Tenant
from harness.refusals import assert_refused
from harness.stack import Stack, running
from harness.wait import eventually

# What the prompt has, and what the upstream's answer uses in all.
PROMPT = chat.usage_of(chat.body()).prompt
USED = chat.usage_of(chat.body()).total
LEASE_S = 1
LIMITS: dict[str, dict[str, Any]] = {
    "sliding": {"count": "tokens", "algorithm": "sliding_window", "every": "1h", "limit": 100},
    "bucket": {
        "count": "tokens",
        "algorithm": "token_bucket",
        "refill": {"amount": 60, "every": "1h"},
        "capacity": 100,
    },
    "slots": {"algorithm": "concurrency", "lease": f"{LEASE_S}s", "limit": 1},
    "monthly": {"count": "requests", "algorithm": "fixed_window", "calendar": "month", "limit": 1},
    "spender": {"count": "cost", "algorithm": "fixed_window", "calendar": "month", "limit": {"usd": "0.001"}},
    "shadowed": {"count": "requests", "algorithm": "fixed_window", "every": "24h", "limit": 1, "mode": "shadow"},
    "by-user": {"per": ["user"], "count": "requests", "algorithm": "fixed_window", "every": "24h", "limit": 1},
    "by-address": {
        "per": ["ip"],
        "shared": True,
        "count": "requests",
        "algorithm": "fixed_window",
        "every": "24h",
        "limit": 1,
    },
}
PREPAID = {"prepaid": "tokens", "prepaid-cost": "cost"}
PRICES = {"input": "2.50", "output": "10.00"}


def one_limit_for_each_plan(document: dict[str, Any]) -> None:
    for model in document["models"]:
        model["price_usd_per_million"] = PRICES
    for plan, shape in LIMITS.items():
        amount = "capacity" if "capacity" in shape else "limit"
        own = {amount: {plan: shape[amount], "default": "unlimited"}}
        document["limits"].append({"name": plan, "per": ["tenant"], **shape, **own})
    for plan, count in PREPAID.items():
        balance = {"per": ["tenant"], "count": count, "algorithm": "balance", "plans": [plan]}
        document["limits"].append({"name": plan, **balance})


def behind_a_load_balancer(config: Config) -> None:
    manager = config.listener["filter_chains"][0]["filters"][0]["typed_config"]
    manager["xff_num_trusted_hops"] = 1


@pytest.fixture(scope="module")
def shared_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    policy = Policy({plan: Plan() for plan in [*LIMITS, *PREPAID]}, one_limit_for_each_plan)
    folder = tmp_path_factory.mktemp("stack")
    with running(folder, policy=policy, edit=behind_a_load_balancer) as stack:
        yield stack


def settled(stack: Stack, tenant: Tenant) -> None:
    stack.settles_to(tenant, USED, requests=1)


def assert_retry(response: Response, least_ms: int, most_ms: int) -> int:
    """Both headers and the message say the same time."""
    after_ms = int(response.header("retry-after-ms") or -1)
    assert least_ms <= after_ms <= most_ms
    assert response.header("retry-after") == str(math.ceil(after_ms / 1000))
    assert response.header("x-should-retry") == ("false" if after_ms > 60_000 else None)
    wait = f" Please try again in {after_ms // 1000}.{after_ms % 1000:03}s."
    assert response.error()["message"].endswith(wait)
    return after_ms


def assert_limit(response: Response, tenant: Tenant, **members: Any) -> dict[str, Any]:
    limit: dict[str, Any] = response.error()["limit"]
    expected = {"name": tenant.plan, "plan": tenant.plan, "scope": {"tenant": tenant.name}, **members}
    assert {name: limit[name] for name in expected} == expected
    told = {"name", "scope", "metric", "limit", "remaining", "reset_ms", "window_ms", "plan"}
    # Requests are not held: they count.
    assert set(limit) == told | (set() if limit["metric"] == "requests" else {"held"})
    assert response.header("x-tokengate-refused-by") == "quota"
    return limit


def rate_headers(response: Response, kind: str) -> tuple[str | None, str | None]:
    return response.header(f"x-ratelimit-limit-{kind}"), response.header(f"x-ratelimit-remaining-{kind}")


def test_sliding_window(stack: Stack) -> None:
    tenant = stack.tenant("sliding")
    assert stack.ask(tenant).status == 200
    settled(stack, tenant)
    refused = stack.ask(tenant)
    assert_refused(refused, 429, "rate_limit_error", "tpm_limit_exceeded")
    assert_limit(refused, tenant, metric="tokens", limit=100, remaining=100 - USED, window_ms=3_600_000)
    assert rate_headers(refused, "tokens") == ("100", str(100 - USED))
    assert refused.error()["message"].startswith(
        f"Rate limit reached for the limit 'sliding' of tenant {tenant.name} (plan sliding): 100 tokens per 1h, "
        f"{100 - USED} remaining."
    )
    # A charge counts for an hour, and at most a sixtieth longer.
    assert_retry(refused, 3_500_000, 3_660_000)
    assert len(stack.upstream.requests) == 1
    assert stack.ask(tenant, max_tokens=100 - USED - PROMPT).status == 200, "what is left can be had"


def test_token_bucket(stack: Stack) -> None:
    tenant = stack.tenant("bucket")
    assert stack.ask(tenant).status == 200
    settled(stack, tenant)
    refused = stack.ask(tenant, max_tokens=70)
    assert_refused(refused, 429, "rate_limit_error", "tpm_limit_exceeded")
    remaining = assert_limit(refused, tenant, metric="tokens", limit=100)["remaining"]
    # A minute makes a token.
    assert 100 - USED <= remaining <= 100 - USED + 1
    missing_ms = (PROMPT + 70 - (100 - USED)) * 60_000
    assert_retry(refused, missing_ms - 60_000, missing_ms)
    assert rate_headers(refused, "tokens") == ("100", str(remaining))


def test_concurrency(stack: Stack) -> None:
    tenant = stack.tenant("slots")
    renewed = stack.service.store_calls("extend")
    with stack.in_flight(tenant):
        # The slot outlives its lease for as long as the filter renews it, every third of it.
        eventually(lambda: stack.service.store_calls("extend"), lambda calls: calls >= renewed + 5)
        refused = stack.ask(tenant)
    assert_refused(refused, 429, "rate_limit_error", "concurrency_limit_exceeded")
    assert_limit(refused, tenant, limit=1, remaining=0)
    assert (refused.header("retry-after"), refused.header("retry-after-ms")) == ("1", "1000")
    assert refused.header("x-should-retry") is None
    assert refused.error()["message"] == (
        f"Rate limit reached for the limit 'slots' of tenant {tenant.name} (plan slots): 1 requests at a time, "
        "0 remaining. Please try again in 1.000s."
    )
    settled(stack, tenant)
    assert stack.ask(tenant).status == 200, "the slot is free again"


def test_a_slot_of_a_client_that_left_is_free(stack: Stack) -> None:
    tenant, gate = stack.tenant("slots"), stack.upstream.gate()
    stack.upstream.handler = chat.answer(gate=gate)
    connection = stack.open(tenant, chat.body())
    gate.reached(1)
    connection.abort()
    stack.upstream.handler = chat.answer()
    eventually(lambda: stack.ask(tenant).status, lambda status: status == 200)
    gate.open()


def test_a_calendar_window_is_a_quota(stack: Stack) -> None:
    tenant = stack.tenant("monthly")
    assert stack.ask(tenant).status == 200
    refused = stack.ask(tenant)
    assert_refused(refused, 429, "insufficient_quota", "quota_exceeded")
    assert_limit(refused, tenant, metric="requests", limit=1, remaining=0)
    assert_retry(refused, 1, 31 * 86_400_000)
    assert rate_headers(refused, "requests") == ("1", "0")


def test_cost(stack: Stack) -> None:
    tenant = stack.tenant("spender")
    assert stack.ask(tenant).status == 200
    settled(stack, tenant)
    refused = stack.ask(tenant, max_tokens=90)
    assert_refused(refused, 429, "insufficient_quota", "budget_exceeded")
    # Nano-dollars: a token of the prompt costs 2500, one of the output 10000.
    left = 1_000_000 - PROMPT * 2_500 - (USED - PROMPT) * 10_000
    limit = assert_limit(refused, tenant, metric="cost", limit=1_000_000, remaining=left)
    days, dollars = limit["window_ms"] // 86_400_000, f"{left / 1e9:.6f}".rstrip("0")
    assert f"0.001 US dollars per {days}d, {dollars} US dollars remaining." in refused.error()["message"]
    assert_retry(refused, 1, 31 * 86_400_000)
    never = stack.ask(tenant, max_tokens=200)
    assert_refused(never, 429, "rate_limit_error", "request_exceeds_limit")
    assert (never.header("retry-after"), never.header("x-should-retry")) == (None, "false")


@pytest.mark.parametrize(
    ("plan", "code", "metric"),
    [("prepaid", "quota_exceeded", "tokens"), ("prepaid-cost", "budget_exceeded", "cost")],
)
def test_a_balance_without_a_grant(stack: Stack, plan: str, code: str, metric: str) -> None:
    tenant = stack.tenant(plan)
    refused = stack.ask(tenant)
    assert_refused(refused, 429, "insufficient_quota", code)
    assert_limit(refused, tenant, metric=metric, limit=0, remaining=0)
    assert (refused.header("retry-after"), refused.header("retry-after-ms")) == (None, None)
    assert refused.header("x-should-retry") == "false"
    assert "try again" not in refused.error()["message"]
    assert stack.upstream.requests == []


def test_a_shadow_never_refuses(stack: Stack) -> None:
    tenant = stack.tenant("shadowed")
    responses = [stack.ask(tenant) for _ in range(3)]
    assert [response.status for response in responses] == [200, 200, 200]
    assert rate_headers(responses[-1], "requests")[0] == "1000000", "nor is it shown as a limit"
    stack.settles_to(tenant, 3 * USED, requests=3)
    seen = {limit["name"]: limit for limit in stack.service.explain(tenant.name, "gpt-4o")["limits"]}
    assert (seen["shadowed"]["used"], seen["shadowed"]["shadow"]) == (1, True)


def test_a_key_without_a_user_is_a_user(stack: Stack) -> None:
    tenant, other = stack.tenant("by-user"), stack.tenant("by-user")
    assert stack.ask(tenant).status == 200
    refused = stack.ask(tenant)
    assert_refused(refused, 429, "rate_limit_error", "rpm_limit_exceeded")
    scope = {"tenant": tenant.name, "user": f"key:{tenant.key_hash[:8]}"}
    assert_limit(refused, tenant, scope=scope, metric="requests", limit=1, remaining=0)
    assert stack.ask(other).status == 200


def test_an_address_is_the_one_that_the_proxy_trusts(stack: Stack) -> None:
    def ask(forwarded: str) -> Response:
        tenant = stack.tenant("by-address")
        return stack.post([tenant.bearer, ("x-forwarded-for", forwarded)], chat.body())

    assert ask("192.0.2.7").status == 200
    # All tenants share it, and what a client says of itself in front is not asked.
    for forwarded in ("192.0.2.7", "198.51.100.1, 192.0.2.7"):
        refused = ask(forwarded)
        assert_refused(refused, 429, "rate_limit_error", "rpm_limit_exceeded")
        assert refused.error()["limit"]["scope"] == {"ip": "192.0.2.7"}
    assert ask("192.0.2.8").status == 200
    # An IPv6 customer has a whole network.
    assert ask("2001:db8:1:2::1").status == 200
    assert ask("2001:db8:1:2:ffff::9").status == 429
    assert ask("2001:db8:1:3::1").status == 200


def test_listed_requests_count_as_requests(stack: Stack) -> None:
    tenant = stack.tenant("monthly")
    statuses = [
        http1.request(stack.envoy.port, "GET", "/v1/models", [tenant.bearer]).status for _ in range(2)
    ]
    assert statuses == [200, 429]


def test_problem_details_of_a_budget(stack: Stack) -> None:
    tenant = stack.tenant("prepaid")
    response = stack.post([tenant.bearer, ("accept", "application/problem+json")], chat.body())
    assert (response.status, response.header("content-type")) == (429, "application/problem+json")
    problem = json.loads(response.body)
    assert (problem["code"], problem["limit"]["name"]) == ("quota_exceeded", "prepaid")
