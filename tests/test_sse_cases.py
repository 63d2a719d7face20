"""Streams as servers really send them, whole and a byte at a time: each is charged, and passes as it is."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from harness import chat
from harness.oracle import oracle
from harness.policy import Tenant
from harness.stack import Stack
from harness.upstream import Exchange, Handler

ASKED = {"stream": True, "stream_options": {"include_usage": True}}


def usage(prompt: int, completion: int) -> bytes:
    counts = b'"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d'
    return b'"usage":{%s}' % (counts % (prompt, completion, prompt + completion))


def data(members: bytes, end: bytes = b"\n\n") -> bytes:
    return b"data: {%s}" % members + end


def text(content: str, more: bytes = b"") -> bytes:
    return data(b'"choices":[{"index":0,"delta":{"content":%s}}]%s' % (json.dumps(content).encode(), more))


def estimate(content: str) -> int:
    return oracle().prompt(chat.body()["messages"]) + oracle().text(content)


DONE = chat.DONE
EMPTY = b'"choices":[],'
SPELT = '"usage":{"prompt_tokens":1}'
MEGABYTES = 3 << 20
CASES: dict[str, tuple[bytes, Callable[[], int] | int]] = {
    "no space after the colon": (b"data:{" + EMPTY + usage(8, 4) + b"}\n\ndata:[DONE]\n\n", 12),
    "two spaces": (b"data:  {" + EMPTY + usage(8, 4) + b"}\n\n", 12),
    "CRLF": (data(EMPTY + usage(3, 1), b"\r\n\r\n") + b"data: [DONE]\r\n\r\n", 4),
    "CR": (data(EMPTY + usage(3, 1), b"\r\r") + b"data: [DONE]\r\r", 4),
    "mixed ends": (data(EMPTY + usage(3, 1), b"\n\r\n") + b"data: [DONE]\n\n", 4),
    "a byte order mark": (b"\xef\xbb\xbf" + data(EMPTY + usage(3, 1)), 4),
    "no blank line at the end": (text("a") + data(EMPTY + usage(7, 6), b""), 13),
    "one line end at the end": (text("a") + data(EMPTY + usage(7, 6), b"\n"), 13),
    "events without data": (b"retry: 3000\n\nid: 7\n\n: ping\n\ndata:\n\ndata\n\n" + data(EMPTY + usage(2, 2)), 4),
    "comments": (b": still working\n\n: still working\n\n" + data(EMPTY + usage(4, 3)), 7),
    "a comment of a megabyte": (b": " + b"x" * (1 << 20) + b"\n\n" + data(EMPTY + usage(4, 3)), 7),
    "fields of other names": (b"event: message\nid: 1\nfoo: bar\n" + data(EMPTY + usage(4, 3)), 7),
    "several data lines": (b'data: {"choices":[],\ndata: ' + usage(5, 3) + b"}\n\n", 8),
    "colons within": (text("key: value: more") + b'data: {"choices":[], ' + usage(6, 4) + b"}\n\n", 10),
    "events behind the usage": (
        data(EMPTY + usage(20, 1)) + b': ping\n\ndata: {"choices":[],"x_cost":0.01}\n\n' + DONE,
        21,
    ),
    "usage behind the end mark": (text("a") + DONE + data(EMPTY + usage(20, 1)), 21),
    "no end mark": (text("a") + data(EMPTY + usage(20, 1)), 21),
    "a very large event before the usage": (
        data(b'"choices":[{"index":0,"delta":{"audio":{"data":"' + b"A" * MEGABYTES + b'"}}}]')
        + data(EMPTY + usage(50, 20)),
        70,
    ),
    "null usage, empty usage, zero usage, usage": (
        b"".join(text("a", b',"usage":null') for _ in range(3))
        + text("a", b',"usage":{}')
        + text("a", b"," + usage(0, 0))
        + data(EMPTY + usage(20, 10))
        + DONE,
        30,
    ),
    "a prompt filter's event first": (
        data(b'"id":"","model":"","choices":[],"prompt_filter_results":[{"prompt_index":0}]')
        + text("a")
        + data(EMPTY + usage(6, 2)),
        8,
    ),
    "usage with the finish reason": (
        data(b'"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],' + usage(6, 2)) + DONE,
        8,
    ),
    "usage before the finish reason": (
        data(EMPTY + usage(6, 2)) + data(b'"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]') + DONE,
        8,
    ),
    "running totals": (b"".join(text("a", b"," + usage(10, n)) for n in (1, 2, 3, 4)) + DONE, 14),
    "usage far above the limit": (text("a") + data(EMPTY + usage(10, 19503)), 19513),
    "no usage at all": (
        b"".join(text("word ", b',"usage":null') for _ in range(20)) + DONE,
        lambda: estimate("word " * 20),
    ),
    "usage of another kind": (text("a") + data(EMPTY + b'"usage":"12"') + DONE, lambda: estimate("a")),
    "negative usage": (text("a") + data(EMPTY + usage(-5, -7)) + DONE, lambda: estimate("a")),
    "usage within another member": (text("a") + data(EMPTY + b'"x":{%s}' % usage(1, 1)) + DONE, lambda: estimate("a")),
    "usage spelt in the text": (text(SPELT) + DONE, lambda: estimate(SPELT)),
    "broken events between": (text("Hel") + b"data: {nonsense\n\n" + text("lo") + DONE, lambda: estimate("Hello")),
    "an error with a number": (data(b'"error":{"message":"lost","code":500}'), 0),
    "an error in its own event": (b"event: error\n" + data(b'"error":{"message":"lost"}'), 0),
    "an error as text": (data(b'"error":"lost"'), 0),
    "an error after the role": (
        data(b'"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]')
        + data(b'"error":{"message":"lost"}'),
        0,
    ),
    "a null error": (text("Hel", b',"error":null') + DONE, lambda: estimate("Hel")),
    "an error that is none in each event": (
        b"".join(text("word ", b',"error":""') for _ in range(40)) + DONE,
        lambda: estimate("word " * 40),
    ),
    "an empty error": (text("Hel") + data(b'"error":{}') + text("lo") + DONE, lambda: estimate("Hello")),
    "an error of a first attempt": (data(b'"error":{"message":"lost"}') + text("Hel") + DONE, lambda: estimate("Hel")),
    "an error in the choice": (
        data(b'"choices":[{"index":0,"error":{"code":502,"message":"lost"},"finish_reason":"error"}]') + DONE,
        0,
    ),
    "an error beside null choices": (data(b'"choices":null,"error_type":"overloaded","error_message":"lost"'), 0),
    "an event named error": (b'event: error\ndata: {"message":"lost","code":500}\n\n', 0),
    "an event named error, then text": (
        b'event: error\ndata: {"message":"lost","code":500}\n\n' + text("Hel") + DONE,
        lambda: estimate("Hel"),
    ),
    "one line end between lines": (
        b"".join(text("word ").rstrip(b"\n") + b"\n" for _ in range(40))
        + data(EMPTY + usage(9, 40), b"\n") + DONE,
        49,
    ),
    "one line end between lines, and no usage": (
        b"".join(text("word ").rstrip(b"\n") + b"\n" for _ in range(40)) + DONE,
        lambda: estimate("word " * 40),
    ),
    "usage in the choice": (data(b'"choices":[{"index":0,"delta":{},%s}]' % usage(6, 2)) + DONE, 8),
    "usage by another name": (data(b'"x_groq":{"id":"x",%s}' % usage(6, 2)) + DONE, 8),
    "input and output": (data(EMPTY + b'"usage":{"input_tokens":6,"output_tokens":2}') + DONE, 8),
    "usage in halves": (
        data(EMPTY + b'"usage":{"prompt_tokens":6}') + text("a") + data(EMPTY + b'"usage":{"completion_tokens":2}') + DONE,
        8,
    ),
    "zeros behind the usage": (data(EMPTY + usage(6, 2)) + data(EMPTY + usage(0, 0)) + DONE, 8),
    "literals that are no JSON": (
        data(EMPTY + b'"x":[NaN,-Infinity],' + b'"usage":{"prompt_tokens":6,"completion_tokens":2,"cost":Infinity}') + DONE,
        8,
    ),
    "reasoning in the total only": (
        data(EMPTY + b'"usage":{"prompt_tokens":6,"completion_tokens":2,"total_tokens":30}') + DONE,
        30,
    ),
    "usage that is absurd": (text("a") + data(EMPTY + usage(1 << 40, 1)) + DONE, lambda: estimate("a")),
    "reasoning under two names": (
        data(b'"choices":[{"index":0,"delta":{"reasoning":"so it is","reasoning_content":"so it is"}}]') + DONE,
        lambda: estimate("so it is"),
    ),
    "a custom tool's input": (
        data(b'"choices":[{"index":0,"delta":{"tool_calls":[{"id":"a","type":"custom","custom":{"input":"so it is"}}]}}]')
        + DONE,
        lambda: estimate("so it is"),
    ),
    "text that repeats all text so far": (
        b"".join(text("word " * n) for n in range(1, 40)) + DONE,
        lambda: estimate("") + chat.body()["max_tokens"],
    ),
    "output that is no text": (
        text("a") + data(b'"choices":[{"index":0,"delta":{"audio":{"data":"QUJD"}}}]') + DONE,
        lambda: estimate("") + chat.body()["max_tokens"],
    ),
    "an error and usage": (data(b'"error":{"message":"lost"}') + data(EMPTY + usage(9, 0)), 9),
    "an error after output": (text("Hel") + data(b'"error":{"message":"lost"}'), lambda: estimate("Hel")),
    "nothing but the end mark": (DONE, lambda: estimate("")),
    "nothing but comments": (b": a\n\n: b\n\n", lambda: estimate("")),
    "no event at all": (b"", lambda: estimate("")),
}
SMALL = 20_000


def in_pieces(whole: bytes, size: int) -> Handler:
    async def handler(exchange: Exchange) -> None:
        await exchange.head(200, chat.EVENT_STREAM)
        for at in range(0, len(whole), size):
            await exchange.chunk(whole[at : at + size])
        await exchange.finish()

    return handler


@pytest.mark.parametrize("size", [1, 1 << 30], ids=["a byte at a time", "whole"])
@pytest.mark.parametrize(("sent", "tokens"), CASES.values(), ids=CASES)
def test_charged_and_passed(
    stack: Stack, tenant: Tenant, sent: bytes, tokens: Callable[[], int] | int, size: int
) -> None:
    if len(sent) > SMALL:
        size = max(size, 1000)
    stack.upstream.handler = in_pieces(sent, size)
    response = stack.ask(tenant, **ASKED)
    assert (response.status, response.body) == (200, sent), "who asked for usage gets the stream as it is"
    stack.settles_to(tenant, tokens if isinstance(tokens, int) else tokens(), requests=1)


def test_a_usage_event_that_repeats_the_whole_output(stack: Stack, tenant: Tenant) -> None:
    """Two megabytes: its usage is found, or the text delivered before it stands in; never nothing, never more."""
    sent = text("Hel") + data(b'"choices":[],"output":"' + b"A" * (2 << 20) + b'",' + usage(50, 20))
    stack.upstream.handler = chat.raw_stream(sent)
    assert stack.ask(tenant, **ASKED).body == sent
    stack.settles_to(tenant, 70, requests=1)


@pytest.mark.parametrize("content_type", ["application/json", "text/plain", "application/x-ndjson", None])
@pytest.mark.parametrize("stream", [True, False])
def test_what_an_answer_is_is_told_by_its_bytes(
    stack: Stack, tenant: Tenant, content_type: str | None, stream: bool
) -> None:
    whole = text("Hel") + data(EMPTY + usage(5, 4))

    async def handler(exchange: Exchange) -> None:
        headers: list[tuple[str, bytes | str]] = [("content-type", content_type)] if content_type else []
        await exchange.reply(200, whole, headers)

    stack.upstream.handler = handler
    members: dict[str, Any] = ASKED if stream else {}
    assert stack.ask(tenant, **members).body == whole
    stack.settles_to(tenant, 9, requests=1)


def test_json_for_a_request_that_asked_to_stream(stack: Stack, tenant: Tenant) -> None:
    stack.upstream.handler = chat.raw_json(chat.completion("x", chat.Usage(5, 4)))
    assert stack.ask(tenant, stream=True).status == 200
    stack.settles_to(tenant, 9, requests=1)


def line(content: str) -> bytes:
    return text(content).removesuffix(b"\n")


HIDDEN: dict[str, tuple[bytes, bytes]] = {
    "no choices": (data(usage(6, 2)), b""),
    "null choices": (data(b'"choices":null,' + usage(6, 2)), b""),
    "members that a client needs": (
        data(EMPTY + usage(6, 2) + b',"citations":["x"]'),
        data(b'"choices":[],"citations":["x"]'),
    ),
    "usage first": (data(usage(6, 2) + b',"choices":[],"timings":{"x":1}'), data(b'"choices":[],"timings":{"x":1}')),
    "one line end between lines": (line("b") + data(EMPTY + usage(6, 2), b"\n"), line("b")),
}


@pytest.mark.parametrize("size", [1, 1 << 30], ids=["a byte at a time", "whole"])
@pytest.mark.parametrize(("sent", "left"), HIDDEN.values(), ids=HIDDEN)
def test_what_only_we_asked_for_is_taken_out(
    stack: Stack, tenant: Tenant, sent: bytes, left: bytes, size: int
) -> None:
    stack.upstream.handler = in_pieces(text("a") + sent + DONE, size)
    assert stack.ask(tenant, stream=True).body == text("a") + left + DONE
    stack.settles_to(tenant, 8, requests=1)
