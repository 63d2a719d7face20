"""Usage events are delivered though the instance that settled is gone, and agree with what the limits count."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
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


def events_of(file: Path) -> list[dict[str, Any]]:
    """Of whole lines: the last may be on its way."""
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text().splitlines(keepends=True) if line.endswith("\n")]


def folder(of: Path) -> Path:
    """Of the second instance."""
    (of / "next").mkdir()
    return of / "next"


@pytest.fixture
def stack(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Stack]:
    """Each test kills the service of a stack of its own. `param` is where that one's events go."""
    sink = request.param(tmp_path)
    with running(tmp_path, redis=True, service_options=["--events", sink, *EVENTS]) as stack:
        yield stack


@pytest.mark.parametrize("stack", [lambda _: f"http://127.0.0.1:{free_port()}/"], ids=["no sink"], indirect=True)
def test_what_a_killed_instance_could_not_deliver(stack: Stack, tmp_path: Path) -> None:
    tenant, redis = stack.tenant(), stack.redis
    assert redis
    for length in range(1, 6):
        assert stack.ask(tenant, max_tokens=10 * length).status == 200
    spent = stack.closed_bucket(tenant)
    assert spent.requests == 5
    stack.service.kill()

    file = tmp_path / "usage.jsonl"
    next_one = Service(stack.service.policy, folder(tmp_path), redis.url, ["--events", f"file:{file}", *EVENTS])
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


@pytest.mark.parametrize("stack", [lambda folder: f"file:{folder / 'first.jsonl'}"], ids=["a file"], indirect=True)
def test_a_ledger_of_the_events_agrees_with_the_bucket_when_an_instance_is_killed(stack: Stack, tmp_path: Path) -> None:
    """Under load, between any two steps of its work. Who calls meanwhile is refused or served, and pays once."""
    tenant, redis = stack.tenant(), stack.redis
    assert redis
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    with ThreadPoolExecutor(6) as callers:
        before = [callers.submit(stack.ask, tenant) for _ in range(60)]
        eventually(lambda: len(stack.upstream.requests), lambda served: served >= 20, 20)
        stack.service.kill()
        next_one = Service(stack.service.policy, folder(tmp_path), redis.url, ["--events", f"file:{second}", *EVENTS])
        try:
            stack.proxy.turn_to(next_one.port)
            statuses = {future.result().status for future in before}
            eventually(lambda: stack.ask(tenant).status, lambda status: status == 200, 20)
            bucket = eventually(lambda: next_one.bucket(tenant.name), lambda bucket: bucket.open_holds == 0, 20)
            with Client.from_url(redis.url) as client:
                becomes(lambda: list(client.scan_iter(match="*:e")), [], 20)
            # By id, as whoever keeps a ledger has to: what was written and not yet noted as delivered comes twice.
            ledger = {event["id"]: event for event in events_of(first) + events_of(second)}
            assert sum(event["charged_tokens"] for event in ledger.values()) == bucket.tokens
            served = len(stack.upstream.requests)
            assert bucket.tokens == served * chat.usage_of(chat.body()).total and served >= 20
            assert statuses <= {200, 503}
        finally:
            next_one.stop()
