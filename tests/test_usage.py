"""Where usage is found in an answer, in which shapes, and what stands in for it when it is not there."""

import gzip
from typing import Any

import pytest

from harness import chat
from harness.oracle import oracle
from harness.policy import Tenant
from harness.stack import Stack
from harness.upstream import Exchange
from harness.wait import eventually

LIMIT = chat.body()["max_tokens"]


def prompt() -> int:
    return oracle().prompt(chat.body()["messages"])


def estimate(text: str) -> int:
    return prompt() + oracle().text(text)


@pytest.mark.parametrize(
    ("answer", "tokens"),
    [
        (
            b'{"choices":[{"index":0,"message":{"role":"assistant","content":"A zebrafish."}}]}',
            lambda: estimate("A zebrafish."),
        ),
        (b'{"choices":[{"message":{"content":"A zebrafish."}}],"usage":null}', lambda: estimate("A zebrafish.")),
        (b'{"choices":[{"message":{"content":"A zebr', lambda: prompt() + LIMIT),
        (b"<html>fine</html>", lambda: prompt() + LIMIT),
        (b"", lambda: prompt() + LIMIT),
        (b'{"error":{"message":"lost","type":"server_error"}}', lambda: 0),
        (b'{"choices":null,"error_type":"overloaded","error_message":"lost"}', lambda: 0),
        (b'{"choices":[{"index":0,"error":{"code":502,"message":"lost"}}]}', lambda: 0),
        (b'{"error":{},"choices":[{"message":{"content":"A zebrafish."}}]}', lambda: estimate("A zebrafish.")),
        (b'{"choices":[{"message":{"content":"A zebrafish."}}]}\ndata: [DONE]\n\n', lambda: estimate("A zebrafish.")),
        (
            b'{"choices":[{"message":{"tool_calls":[{"function":{"name":"f","arguments":{"a": 1}}}]}}]}',
            lambda: estimate("f") + oracle().text('{"a": 1}'),
        ),
    ],
    ids=[
        "no usage",
        "null usage",
        "cut",
        "html",
        "empty",
        "an error",
        "an error's type",
        "an error in the choice",
        "an empty error",
        "an end mark behind it",
        "arguments that are an object",
    ],
)
def test_json_without_readable_usage(stack: Stack, tenant: Tenant, answer: bytes, tokens: Any) -> None:
    stack.upstream.handler = chat.raw_json(answer)
    assert stack.ask(tenant).body == answer
    stack.settles_to(tenant, tokens(), requests=1)


COUNTS = b'"prompt_tokens":12,"completion_tokens":3,"total_tokens":15'


@pytest.mark.parametrize(
    "usage",
    [
        COUNTS + b',"prompt_tokens_details":{"cached_tokens":null},"completion_tokens_details":null,"cost":"0.01"',
        COUNTS + b',"prompt_tokens_details":{"cached_tokens":9},"completion_tokens_details":{"reasoning_tokens":2}',
        b'"prompt_tokens":12.0,"completion_tokens":3',
    ],
    ids=["null details", "cached and reasoning", "no total"],
)
@pytest.mark.parametrize("stream", [False, True])
def test_the_shapes_of_usage(stack: Stack, tenant: Tenant, usage: bytes, stream: bool) -> None:
    if stream:
        stack.upstream.handler = chat.raw_stream(b'data: {"choices":[],"usage":{%s}}\n\ndata: [DONE]\n\n' % usage)
    else:
        stack.upstream.handler = chat.raw_json(b'{"choices":[],"usage":{%s}}' % usage)
    stack.ask(tenant, stream=stream)
    stack.settles_to(tenant, 15, requests=1)


def test_running_usage_is_replaced_not_added(stack: Stack, tenant: Tenant) -> None:
    reports = [b'{"prompt_tokens":10,"completion_tokens":%d,"total_tokens":%d}' % (n, 10 + n) for n in (1, 2, 3, 4)]
    data = b"".join(b'data: {"choices":[{"index":0,"delta":{"content":"a"}}],"usage":%s}\n\n' % r for r in reports)
    stack.upstream.handler = chat.raw_stream(data)
    assert stack.ask(tenant, stream=True).body == data, "these are the provider's own reports"
    stack.settles_to(tenant, 14, requests=1)


def test_an_answer_in_a_coding_is_passed_and_never_free(stack: Stack, tenant: Tenant) -> None:
    data = gzip.compress(b"".join(chat.stream_events(chat.DELTAS, chat.usage_of(chat.body()))))

    async def handler(exchange: Exchange) -> None:
        await exchange.reply(200, data, [*chat.EVENT_STREAM, ("content-encoding", "gzip")])

    stack.upstream.handler = handler
    assert stack.ask(tenant, stream=True).body == data
    eventually(
        lambda: stack.service.bucket(tenant.name),
        lambda bucket: bucket.open_holds == 0 and bucket.tokens >= prompt() and bucket.requests == 1,
    )


def test_an_answer_with_trailers(stack: Stack, tenant: Tenant) -> None:
    usage = chat.usage_of(chat.body())

    async def handler(exchange: Exchange) -> None:
        await exchange.head(200, [*chat.EVENT_STREAM, ("trailer", "x-sum")])
        for part in chat.stream_events(chat.DELTAS, usage):
            await exchange.chunk(part)
        await exchange.finish(b"x-sum: 1\r\n")

    stack.upstream.handler = handler
    assert b'"usage":{' not in stack.ask(tenant, stream=True).body.replace(b" ", b"")
    stack.settles_to(tenant, usage.total, requests=1)
