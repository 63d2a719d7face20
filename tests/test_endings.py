"""Every way a request can end, and what is charged for it."""

from typing import Any

import pytest

from harness import chat, http1
from harness.oracle import oracle
from harness.policy import Tenant
from harness.stack import Stack
from harness.upstream import Exchange, Handler
from harness.wait import becomes, eventually

LIMIT = chat.body()["max_tokens"]
REASONING = "o3"


def prompt() -> int:
    return oracle().prompt(chat.body()["messages"])


def estimate(*deltas: str) -> int:
    return prompt() + oracle().text("".join(deltas))


def streaming(*parts: bytes, then_reset: bool = False) -> Handler:
    async def handler(exchange: Exchange) -> None:
        await exchange.head(200, chat.EVENT_STREAM)
        for part in parts:
            await exchange.chunk(part)
        if then_reset:
            exchange.reset()
        else:
            await exchange.finish()

    return handler


async def reset_at_once(exchange: Exchange) -> None:
    exchange.reset()


async def wait_for_departure(exchange: Exchange) -> None:
    await exchange.gone()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 503])
def test_a_provider_error_costs_the_request_and_no_tokens(
    stack: Stack, tenant: Tenant, status: int, stream: bool
) -> None:
    stack.upstream.handler = chat.provider_error(status)
    response = stack.ask(tenant, stream=stream)
    assert (response.status, response.error()["message"]) == (status, "no"), "the provider's answer passes"
    assert response.header("x-tokengate-refused-by") == ("upstream" if status == 429 else None)
    assert response.header("retry-after") == "3"
    stack.settles_to(tenant, tokens=0, requests=1)


@pytest.mark.parametrize("stream", [False, True])
def test_a_provider_that_cannot_be_reached_costs_nothing(stack: Stack, tenant: Tenant, stream: bool) -> None:
    stack.upstream.refuse()
    try:
        response = stack.ask(tenant, stream=stream)
    finally:
        stack.upstream.accept()
    assert response.status == 503
    stack.settles_to(tenant, tokens=0, requests=0)
    assert stack.ask(tenant).status == 200


@pytest.mark.parametrize(
    ("members", "tokens"),
    [
        ({"stream": True}, lambda: estimate()),
        ({"stream": False}, lambda: prompt() + LIMIT),
        ({"stream": True, "model": REASONING}, lambda: prompt() + LIMIT),
    ],
    ids=["streamed", "not streamed", "reasoning"],
)
def test_a_provider_that_resets_before_it_answers(
    stack: Stack, tenant: Tenant, members: dict[str, Any], tokens: Any
) -> None:
    stack.upstream.handler = reset_at_once
    assert stack.ask(tenant, **members).status == 503
    assert len(stack.upstream.requests) == 1, "no repeat behind the caller's back"
    stack.settles_to(tenant, tokens(), 1, model=members.get("model", "gpt-4o"))


@pytest.mark.parametrize("then_reset", [False, True], ids=["ended", "cut"])
@pytest.mark.parametrize("count", [1, 3, len(chat.DELTAS)])
def test_a_stream_without_usage_is_charged_for_its_joined_text(
    stack: Stack, tenant: Tenant, count: int, then_reset: bool
) -> None:
    sent = chat.DELTAS[:count]
    stack.upstream.handler = streaming(*map(chat.delta_event, sent), then_reset=then_reset)
    client = http1.Connection(stack.envoy.port)
    client.send(http1.encode("POST", chat.PATH, [tenant.bearer], chat.encode(chat.body(stream=True))))
    head = client.head()
    if then_reset:
        with pytest.raises(ConnectionError):
            list(client.pieces(head))
    else:
        assert b"".join(client.pieces(head)) == b"".join(map(chat.delta_event, sent))
    client.close()
    stack.settles_to(tenant, estimate(*sent), requests=1)


def test_the_text_is_counted_joined_not_piece_by_piece(stack: Stack, tenant: Tenant) -> None:
    pieces = ["The", " qu", "ick", " bro", "wn", " fo", "x"]
    assert sum(map(oracle().text, pieces)) != oracle().text("".join(pieces))
    stack.upstream.handler = streaming(*map(chat.delta_event, pieces))
    stack.ask(tenant, stream=True)
    stack.settles_to(tenant, estimate(*pieces), requests=1)


def test_long_text_without_usage(stack: Stack, tenant: Tenant) -> None:
    """More text than is kept: what was counted earlier adds up to the same."""
    pieces = [f"Sentence {i} of a zebrafish, naïve and 价格.\n" for i in range(2000)]
    stack.upstream.handler = streaming(*map(chat.delta_event, pieces))
    stack.ask(tenant, stream=True, max_tokens=None)
    stack.settles_to(tenant, estimate(*pieces), requests=1)


@pytest.mark.parametrize("abrupt", [False, True], ids=["FIN", "RST"])
@pytest.mark.parametrize("count", [1, 4])
def test_a_client_that_leaves_in_mid_stream_pays_for_what_it_read(
    stack: Stack, tenant: Tenant, count: int, abrupt: bool
) -> None:
    sent = chat.DELTAS[:count]
    stack.upstream.handler = chat.stream_until_gone(sent)
    client = http1.Connection(stack.envoy.port)
    client.send(http1.encode("POST", chat.PATH, [tenant.bearer], chat.encode(chat.body(stream=True))))
    head, seen = client.head(), b""
    for piece in client.pieces(head):
        seen += piece
        if chat.delta_event(sent[-1]) in seen:
            break
    client.abort() if abrupt else client.close()
    stack.settles_to(tenant, estimate(*sent), requests=1)


@pytest.mark.parametrize(
    ("stream", "tokens"), [(True, lambda: estimate()), (False, lambda: prompt() + LIMIT)], ids=["streamed", "not"]
)
def test_a_client_that_leaves_before_the_answer(stack: Stack, tenant: Tenant, stream: bool, tokens: Any) -> None:
    stack.upstream.handler = wait_for_departure
    client = http1.Connection(stack.envoy.port)
    client.send(http1.encode("POST", chat.PATH, [tenant.bearer], chat.encode(chat.body(stream=stream))))
    becomes(lambda: len(stack.upstream.requests), 1)
    client.close()
    stack.settles_to(tenant, tokens(), requests=1)


def test_a_client_that_leaves_while_the_reserve_is_under_way(stack: Stack, tenant: Tenant) -> None:
    stack.proxy.silence()
    try:
        client = http1.Connection(stack.envoy.port)
        client.send(http1.encode("POST", chat.PATH, [tenant.bearer], chat.encode(chat.body())))
        eventually(lambda: stack.service.bucket(tenant.name).open_holds, lambda held: held == 1)
        client.close()
        becomes(stack.envoy.active_requests, 0)
    finally:
        stack.proxy.speak()
    stack.settles_to(tenant, tokens=0, requests=0)
    assert stack.upstream.requests == []


def test_a_client_that_leaves_before_its_body_is_complete(stack: Stack, tenant: Tenant) -> None:
    client = http1.Connection(stack.envoy.port)
    client.send(http1.encode("POST", chat.PATH, [tenant.bearer], chat.encode(chat.body()))[:-5])
    becomes(stack.envoy.active_requests, 1)
    client.close()
    becomes(stack.envoy.active_requests, 0)
    stack.settles_to(tenant, tokens=0, requests=0)


ERROR_EVENT = chat.event({"error": {"message": "backend lost", "type": "server_error", "code": 500}})


def test_an_error_event_before_any_output_costs_no_tokens(stack: Stack, tenant: Tenant) -> None:
    stack.upstream.handler = chat.raw_stream(ERROR_EVENT)
    assert stack.ask(tenant, stream=True).body == ERROR_EVENT
    stack.settles_to(tenant, tokens=0, requests=1)


def test_an_error_event_after_output_costs_the_output(stack: Stack, tenant: Tenant) -> None:
    stack.upstream.handler = chat.raw_stream(chat.delta_event("Hel") + ERROR_EVENT)
    stack.ask(tenant, stream=True)
    stack.settles_to(tenant, estimate("Hel"), requests=1)


@pytest.mark.parametrize("reported", [11, 1 << 40], ids=["too little", "absurdly much"])
def test_a_client_that_leaves_pays_for_the_text_whatever_was_reported(
    stack: Stack, tenant: Tenant, reported: int
) -> None:
    """The report comes first, and the text after it."""
    report = chat.usage_event(chat.Usage(prompt(), reported - prompt()))
    text = [f" {word}" for word in ("one", "two", "three", "four") * 10]

    async def handler(exchange: Exchange) -> None:
        await exchange.head(200, chat.EVENT_STREAM)
        await exchange.chunk(report + b"".join(map(chat.delta_event, text)))
        await exchange.gone()

    stack.upstream.handler = handler
    client = http1.Connection(stack.envoy.port)
    client.send(http1.encode("POST", chat.PATH, [tenant.bearer], chat.encode(chat.body(stream=True))))
    head, seen = client.head(), b""
    for piece in client.pieces(head):
        seen += piece
        if seen.endswith(chat.delta_event(text[-1])):
            break
    client.close()
    stack.settles_to(tenant, estimate(*text), requests=1)


PAGE = b"<!doctype html><title>503</title>" + b"<p>The service is temporarily unavailable.</p>\n" * 45


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("status", "body"), [(503, PAGE), (429, b""), (302, b""), (304, b""), (500, b"{")])
def test_an_error_of_another_form_costs_the_request_and_no_tokens(
    stack: Stack, tenant: Tenant, status: int, body: bytes, stream: bool
) -> None:
    async def handler(exchange: Exchange) -> None:
        await exchange.reply(status, body, [("content-type", "text/html"), ("location", "/elsewhere")])

    stack.upstream.handler = handler
    response = stack.ask(tenant, stream=stream)
    assert (response.status, response.body) == (status, body)
    stack.settles_to(tenant, tokens=0, requests=1)


def test_early_hints_are_no_answer(stack: Stack, tenant: Tenant) -> None:
    usage = chat.Usage(5, 4)

    async def handler(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n")
        await chat.raw_json(chat.completion("x", usage))(exchange)

    stack.upstream.handler = handler
    assert stack.ask(tenant).status == 200
    stack.settles_to(tenant, usage.total, requests=1)


def test_a_stream_that_runs_over_the_limit_is_not_cut(stack: Stack) -> None:
    """What is over it becomes debt, and the next request is refused."""
    tenant, usage = stack.tenant("small"), chat.Usage(20, 5000)
    events = [*map(chat.delta_event, ["word "] * 500), chat.usage_event(usage), chat.DONE]
    stack.upstream.handler = chat.raw_stream(b"".join(events))
    response = stack.ask(tenant, stream=True)
    assert (response.status, response.body) == (200, b"".join(events[:-2] + events[-1:]))
    stack.settles_to(tenant, usage.total, requests=1)
    assert stack.ask(tenant).status == 429
    assert len(stack.upstream.requests) == 1


def test_a_limit_counts_tokens_and_not_requests(stack: Stack) -> None:
    """Of 1000, six times 150; a seventh does not fit."""
    tenant = stack.tenant("small")
    stack.upstream.handler = chat.raw_json(chat.completion("x", chat.Usage(prompt(), 150 - prompt())))
    for count in range(1, 7):
        assert stack.ask(tenant, max_tokens=150 - prompt()).status == 200
        stack.settles_to(tenant, 150 * count, requests=count)
    assert stack.ask(tenant, max_tokens=150 - prompt()).status == 429
    stack.settles_to(tenant, 900, requests=6)


def test_a_provider_that_only_refuses_does_not_lift_the_limit_on_requests(stack: Stack) -> None:
    tenant = stack.tenant("two-requests")
    stack.upstream.handler = chat.provider_error(400, "invalid_request_error")
    assert [stack.ask(tenant).status for _ in range(4)] == [400, 400, 429, 429]
    stack.settles_to(tenant, 0, requests=2)
