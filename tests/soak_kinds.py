"""The kinds of requests of the soak: what the caller sends, what the provider does, and what it may cost."""

import asyncio
import gzip
import random
from collections.abc import Callable

from harness import chat
from harness.oracle import oracle
from harness.policy import Tenant
from harness.upstream import Exchange, Handler
from soak_request import Request

LIMIT = int(chat.body()["max_tokens"])
# The texts are few, so that each is counted once by the oracle.
_WORDS = ("price", " 价格", " naïve", " 🙂", " zebrafish", " 12345", "\n\n", " internationalization")
_BAD_BODIES = (
    b"", b"no json", b"[]", b"null", b"{}", b'{"model":"gpt-4o"', b'{"model":"gpt-4o","messages":[]} x', b"\xff\xfe{}",
    b"\xef\xbb\xbf" + chat.encode(chat.body()), b"[" * 10_000 + b"]" * 10_000, chat.encode(chat.body(messages="hi")),
    chat.encode(chat.body(messages={})), chat.encode(chat.body(messages=["hi"])), chat.encode(chat.body(max_tokens=0)),
    chat.encode(chat.body(max_tokens=-2)), chat.encode(chat.body(max_tokens="5")), chat.encode(chat.body(stream="yes")),
    chat.encode(chat.body(n=129)), chat.encode(chat.body(stream=True, stream_options=[])), b"\0" * 64,
    b'{"model":"gpt-4o","m\\u006fdel":"gpt-4","messages":[]}', chat.encode(chat.body(model=7)),
)  # fmt: skip


class Maker:
    """Makes requests of every kind, at random but by a seed."""

    def __init__(self, seed: int, roomy: list[Tenant], unsure: list[Tenant], tiny: list[Tenant]) -> None:
        self._random = random.Random(seed)
        # Requests of which not every token is known have tenants of their own.
        self._roomy, self._unsure, self._tiny = roomy, unsure, tiny
        self._counts: dict[tuple[str, str], int] = {}
        self.kinds: list[Callable[[], Request]] = [
            self.plain, self.plain, self.streamed, self.streamed, self.without_usage, self.json_without_usage,
            self.empty, self.refused, self.bad_body, self.error, self.reset_at_once, self.cut, self.error_event,
            self.leaves_early, self.leaves_in_stream, self.leaves_in_body, self.framed, self.packed,
            self.wrong_coding, self.wrong_path,
        ]  # fmt: skip

    def make(self) -> Request:
        request = self._random.choice(self.kinds)()
        if len(set(request.tokens)) + len(set(request.requests)) > 2:
            request.tenant = self._random.choice(self._unsure)
        return request

    def _text(self, text: str, model: str) -> int:
        if (text, model) not in self._counts:
            self._counts[text, model] = oracle().text(text, model)
        return self._counts[text, model]

    def _base(self, stream: bool, tokens: tuple[int, int] = (0, 0), **members: object) -> tuple[Request, int]:
        """A good request, and its prompt's tokens."""
        model = self._random.choice(["gpt-4o", "gpt-4"])
        body = chat.body(model=model, stream=stream, **members)
        key = ("prompt", model)
        if key not in self._counts:
            self._counts[key] = oracle().prompt(body["messages"], model)
        tenant = self._random.choice(self._roomy)
        return Request(tenant, model, chat.encode(body), (200,), tokens, (1, 1)), self._counts[key]

    def _deltas(self) -> list[str]:
        return list(_WORDS[: self._random.randint(1, len(_WORDS))])

    def _usage(self) -> chat.Usage:
        return chat.Usage(self._random.randint(1, 3000), self._random.randint(1, 900))

    def plain(self) -> Request:
        request, _ = self._base(False)
        usage = self._usage()
        request.tokens = (usage.total, usage.total)
        request.handler = chat.raw_json(chat.completion(self._deltas(), usage))
        return request

    def streamed(self) -> Request:
        asked = self._random.choice([True, False])
        request, _ = self._base(True, **({"stream_options": {"include_usage": True}} if asked else {}))
        usage = self._usage()
        request.tokens = (usage.total, usage.total)
        request.handler = _stream(chat.stream_events(self._deltas(), usage), self._random.random() * 0.002)
        return request

    def without_usage(self) -> Request:
        request, prompt = self._base(True)
        deltas = self._deltas()
        total = prompt + self._text("".join(deltas), request.model)
        request.tokens = (total, total)
        request.handler = _stream([*map(chat.delta_event, deltas), chat.DONE])
        return request

    def json_without_usage(self) -> Request:
        request, prompt = self._base(False)
        request.tokens = (prompt + self._text("one", request.model),) * 2
        request.handler = chat.raw_json(b'{"choices":[{"index":0,"message":{"content":"one"}}]}')
        return request

    def empty(self) -> Request:
        stream = self._random.choice([True, False])
        request, prompt = self._base(stream)
        request.tokens = (prompt + (0 if stream else LIMIT),) * 2
        request.handler = chat.raw_json(b"")
        return request

    def refused(self) -> Request:
        request, _ = self._base(self._random.choice([True, False]))
        request.tenant = self._random.choice(self._tiny)
        request.status, request.requests = (429,), (0, 0)
        return request

    def bad_body(self) -> Request:
        request, _ = self._base(False)
        request.body = self._random.choice(_BAD_BODIES)
        request.over_http2 = bool(request.body) and self._random.choice([True, False])
        request.status, request.requests = (400,), (0, 0)
        return request

    def error(self) -> Request:
        request, _ = self._base(self._random.choice([True, False]))
        status = self._random.choice([400, 401, 404, 429, 500, 503])
        request.status, request.handler = (status,), chat.provider_error(status)
        return request

    def reset_at_once(self) -> Request:
        stream = self._random.choice([True, False])
        request, prompt = self._base(stream)
        request.tokens = (prompt + (0 if stream else LIMIT),) * 2
        request.status, request.handler = (503,), _reset
        return request

    def cut(self) -> Request:
        request, prompt = self._base(True)
        deltas = self._deltas()
        request.tokens = (prompt, prompt + self._text("".join(deltas), request.model))
        request.handler = _stream([*map(chat.delta_event, deltas)], then_reset=True)
        # Cut before its head was read, it looks like a reset before the answer.
        request.status, request.is_cut = (503,), True
        return request

    def error_event(self) -> Request:
        request, _ = self._base(True)
        request.handler = _stream([chat.event({"error": {"message": "busy", "code": 500}})])
        return request

    def leaves_early(self) -> Request:
        stream = self._random.choice([True, False])
        request, prompt = self._base(stream)
        usage = self._usage()
        most = max(usage.total, prompt + LIMIT, prompt + self._text("".join(_WORDS), request.model))
        request.tokens, request.requests = (0, most), (0, 1)
        request.leaves_after_s = self._random.random() * 0.02
        parts = chat.stream_events(_WORDS, usage) if stream else []
        request.handler = _stream(parts, 0.002) if stream else _late(chat.completion(_WORDS, usage), 0.01)
        return request

    def leaves_in_stream(self) -> Request:
        request, prompt = self._base(True)
        usage = self._usage()
        most = prompt + self._text("".join(_WORDS), request.model)
        request.tokens = (min(prompt, usage.total), max(most, usage.total))
        request.leaves_after_bytes = self._random.randint(1, 1200)
        request.handler = _stream(chat.stream_events(_WORDS, usage), 0.001)
        return request

    def leaves_in_body(self) -> Request:
        request, _ = self._base(False)
        request.over_http2, request.leaves_after_s = True, self._random.random() * 0.01
        request.requests = (0, 0)
        return request

    def framed(self) -> Request:
        request = self._random.choice([self.plain, self.streamed, self.without_usage, self.error])()
        request.over_http2 = True
        return request

    def packed(self) -> Request:
        request = self._random.choice([self.plain, self.streamed, self.without_usage])()
        request.body = gzip.compress(request.body)
        request.headers.append(("content-encoding", "gzip"))
        return request

    def wrong_coding(self) -> Request:
        request, _ = self._base(False)
        coding, body, status = self._random.choice(
            [("zstd", request.body, 415), ("gzip, br", request.body, 415), ("gzip", request.body, 400),
             ("gzip", gzip.compress(b" " * (9 << 20)), 413)]
        )  # fmt: skip
        request.body, request.status, request.requests = body, (status,), (0, 0)
        request.headers.append(("content-encoding", coding))
        return request

    def wrong_path(self) -> Request:
        request, _ = self._base(False)
        request.path, request.status, request.requests = "/v1/audio", (404,), (0, 0)
        return request


def _stream(parts: list[bytes], pause_s: float = 0.0, then_reset: bool = False) -> Handler:
    async def handler(exchange: Exchange) -> None:
        await exchange.head(200, chat.EVENT_STREAM)
        for part in parts:
            await exchange.chunk(part)
            if pause_s:
                await asyncio.sleep(pause_s)
        exchange.reset() if then_reset else await exchange.finish()

    return handler


def _late(data: bytes, after_s: float) -> Handler:
    async def handler(exchange: Exchange) -> None:
        await asyncio.sleep(after_s)
        await exchange.reply(200, data, chat.JSON)

    return handler


async def _reset(exchange: Exchange) -> None:
    exchange.reset()
