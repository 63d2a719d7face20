"""Streams that run over what was held for them: more is held in steps, or the stream ends."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from openai import APIError

from harness import chat
from harness.http1 import Connection, Response
from harness.http2 import Http2, StreamReset
from harness.oracle import oracle
from harness.policy import Plan, Policy, Tenant
from harness.stack import Stack, running
from harness.upstream import Exchange, Gate, Handler
from harness.wait import becomes

PROMPT = oracle().prompt(chat.body()["messages"])
# What the model holds for a client that gives no limit.
HELD = 200
TEN = " a b c d e f g h i j"


@pytest.fixture(scope="module")
def shared_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    policy = Policy({"roomy": Plan(), "tight": Plan(tokens=PROMPT + HELD + 100)})
    with running(tmp_path_factory.mktemp("stack"), {"overrun": "stop"}, policy=policy) as stack:
        yield stack


@pytest.fixture(scope="module")
def shared_allowing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(tmp_path_factory.mktemp("allowing")) as stack:
        yield stack


def streams(before: int, gate: Gate, after: int, ends: bool) -> Handler:
    """Tens of tokens, a pause, more of them; then the usage and the end, or nothing until the proxy hangs up."""

    async def handler(exchange: Exchange) -> None:
        await exchange.head(200, chat.EVENT_STREAM)
        for _ in range(before):
            await exchange.chunk(chat.delta_event(TEN))
        await gate.wait()
        for _ in range(after):
            await exchange.chunk(chat.delta_event(TEN))
        if not ends:
            await exchange.gone()
            return
        await exchange.chunk(chat.usage_event(chat.Usage(PROMPT, (before + after) * 10)) + chat.DONE)
        await exchange.finish()

    return handler


def open_stream(stack: Stack, tenant: Tenant) -> Connection:
    body = chat.body(stream=True)
    del body["max_tokens"]
    return stack.open(tenant, body)


def answers(stack: Stack, status: str) -> int:
    """Extensions that were answered so, by every Envoy of the process."""
    name = f"wasmcustom.tokengate_extend_answers_status={status}"
    return stack.envoy.stats(f"^{name}$").get(name, 0)


def read_until_cut(connection: Connection) -> Response:
    """An answer that has no end."""
    response = connection.head()
    assert response.status == 200
    with pytest.raises(ConnectionError):
        for piece in connection.pieces(response):
            response.body += piece
    connection.close()
    return response


def test_ten_are_ten() -> None:
    assert oracle().text(TEN * 7, "gpt-4o") == 70


def test_a_stream_that_fits_is_held_further(stack: Stack, tenant: Tenant) -> None:
    gate = stack.upstream.gate()
    stack.upstream.handler = streams(18, gate, 27, ends=True)
    connection = open_stream(stack, tenant)
    # At nine tenths of the hold a step of 256 was asked for.
    stack.holds(tenant, PROMPT + HELD + 256)
    gate.open()
    assert connection.response().body.endswith(chat.DONE)
    connection.close()
    stack.settles_to(tenant, PROMPT + 450, requests=1)


def test_a_refused_stream_ends_with_an_error_and_is_charged_what_was_delivered(stack: Stack) -> None:
    tenant, before, gate = stack.tenant("tight"), answers(stack, "deny"), stack.upstream.gate()
    stack.upstream.handler = streams(18, gate, 3, ends=False)
    connection = open_stream(stack, tenant)
    becomes(lambda: answers(stack, "deny"), before + 1)
    stack.holds(tenant, PROMPT + HELD)
    gate.open()
    response = read_until_cut(connection)
    assert_stopped(response.body)
    stack.settles_to(tenant, PROMPT + HELD, requests=1)
    [entry] = stack.envoy.logged(response)
    assert (entry["details"], entry["flags"], entry["status"]) == ("via_upstream", "-", 200)
    assert (entry["decision"], entry["outcome"], entry["output_tokens"]) == ("stopped", "estimated", str(HELD))
    assert stack.envoy.stats("tokengate_streams_stopped")["wasmcustom.tokengate_streams_stopped_model=gpt-4o"] > 0


def assert_stopped(body: bytes) -> None:
    """What is held was delivered, and then no more."""
    events = body.split(b"\n\n")
    assert events.pop() == b""
    assert [event + b"\n\n" for event in events[:-1]] == [chat.delta_event(TEN)] * (HELD // 10)
    error = json.loads(events[-1].removeprefix(b"data: "))["error"]
    assert (error["type"], error["code"], error["param"]) == ("rate_limit_error", "output_stopped", None)


def test_an_http2_stream_is_reset_after_its_error(stack: Stack) -> None:
    tenant, before, gate = stack.tenant("tight"), answers(stack, "deny"), stack.upstream.gate()
    stack.upstream.handler = streams(18, gate, 3, ends=False)
    body = chat.body(stream=True)
    del body["max_tokens"]
    client = Http2(stack.envoy.port)
    stream = client.start("POST", chat.PATH, [tenant.bearer])
    client.data(stream, [chat.encode(body)], end=True)
    becomes(lambda: answers(stack, "deny"), before + 1)
    gate.open()
    with pytest.raises(StreamReset):
        client.response()
    assert_stopped(client.head().body)
    client.close()
    stack.settles_to(tenant, PROMPT + HELD, requests=1)


def test_the_sdk_raises_what_it_is_told(stack: Stack) -> None:
    tenant, before, gate = stack.tenant("tight"), answers(stack, "deny"), stack.upstream.gate()
    stack.upstream.handler = streams(18, gate, 3, ends=False)
    text = ""
    messages: Any = chat.body()["messages"]
    with pytest.raises(APIError, match="budget does not allow") as raised:
        for chunk in stack.openai(tenant).chat.completions.create(model="gpt-4o", messages=messages, stream=True):
            text += chunk.choices[0].delta.content or ""
            if text == TEN * 18:
                becomes(lambda: answers(stack, "deny"), before + 1)
                gate.open()
    assert (raised.value.code, text) == ("output_stopped", TEN * 20)


def test_a_client_that_gave_a_limit_is_held_to_it(stack: Stack, tenant: Tenant) -> None:
    """The provider ends by itself where the hold ends, so that nothing is asked for."""
    asked = answers(stack, "allow") + answers(stack, "deny")
    stack.upstream.handler = chat.answer([TEN] * 5)
    response = stack.ask(tenant, stream=True, max_tokens=50)
    assert response.body.endswith(chat.DONE)
    stack.settles_to(tenant, PROMPT + 50, requests=1)
    assert answers(stack, "allow") + answers(stack, "deny") == asked


def test_by_default_the_excess_is_charged(shared_allowing: Stack) -> None:
    stack, tenant = shared_allowing, shared_allowing.tenant()
    gate = stack.upstream.gate()
    stack.upstream.handler = streams(30, gate, 15, ends=True)
    connection = open_stream(stack, tenant)
    connection.read_until(chat.delta_event(TEN) * 2)
    stack.holds(tenant, PROMPT + HELD)
    gate.open()
    assert connection.response().body.endswith(chat.DONE)
    connection.close()
    stack.settles_to(tenant, PROMPT + 450, requests=1)
    assert answers(stack, "allow") == 0
