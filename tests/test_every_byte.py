"""An answer cut in two at any byte gives the same usage, and the client the same bytes."""

from collections.abc import Iterator
from typing import Any

import pytest

from harness import chat, http1
from harness.policy import Tenant
from harness.stack import FakeStack, running_fake
from harness.upstream import Exchange, Gate, Handler
from harness.wait import becomes

CALLER = Tenant("any", "any")
USAGE = chat.Usage(prompt=21, completion=13)
DELTAS = ("价", "é ", "🙂")
SETTLED = {"input": 21, "cache_read": 0, "cache_write": 0, "output": 13, "reasoning": 0}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeStack]:
    with running_fake(tmp_path_factory.mktemp("every-byte")) as stack:
        yield stack


def stream(line_end: bytes = b"\n") -> tuple[bytes, bytes]:
    """The stream with its usage chunk, and the same without."""
    *before, usage, done = (part.replace(b"\n", line_end) for part in chat.stream_events(DELTAS, USAGE))
    return b"".join([*before, usage, done]), b"".join([*before, done])


USAGE_EVENT = chat.usage_event(USAGE)
WITH_USAGE, WITHOUT_USAGE = stream()
WITH_USAGE_CRLF, WITHOUT_USAGE_CRLF = stream(b"\r\n")
JSON = chat.completion(DELTAS, USAGE)

CASES: dict[str, tuple[dict[str, Any], bytes, bytes]] = {
    "hidden": ({"stream": True}, WITH_USAGE, WITHOUT_USAGE),
    "hidden, CRLF": ({"stream": True}, WITH_USAGE_CRLF, WITHOUT_USAGE_CRLF),
    "asked for": ({"stream": True, "stream_options": {"include_usage": True}}, WITH_USAGE, WITH_USAGE),
    "json": ({}, JSON, JSON),
}


@pytest.mark.parametrize(("members", "sent", "expected"), CASES.values(), ids=CASES)
def test_cut_anywhere(stack: FakeStack, members: dict[str, Any], sent: bytes, expected: bytes) -> None:
    stack.quota.reset()
    request = http1.encode("POST", chat.PATH, [CALLER.bearer], chat.encode(chat.body(**members)))
    client = http1.Connection(stack.envoy.port)
    positions = range(1, len(sent))
    wrong = {}
    for cut in positions:
        gate = stack.upstream.gate()
        stack.upstream.handler = in_two_parts(sent, cut, gate)
        client.send(request)
        gate.reached(1)
        # Envoy hands every read through the filters at once: once the first part is counted, it is through.
        becomes(stack.envoy.read_from_upstream, stack.upstream.sent_bytes)
        head = client.head()
        pieces = client.pieces(head)
        body = b""
        while len(body) < len(delivered_at_once(sent[:cut], expected)):
            body += next(pieces)
        gate.open()
        body += b"".join(pieces)
        if body != expected:
            wrong[cut] = body
    client.close()
    assert not wrong, f"{len(wrong)} cuts changed the bytes, the first at {next(iter(wrong.items()))}"

    becomes(lambda: len(stack.quota.settles), len(positions))
    for cut, reserve in zip(positions, stack.quota.reserves, strict=True):
        settles = [(item["outcome"], item["usage"]) for item in stack.quota.settles_of(reserve)]
        assert settles == [("used", SETTLED)], f"cut at {cut}"


def delivered_at_once(part: bytes, expected: bytes) -> bytes:
    """What a client must see of the first part before there is a second one."""
    if expected.startswith(part) and USAGE_EVENT in expected:
        return part
    for blank in (b"\r\n\r\n", b"\n\n"):
        if blank in part:
            complete = part[: part.rindex(blank) + len(blank)]
            return complete.replace(USAGE_EVENT.replace(b"\n\n", blank), b"")
    return part if expected == JSON else b""


def test_a_byte_at_a_time(stack: FakeStack) -> None:
    """Every cut at once. No barrier: TCP may join some bytes, the result is the same."""
    stack.quota.reset()
    members, sent, expected = CASES["hidden"]

    async def drip(exchange: Exchange) -> None:
        await exchange.head(200, chat.EVENT_STREAM)
        for at in range(len(sent)):
            await exchange.chunk(sent[at : at + 1])
        await exchange.finish()

    stack.upstream.handler = drip
    assert stack.post([CALLER.bearer], chat.body(**members)).body == expected
    becomes(lambda: len(stack.quota.settles), 1)
    assert (stack.quota.settles[0]["outcome"], stack.quota.settles[0]["usage"]) == ("used", SETTLED)


def in_two_parts(data: bytes, cut: int, gate: Gate) -> Handler:
    kind = chat.EVENT_STREAM if data.startswith(b"data:") else chat.JSON

    async def handler(exchange: Exchange) -> None:
        await exchange.head(200, kind)
        await exchange.chunk(data[:cut])
        await gate.wait()
        await exchange.chunk(data[cut:])
        await exchange.finish()

    return handler
