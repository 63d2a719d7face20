"""The OpenAI chat wire format as the scripted provider speaks it, and the usage it truthfully reports."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .oracle import oracle
from .upstream import Exchange, Gate, Handler, Request

PATH = "/v1/chat/completions"
# Every prompt and every answer of the suite carries the word; no log may (`envoy.py`).
CANARY = "zebrafish"
PROMPT = f"How does a {CANARY} see the world, and why?"
DELTAS = ("A ", CANARY, " sees", " with four ", "kinds of", " cones: naïve ", "价格", " 🙂.")
DONE = b"data: [DONE]\n\n"
EVENT_STREAM: list[tuple[str, bytes | str]] = [("content-type", "text/event-stream")]
JSON: list[tuple[str, bytes | str]] = [("content-type", "application/json")]


def body(**members: Any) -> dict[str, Any]:
    """A small request; `members` are added or replace what is there."""
    return {"model": "gpt-4o", "max_tokens": 50, "messages": [{"role": "user", "content": PROMPT}], **members}


def encode(body: Any) -> bytes:
    return json.dumps(body, ensure_ascii=False).encode()


@dataclass(frozen=True)
class Usage:
    prompt: int
    completion: int

    @property
    def total(self) -> int:
        return self.prompt + self.completion

    def json(self) -> dict[str, int]:
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.total,
        }


def usage_of(request: dict[str, Any], deltas: Iterable[str] = DELTAS) -> Usage:
    """What a provider would report: prompt with framing, and the joined output once per choice."""
    family = "gpt-4o" if request["model"] != "gpt-4" else "gpt-4"
    output = oracle().text("".join(deltas), family)
    return Usage(oracle().prompt(request["messages"], family), output * (request.get("n") or 1))


def event(payload: Any) -> bytes:
    return b"data: " + encode(payload) + b"\n\n"


def _chunk(choices: list[Any], usage: Usage | None, asked: bool) -> bytes:
    payload: dict[str, Any] = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o"}
    payload["choices"] = choices
    if asked:
        payload["usage"] = usage.json() if usage else None
    return event(payload)


def delta_event(text: str, asked: bool = True) -> bytes:
    return _chunk([{"index": 0, "delta": {"content": text}, "finish_reason": None}], None, asked)


def usage_event(usage: Usage) -> bytes:
    return _chunk([], usage, True)


def stream_events(deltas: Iterable[str], usage: Usage | None, asked: bool = True) -> list[bytes]:
    """Role, deltas, finish reason, usage (when given and asked for), end mark."""
    opening = _chunk([{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}], None, asked)
    closing = _chunk([{"index": 0, "delta": {}, "finish_reason": "stop"}], None, asked)
    report = [usage_event(usage)] if usage and asked else []
    return [opening, *(delta_event(text, asked) for text in deltas), closing, *report, DONE]


def completion(deltas: Iterable[str], usage: Usage) -> bytes:
    message = {"role": "assistant", "content": "".join(deltas)}
    payload = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-4o",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}],
        "usage": usage.json(),
    }
    return encode(payload)


def asked_for_usage(request: Request) -> bool:
    return bool((request.json().get("stream_options") or {}).get("include_usage"))


def answer(deltas: Iterable[str] = DELTAS, gate: Gate | None = None) -> Handler:
    """A well-behaved provider: JSON or a stream as asked, usage as counted. `notes["usage"]` keeps the usage."""

    async def handler(exchange: Exchange) -> None:
        request = exchange.request
        if request.method != "POST":
            await exchange.reply(200, b'{"object":"list","data":[]}', JSON)
            return
        if gate:
            await gate.wait()
        usage = request.notes["usage"] = usage_of(request.json(), deltas)
        if not request.json().get("stream"):
            await exchange.reply(200, completion(deltas, usage), JSON)
            return
        await exchange.head(200, EVENT_STREAM)
        for part in stream_events(deltas, usage, asked_for_usage(request)):
            await exchange.chunk(part)
        await exchange.finish()

    return handler


def raw_stream(data: bytes) -> Handler:
    """The bytes as one event stream, in one chunk."""

    async def handler(exchange: Exchange) -> None:
        await exchange.head(200, EVENT_STREAM)
        await exchange.chunk(data)
        await exchange.finish()

    return handler


def raw_json(data: bytes, status: int = 200) -> Handler:
    async def handler(exchange: Exchange) -> None:
        await exchange.reply(status, data, JSON)

    return handler


def provider_error(status: int, kind: str = "server_error") -> Handler:
    """The provider's own refusal, with rate-limit headers of its own."""
    data = encode({"error": {"message": "no", "type": kind, "param": None, "code": kind}})
    own: list[tuple[str, bytes | str]] = [("x-ratelimit-remaining-tokens", "7"), ("retry-after", "3")]

    async def handler(exchange: Exchange) -> None:
        await exchange.reply(status, data, [*JSON, *own])

    return handler


def stream_until_gone(deltas: Iterable[str]) -> Handler:
    """Sends the deltas, then waits until the client has left; no usage, no end."""

    async def handler(exchange: Exchange) -> None:
        await exchange.head(200, EVENT_STREAM)
        for text in deltas:
            await exchange.chunk(delta_event(text))
        await exchange.gone()

    return handler
