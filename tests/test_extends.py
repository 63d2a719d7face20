"""Extensions as the quota service sees them, and what the filter makes of its answers."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from harness import chat
from harness.http1 import Connection
from harness.policy import Tenant
from harness.quota import Answer, Reply, Reset, allow
from harness.stack import FakeStack, running_fake
from harness.upstream import Exchange, Gate, Handler
from harness.wait import eventually

CALLER = Tenant("any", "any")
TEN = " a b c d e f g h i j"


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeStack]:
    with running_fake(tmp_path_factory.mktemp("quota"), {"overrun": "stop"}) as stack:
        yield stack


@pytest.fixture
def stack(started: FakeStack) -> Iterator[FakeStack]:
    started.upstream.reset()
    started.quota.reset()
    yield started
    started.check()


def streams(gate: Gate, tens: int = 19) -> Handler:
    async def handler(exchange: Exchange) -> None:
        await exchange.head(200, chat.EVENT_STREAM)
        for _ in range(tens):
            await exchange.chunk(chat.delta_event(TEN))
        await gate.wait()
        await exchange.chunk(chat.usage_event(chat.Usage(20, tens * 10)) + chat.DONE)
        await exchange.finish()

    return handler


def open_stream(stack: FakeStack) -> Connection:
    body = chat.body(stream=True)
    del body["max_tokens"]
    return stack.open(CALLER, body)


def seen(stack: FakeStack, count: int) -> list[dict[str, Any]]:
    return eventually(lambda: list(stack.quota.extends), lambda items: len(items) >= count)


def finish(gate: Gate, connection: Connection) -> None:
    gate.open()
    response = connection.response()
    connection.close()
    assert response.status == 200
    assert response.body.endswith(chat.DONE)


def test_what_an_extension_says(stack: FakeStack) -> None:
    gate = stack.upstream.gate()
    stack.upstream.handler = streams(gate)
    connection = open_stream(stack)
    [item] = seen(stack, 1)
    assert item == {
        "id": stack.quota.reserves[0]["id"],
        "account": "account-1",
        "hold_output_tokens": 200 + 256,
        "lease": False,
    }
    finish(gate, connection)


def test_no_answer_is_no_refusal(stack: FakeStack) -> None:
    """The same total comes again, and the stream goes on."""
    failures: list[Answer] = [Reset(), Reply(503), Reply(200, b"{}"), Reply(200, b'{"results":[],"policy_version":""}')]
    left = list(failures)
    stack.quota.on_extend = lambda item: left.pop(0) if left else "allow"
    gate = stack.upstream.gate()
    stack.upstream.handler = streams(gate)
    connection = open_stream(stack)
    items = seen(stack, len(failures) + 1)
    assert {item["hold_output_tokens"] for item in items} == {456}
    finish(gate, connection)


@pytest.mark.parametrize("answer", ["unknown", Reply(404), Reply(400)], ids=["unknown", "404", "400"])
def test_who_knows_of_no_hold_ends_no_stream(stack: FakeStack, answer: str | Answer) -> None:
    stack.quota.on_extend = lambda item: answer
    gate = stack.upstream.gate()
    stack.upstream.handler = streams(gate, 40)
    connection = open_stream(stack)
    seen(stack, 1)
    finish(gate, connection)
    eventually(lambda: stack.quota.settles_of(stack.quota.reserves[0]), bool)
    assert len(stack.quota.extends) == 1


def with_lease(reserve: dict[str, Any]) -> Answer:
    answer = json.loads(allow(reserve).body)  # type: ignore[union-attr]
    answer["grant"]["lease_ms"] = 300
    return Reply(body=json.dumps(answer).encode())


def test_a_lease_is_renewed_until_the_request_ends(stack: FakeStack) -> None:
    stack.quota.on_reserve = with_lease
    gate = stack.upstream.gate()
    stack.upstream.handler = chat.answer(gate=gate)
    connection = stack.open(CALLER, chat.body())
    items = seen(stack, 3)
    renewal = {"id": stack.quota.reserves[0]["id"], "account": "account-1", "lease": True}
    assert items == [renewal] * len(items)
    finish_json(gate, connection)
    eventually(lambda: stack.quota.settles_of(stack.quota.reserves[0]), bool)
    count = len(stack.quota.extends)
    # Another request is renewed three times, and the first is not any more.
    gate = stack.upstream.gate()
    stack.upstream.handler = chat.answer(gate=gate)
    connection = stack.open(CALLER, chat.body())
    later = seen(stack, count + 3)[count:]
    assert {item["id"] for item in later} == {stack.quota.reserves[1]["id"]}
    finish_json(gate, connection)


def finish_json(gate: Gate, connection: Connection) -> None:
    gate.open()
    assert connection.response().status == 200
    connection.close()
