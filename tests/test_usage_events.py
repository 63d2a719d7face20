"""Usage events are delivered though the instance that settled is gone, and agree with what the limits count."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis as Client

from harness import chat
from harness.ports import free_port
from harness.service import Service
from harness.stack import Stack, running
from harness.wait import becomes, eventually

KEY = "a-secret-for-pseudonyms"
# What waits for half a second is taken over: soon, but nobody here is slow to deliver.
EVENTS = ["--events-key", KEY, "--sweep-ms", "250"]


@pytest.fixture(scope="module")
def shared_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Its events find no sink."""
    away = ["--events", f"http://127.0.0.1:{free_port()}/", *EVENTS]
    with running(tmp_path_factory.mktemp("events"), redis=True, service_options=away) as stack:
        yield stack


def events_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_what_a_killed_instance_could_not_deliver(stack: Stack, tmp_path: Path) -> None:
    tenant, redis = stack.tenant(), stack.redis
    assert redis
    for length in range(1, 6):
        assert stack.ask(tenant, max_tokens=10 * length).status == 200
    spent = stack.closed_bucket(tenant)
    assert spent.requests == 5
    stack.service.kill()

    file = tmp_path / "usage.jsonl"
    next_one = Service(stack.service.policy, tmp_path, redis.url, ["--events", f"file:{file}", *EVENTS])
    try:
        events = eventually(lambda: events_of(file), lambda events: len(events) >= 5, 20)
        # Delivered is delivered: the store keeps nothing, and nothing comes again.
        with Client.from_url(redis.url) as client:
            becomes(lambda: list(client.scan_iter(match="*:e")), [])
        assert len({event["id"] for event in events}) == 5
        assert sum(event["charged_tokens"] for event in events) == spent.tokens
        usage = chat.usage_of(chat.body())
        for event in events:
            assert (event["status"], event["outcome"], event["model"]) == ("settled", "used", "gpt-4o")
            assert event["usage"]["input"] == usage.prompt
            assert event["settled_at"] >= event["reserved_at"] > 0
        for secret in (tenant.key, tenant.name, tenant.key_hash, KEY, chat.CANARY):
            assert secret not in file.read_text() + next_one.output()
    finally:
        next_one.stop()
    assert events_of(file) == events
