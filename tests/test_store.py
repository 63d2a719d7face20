"""A real Redis: what is in it, and what happens while it does not answer."""

from collections.abc import Iterator

import pytest
from redis import Redis as Client

from harness import chat
from harness.refusals import assert_refused
from harness.stack import Stack, running
from harness.wait import eventually


@pytest.fixture(scope="module")
def shared_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(tmp_path_factory.mktemp("store"), {"quota": {"timeout_ms": 500}}, redis=True) as stack:
        yield stack


def test_neither_keys_nor_tenants_nor_prompts_are_in_the_store(stack: Stack) -> None:
    tenant, redis = stack.tenant(), stack.redis
    assert redis
    with stack.in_flight(tenant), Client.from_url(redis.url) as client:
        stored = {key: client.dump(key) or b"" for key in client.scan_iter()}
    assert stored
    for key, value in stored.items():
        for secret in (tenant.key, tenant.name, tenant.key_hash, chat.CANARY):
            assert secret.encode() not in key + value, key


def test_requests_are_refused_while_the_store_is_away_and_nothing_stays_held(stack: Stack) -> None:
    tenant, redis = stack.tenant(), stack.redis
    assert redis
    assert stack.ask(tenant).status == 200
    redis.freeze()
    try:
        for _ in range(3):
            response = stack.ask(tenant)
            assert_refused(response, 503, "api_error", "quota_unavailable")
            assert response.header("retry-after") == "1"
    finally:
        redis.thaw()
    assert len(stack.upstream.requests) == 1
    eventually(lambda: stack.ask(tenant).status, lambda status: status == 200, 10)
    # Redis ran what it was sent while frozen: those holds have been closed.
    served = len(stack.upstream.requests)
    stack.settles_to(tenant, served * chat.usage_of(chat.body()).total, served, timeout=20)


def test_what_was_used_while_the_store_was_away_is_settled_when_it_is_back(stack: Stack) -> None:
    tenant, redis = stack.tenant(), stack.redis
    assert redis
    with stack.in_flight(tenant):
        stack.holds(tenant, chat.usage_of(chat.body()).prompt + 50)
        redis.freeze()
    # The answer is through; its settle waits.
    redis.thaw()
    stack.settles_to(tenant, chat.usage_of(chat.body()).total, requests=1, timeout=20)
