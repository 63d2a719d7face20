"""Clients that leave, at every moment and over both protocols: charged for what came, settled at once, settled once."""

from collections.abc import Callable

import pytest

from harness import chat, http1, http2
from harness.oracle import oracle
from harness.policy import Tenant
from harness.stack import Stack
from harness.upstream import Exchange, Handler
from harness.wait import becomes

LIMIT = chat.body()["max_tokens"]
USAGE = chat.Usage(33, 44)


def estimate(*deltas: str) -> int:
    return oracle().prompt(chat.body()["messages"]) + oracle().text("".join(deltas))


def held() -> int:
    return estimate() + LIMIT


class Caller:
    """One request over one of the protocols; `read` returns when these bytes have come, `leave` hangs up."""

    told_by = ("downstream_remote_disconnect", "DC")

    def __init__(self, stack: Stack, tenant: Tenant, stream: bool) -> None:
        self._tenant, self._body = tenant, chat.encode(chat.body(stream=stream))
        self._send(stack.envoy.port)

    def _send(self, port: int) -> None:
        raise NotImplementedError

    def read(self, until: bytes) -> http1.Response:
        raise NotImplementedError

    def leave(self) -> None:
        raise NotImplementedError


class Http1Caller(Caller):
    def _send(self, port: int) -> None:
        self._client = http1.Connection(port)
        self._client.send(http1.encode("POST", chat.PATH, [self._tenant.bearer], self._body))

    def read(self, until: bytes) -> http1.Response:
        head = self._client.head()
        self._client.read_until(until)
        return head

    def leave(self) -> None:
        self._client.close()


class Http2Caller(Caller):
    told_by = ("http2.remote_reset", "DR")

    def _send(self, port: int) -> None:
        self._client = http2.Http2(port)
        self._stream = self._client.start("POST", chat.PATH, [self._tenant.bearer])
        self._client.data(self._stream, [self._body], end=True)

    def read(self, until: bytes) -> http1.Response:
        return self._client.response(until=until) if until else self._client.head()

    def leave(self) -> None:
        self._client.reset(self._stream)
        self._client.close()


class VanishingHttp2Caller(Http2Caller):
    """The connection breaks without a word about its stream."""

    told_by = Caller.told_by

    def leave(self) -> None:
        self._client.close()


CALLERS = pytest.mark.parametrize("caller", [Http1Caller, Http2Caller, VanishingHttp2Caller])


def then_waits(*parts: bytes, head: list[tuple[str, bytes | str]] = chat.EVENT_STREAM) -> Handler:
    async def handler(exchange: Exchange) -> None:
        await exchange.head(200, head)
        for part in parts:
            await exchange.chunk(part)
        await exchange.gone()

    return handler


ROLE = chat.event({"choices": [{"index": 0, "delta": {"role": "assistant"}}]})
FIRST = chat.delta_event("Hel")
TEXT = [chat.delta_event(text) for text in chat.DELTAS]
FINISH = chat.event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
MOMENTS: dict[str, tuple[tuple[bytes, ...], bytes, Callable[[], int]]] = {
    "after the head": ((), b"", lambda: estimate()),
    "after the role": ((ROLE,), ROLE, lambda: estimate()),
    "after the first chunk": ((FIRST,), FIRST, lambda: estimate("Hel")),
    "before the last chunk": ((*TEXT, FINISH), FINISH, lambda: estimate(*chat.DELTAS)),
    "within an event": ((FIRST, FIRST[:40]), FIRST, lambda: estimate("Hel")),
    "after an error": ((chat.event({"error": {"message": "x"}}),), b"error", lambda: 0),
}


@CALLERS
@pytest.mark.parametrize(("sent", "seen", "tokens"), MOMENTS.values(), ids=MOMENTS)
def test_a_streamed_request(
    stack: Stack, tenant: Tenant, sent: tuple[bytes, ...], seen: bytes, tokens: Callable[[], int], caller: type[Caller]
) -> None:
    stack.upstream.handler = then_waits(*sent)
    client = caller(stack, tenant, stream=True)
    head = client.read(seen)
    client.leave()
    [entry] = stack.envoy.logged(head)
    assert (entry["status"], entry["details"], entry["flags"]) == (200, *caller.told_by)
    stack.settles_to(tenant, tokens(), requests=1, timeout=1)


@CALLERS
def test_usage_that_came_before_the_client_left_is_charged(stack: Stack, tenant: Tenant, caller: type[Caller]) -> None:
    """The usage event is hidden from the client; what is behind it is not, and shows that it has come."""
    stack.upstream.handler = then_waits(FIRST, chat.usage_event(USAGE), b": after\n\n")
    client = caller(stack, tenant, stream=True)
    client.read(b": after\n\n")
    client.leave()
    stack.settles_to(tenant, USAGE.total, requests=1, timeout=1)


@CALLERS
def test_before_the_head(stack: Stack, tenant: Tenant, caller: type[Caller]) -> None:
    async def silent(exchange: Exchange) -> None:
        await exchange.gone()

    stack.upstream.handler = silent
    client = caller(stack, tenant, stream=True)
    becomes(lambda: len(stack.upstream.requests), 1)
    client.leave()
    stack.settles_to(tenant, estimate(), requests=1, timeout=1)


@CALLERS
@pytest.mark.parametrize("part", [0, 1, 60], ids=["nothing", "a byte", "a part"])
def test_a_request_that_is_not_streamed(stack: Stack, tenant: Tenant, caller: type[Caller], part: int) -> None:
    answer = chat.completion(chat.DELTAS, USAGE)
    sent = answer[:part]
    stack.upstream.handler = then_waits(*([sent] if sent else []), head=chat.JSON)
    client = caller(stack, tenant, stream=False)
    client.read(sent)
    client.leave()
    stack.settles_to(tenant, held(), requests=1, timeout=1)


def test_a_whole_answer_whose_end_never_comes(stack: Stack, tenant: Tenant) -> None:
    """All of the JSON has come and been read; only the end of the body is missing."""
    answer = chat.completion(chat.DELTAS, USAGE)
    stack.upstream.handler = then_waits(answer, head=chat.JSON)
    client = Http1Caller(stack, tenant, stream=False)
    client.read(answer[-20:])
    client.leave()
    stack.settles_to(tenant, USAGE.total, requests=1, timeout=1)


@pytest.mark.parametrize("caller", [Http1Caller, Http2Caller])
def test_at_the_instant_of_the_last_chunk(stack: Stack, tenant: Tenant, caller: type[Caller]) -> None:
    """Whichever comes first: every one of them is settled, with the usage or with what was delivered."""
    count = 50

    async def handler(exchange: Exchange) -> None:
        await exchange.head(200, chat.EVENT_STREAM)
        await exchange.chunk(FIRST)
        await exchange.send(b"%x\r\n%s\r\n0\r\n\r\n" % (len(last := chat.usage_event(USAGE)), last))

    stack.upstream.handler = handler
    for _ in range(count):
        client = caller(stack, tenant, stream=True)
        client.read(FIRST)
        client.leave()
    becomes(lambda: stack.service.bucket(tenant.name).open_holds, 0)
    bucket = stack.service.bucket(tenant.name)
    assert bucket.requests == count
    possible = {seen * USAGE.total + (count - seen) * estimate("Hel") for seen in range(count + 1)}
    assert bucket.tokens in possible, "each is charged by one of the two rows"


def test_a_connection_that_breaks_with_many_streams(stack: Stack, tenant: Tenant) -> None:
    count = 20
    stack.upstream.handler = then_waits(FIRST)
    client = http2.Http2(stack.envoy.port)
    for _ in range(count):
        stream = client.start("POST", chat.PATH, [tenant.bearer])
        client.data(stream, [chat.encode(chat.body(stream=True))], end=True)
        client.response(until=FIRST)
    becomes(lambda: stack.service.bucket(tenant.name).open_holds, count)
    client.close()
    stack.settles_to(tenant, count * estimate("Hel"), requests=count)
