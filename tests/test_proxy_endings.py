"""Endings that Envoy brings about: what its log calls them, and what each costs. The table of docs/endings.md."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

from harness import chat, http1, http2
from harness.envoy import Config
from harness.oracle import oracle
from harness.policy import Tenant
from harness.routes import ROUTE, add_cluster, add_routes
from harness.service import Bucket
from harness.stack import Stack, running
from harness.upstream import Exchange, Handler
from harness.wait import becomes

LIMIT = chat.body()["max_tokens"]
SHORT = "0.4s"


def with_routes(config: Config) -> None:
    add_cluster(config, "hollow", load_assignment={"cluster_name": "hollow", "endpoints": []})
    full = {"thresholds": [{"priority": "DEFAULT", "max_pending_requests": 0, "max_requests": 0}]}
    add_cluster(config, "full", circuit_breakers=full)
    retry = {"retry_on": "5xx,reset,connect-failure", "num_retries": 2}
    routes = {
        "timeout": {"timeout": SHORT},
        "idle": {"idle_timeout": SHORT},
        "duration": {"max_stream_duration": {"max_stream_duration": SHORT}},
        "hollow": {"cluster": "hollow"},
        "full": {"cluster": "full"},
        "no cluster": {"cluster_header": "x-cluster"},
        "direct": {"direct_response": {"status": 200, "body": {"inline_string": '{"choices":[]}'}}},
        "direct 403": {"direct_response": {"status": 403, "body": {"inline_string": "no"}}},
        "moved": {"redirect": {"host_redirect": "elsewhere.test"}},
        "inside": {"internal_redirect_policy": {"max_internal_redirects": 1}},
        "retry": {"retry_policy": {**retry, "retry_back_off": {"base_interval": "0.001s"}}},
    }
    add_routes(config, routes)


@pytest.fixture(scope="module")
def shared_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(tmp_path_factory.mktemp("routes"), edit=with_routes) as stack:
        yield stack


def prompt() -> int:
    return oracle().prompt(chat.body()["messages"])


async def silence(exchange: Exchange) -> None:
    await exchange.gone()


async def cut(exchange: Exchange) -> None:
    exchange.reset()


async def close(exchange: Exchange) -> None:
    exchange.keep_alive = False


async def nonsense(exchange: Exchange) -> None:
    exchange.keep_alive = False
    await exchange.send(b"\x00\x01 this is no HTTP\r\n\r\n")


async def head_then_silence(exchange: Exchange) -> None:
    await exchange.head(200, chat.EVENT_STREAM)
    await exchange.gone()


async def text_then_silence(exchange: Exchange) -> None:
    await exchange.head(200, chat.EVENT_STREAM)
    await exchange.chunk(chat.delta_event("Hel"))
    await exchange.gone()


async def text_then_cut(exchange: Exchange) -> None:
    await exchange.head(200, chat.EVENT_STREAM)
    await exchange.chunk(chat.delta_event("Hel"))
    exchange.reset()


# What an ending costs: nothing at all, the request alone, what was held, or the prompt with a text.
NOTHING, REQUEST, MISSING = "nothing", "the request", "missing usage"


def cost(charged: str, stream: bool) -> Bucket:
    if charged == NOTHING:
        return Bucket(0, 0)
    if charged == REQUEST:
        return Bucket(0, 1)
    text = "" if charged == MISSING else charged
    return Bucket(prompt() + (oracle().text(text) if stream else LIMIT), 1)


@dataclass(frozen=True)
class Case:
    route: str
    handler: Handler | None
    status: int
    details: str
    flags: str
    charged: str


OK = chat.answer()
BEFORE, AFTER = "upstream_reset_before_response_started", "upstream_reset_after_response_started"
CASES = {
    "provider answers": Case("", chat.provider_error(500), 500, "via_upstream", "-", REQUEST),
    "provider resets": Case("", cut, 503, BEFORE + "{connection_termination}", "UC", MISSING),
    "provider closes": Case("", close, 503, BEFORE + "{connection_termination}", "UC", MISSING),
    "provider talks nonsense": Case("", nonsense, 502, BEFORE + "{protocol_error}", "UPE", MISSING),
    "provider resets in mid-stream": Case("", text_then_cut, 200, AFTER + "{protocol_error}", "UPE", "Hel"),
    "route timeout": Case("timeout", silence, 504, "response_timeout", "UT", MISSING),
    "route timeout after the head": Case("timeout", head_then_silence, 200, "response_timeout", "UT", MISSING),
    "route timeout in mid-stream": Case("timeout", text_then_silence, 200, "response_timeout", "UT", "Hel"),
    "idle": Case("idle", silence, 504, "stream_idle_timeout", "SI", MISSING),
    "idle in mid-stream": Case("idle", text_then_silence, 200, "stream_idle_timeout", "SI", "Hel"),
    "longest duration": Case("duration", silence, 504, "max_duration_timeout", "-", MISSING),
    "no healthy host": Case("hollow", None, 503, "no_healthy_upstream", "UH", NOTHING),
    "overflow": Case("full", None, 503, BEFORE + "{overflow}", "UO", NOTHING),
    "no cluster": Case("no cluster", None, 503, "cluster_not_found", "NC", NOTHING),
    "no route": Case("unheard-of", None, 404, "route_not_found", "NR", NOTHING),
    "direct response": Case("direct", None, 200, "direct_response", "-", NOTHING),
    "direct response 403": Case("direct 403", None, 403, "direct_response", "-", NOTHING),
    "redirect by the route": Case("moved", None, 301, "direct_response", "-", NOTHING),
}


Speak = Callable[[Stack, Tenant, str, dict[str, Any]], http1.Response]


def over_http1(stack: Stack, tenant: Tenant, route: str, body: dict[str, Any]) -> http1.Response:
    client = http1.Connection(stack.envoy.port)
    try:
        headers = [tenant.bearer, *([(ROUTE, route)] if route else [])]
        client.send(http1.encode("POST", chat.PATH, headers, chat.encode(body)))
        head = client.head()
        with suppress(ConnectionError):
            list(client.pieces(head))
        return head
    finally:
        client.close()


def over_http2(stack: Stack, tenant: Tenant, route: str, body: dict[str, Any]) -> http1.Response:
    client = http2.Http2(stack.envoy.port)
    try:
        stream = client.start("POST", chat.PATH, [tenant.bearer, *([(ROUTE, route)] if route else [])])
        client.data(stream, [chat.encode(body)], end=True)
        with suppress(http2.StreamReset):
            client.response()
        return client.head()
    finally:
        client.close()


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "not streamed"])
@pytest.mark.parametrize("speak", [over_http1, over_http2])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_table(stack: Stack, tenant: Tenant, case: Case, speak: Speak, stream: bool) -> None:
    if case.handler:
        stack.upstream.handler = case.handler
    response = speak(stack, tenant, case.route, chat.body(stream=stream))
    assert response.status == case.status
    [entry] = stack.envoy.logged(response)
    assert (entry["details"], entry["flags"]) == (case.details, case.flags)
    assert len(stack.upstream.requests) == (1 if case.handler else 0)
    expected = cost(case.charged, stream)
    stack.settles_to(tenant, expected.tokens, expected.requests)


def test_a_provider_that_refuses_connections(stack: Stack, tenant: Tenant) -> None:
    stack.upstream.refuse()
    try:
        response = stack.ask(tenant)
    finally:
        stack.upstream.accept()
    assert response.status == 503
    [entry] = stack.envoy.logged(response)
    assert entry["details"].startswith(BEFORE + "{remote_connection_failure|")
    assert entry["flags"] == "UF"
    stack.settles_to(tenant, tokens=0, requests=0)


def routed(stack: Stack, tenant: Tenant, route: str, **members: Any) -> http1.Response:
    return stack.post([tenant.bearer, (ROUTE, route)], chat.body(**members))


def test_an_internal_redirect_is_refused_and_costs_nothing(stack: Stack, tenant: Tenant) -> None:
    async def elsewhere(exchange: Exchange) -> None:
        await exchange.reply(302, b"", [("location", f"http://gate.test{chat.PATH}")])

    stack.upstream.handler = elsewhere
    response = routed(stack, tenant, "inside")
    assert response.status == 401, "the second pass carries the provider's key, which is no caller's"
    assert response.error()["type"] == "authentication_error"
    assert len(stack.upstream.requests) == 1
    entries = stack.envoy.logged(response, passes=2)
    assert sorted(entry["details"] for entry in entries) == ["internal_redirect", "tokengate_unknown_key"]
    stack.settles_to(tenant, tokens=0, requests=0)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("first", [cut, chat.provider_error(503)], ids=["reset", "503"])
def test_a_retry_of_the_proxy_is_charged_once(stack: Stack, tenant: Tenant, first: Handler, stream: bool) -> None:
    async def second_time_lucky(exchange: Exchange) -> None:
        await (first if len(stack.upstream.requests) == 1 else OK)(exchange)

    stack.upstream.handler = second_time_lucky
    assert routed(stack, tenant, "retry", stream=stream).status == 200
    assert len(stack.upstream.requests) == 2
    assert stack.upstream.requests[0].body == stack.upstream.requests[1].body
    stack.settles_to(tenant, chat.usage_of(chat.body()).total, requests=1)


@pytest.mark.parametrize(
    ("handler", "charged"), [(cut, MISSING), (chat.provider_error(503), REQUEST)], ids=["reset", "503"]
)
def test_retries_that_all_fail(stack: Stack, tenant: Tenant, handler: Handler, charged: str) -> None:
    stack.upstream.handler = handler
    assert routed(stack, tenant, "retry", stream=True).status == 503
    assert len(stack.upstream.requests) == 3
    expected = cost(charged, stream=True)
    stack.settles_to(tenant, expected.tokens, expected.requests)


def test_retries_that_end_in_a_refused_connection_have_reached_the_provider_once(stack: Stack, tenant: Tenant) -> None:
    """The first attempt was read by the provider; that later ones were not does not undo it."""
    stack.upstream.handler = silence
    client = http1.Connection(stack.envoy.port)
    body = chat.encode(chat.body(stream=True))
    client.send(http1.encode("POST", chat.PATH, [tenant.bearer, (ROUTE, "retry")], body))
    becomes(lambda: len(stack.upstream.requests), 1)
    # Cuts the connection that the request is on as well.
    stack.upstream.refuse()
    try:
        assert client.response().status == 503
    finally:
        stack.upstream.accept()
        client.close()
    expected = cost(MISSING, stream=True)
    stack.settles_to(tenant, expected.tokens, expected.requests)
