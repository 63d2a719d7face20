"""A provider that speaks HTTP/2: resets with a code, goodbyes, ends without a body, trailers."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import pytest
from h2.errors import ErrorCodes

from harness import chat, http1, http2
from harness.envoy import Config
from harness.oracle import oracle
from harness.policy import Tenant
from harness.routes import ROUTE, add_cluster, add_routes
from harness.stack import Stack, running
from harness.upstream_http2 import Http2Exchange, Http2Upstream, Script

LIMIT = chat.body()["max_tokens"]
USAGE = chat.Usage(33, 44)
EVENTS = [("content-type", "text/event-stream")]
JSON = [("content-type", "application/json")]
TRAILERS = [("x-sum", "1")]
TEXT = chat.delta_event("Hel")
OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"


@pytest.fixture(scope="module")
def provider() -> Iterator[Http2Upstream]:
    server = Http2Upstream()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def shared_stack(tmp_path_factory: pytest.TempPathFactory, provider: Http2Upstream) -> Iterator[Stack]:
    def edit(config: Config) -> None:
        address = {"socket_address": {"address": "127.0.0.1", "port_value": provider.port}}
        endpoints = [{"lb_endpoints": [{"endpoint": {"address": address}}]}]
        options = {"@type": f"type.googleapis.com/{OPTIONS}", "explicit_http_config": {"http2_protocol_options": {}}}
        add_cluster(
            config,
            "http2",
            load_assignment={"cluster_name": "http2", "endpoints": endpoints},
            typed_extension_protocol_options={OPTIONS: options},
        )
        add_routes(config, {"http2": {"cluster_header": "x-cluster"}})

    with running(tmp_path_factory.mktemp("http2-provider"), edit=edit) as stack:
        yield stack


def prompt() -> int:
    return oracle().prompt(chat.body()["messages"])


def estimate(text: str) -> int:
    return prompt() + oracle().text(text)


def resets(code: ErrorCodes, *parts: bytes) -> Script:
    async def script(exchange: Http2Exchange) -> None:
        if parts:
            await exchange.head(200, EVENTS)
        for part in parts:
            await exchange.data(part)
        await exchange.reset(code)

    return script


def says(*parts: bytes, headers: list[tuple[str, str]] = EVENTS, trailers: bool = False) -> Script:
    async def script(exchange: Http2Exchange) -> None:
        await exchange.head(200, headers, end=not parts and not trailers)
        for at, part in enumerate(parts, 1):
            await exchange.data(part, end=at == len(parts) and not trailers)
        if trailers:
            await exchange.trailers(TRAILERS)

    return script


async def refuses_with_trailers(exchange: Http2Exchange) -> None:
    await exchange.head(503, JSON)
    await exchange.data(b'{"error":{"message":"no"}}')
    await exchange.trailers(TRAILERS)


async def goes_away(exchange: Http2Exchange) -> None:
    await exchange.go_away()


async def goes_away_unread(exchange: Http2Exchange) -> None:
    await exchange.go_away(last_stream=0)


async def goes_away_in_mid_stream(exchange: Http2Exchange) -> None:
    await exchange.head(200, EVENTS)
    await exchange.data(TEXT)
    await exchange.go_away()


@dataclass(frozen=True)
class Case:
    script: Script
    status: int
    details: str
    stream: bool
    tokens: Callable[[], int]


BEFORE, AFTER = "upstream_reset_before_response_started", "upstream_reset_after_response_started"
WHOLE = chat.stream_events(chat.DELTAS, USAGE)
ANSWER = chat.completion(chat.DELTAS, USAGE)


def held() -> int:
    return prompt() + LIMIT


CASES = {
    "reset": Case(resets(ErrorCodes.INTERNAL_ERROR), 503, BEFORE + "{remote_reset}", True, prompt),
    "reset, not streamed": Case(resets(ErrorCodes.INTERNAL_ERROR), 503, BEFORE + "{remote_reset}", False, held),
    "cancelled": Case(resets(ErrorCodes.CANCEL), 503, BEFORE + "{remote_reset}", True, prompt),
    "refused": Case(resets(ErrorCodes.REFUSED_STREAM), 503, BEFORE + "{remote_refused_stream_reset}", True, prompt),
    "goodbye": Case(goes_away, 503, BEFORE, True, prompt),
    "goodbye, unread": Case(goes_away_unread, 503, BEFORE, True, prompt),
    "reset in mid-stream": Case(
        resets(ErrorCodes.INTERNAL_ERROR, TEXT), 200, AFTER + "{remote_reset}", True, lambda: estimate("Hel")
    ),
    "reset behind the usage": Case(
        resets(ErrorCodes.NO_ERROR, TEXT, chat.usage_event(USAGE)), 200, AFTER, True, lambda: USAGE.total
    ),
    "goodbye in mid-stream": Case(goes_away_in_mid_stream, 200, AFTER, True, lambda: estimate("Hel")),
    "no body": Case(says(), 200, "via_upstream", True, prompt),
    "no body, not streamed": Case(says(headers=JSON), 200, "via_upstream", False, held),
    "nothing but trailers": Case(says(trailers=True), 200, "via_upstream", True, prompt),
    "whole": Case(says(*WHOLE), 200, "via_upstream", True, lambda: USAGE.total),
    "whole, trailers": Case(says(*WHOLE, trailers=True), 200, "via_upstream", True, lambda: USAGE.total),
    "empty last frame": Case(says(*WHOLE, b""), 200, "via_upstream", True, lambda: USAGE.total),
    "empty frames": Case(says(*(x for e in WHOLE for x in (e, b""))), 200, "via_upstream", True, lambda: USAGE.total),
    "JSON, trailers": Case(says(ANSWER, headers=JSON, trailers=True), 200, "via_upstream", False, lambda: USAGE.total),
    "usage without its end, trailers": Case(
        says(TEXT, chat.usage_event(USAGE).rstrip(), trailers=True), 200, "via_upstream", True, lambda: USAGE.total
    ),
    "an error, trailers": Case(refuses_with_trailers, 503, "via_upstream", True, lambda: 0),
}


Speak = Callable[[Stack, Tenant, bytes], http1.Response]


def over_http1(stack: Stack, tenant: Tenant, body: bytes) -> http1.Response:
    client = http1.Connection(stack.envoy.port)
    try:
        client.send(http1.encode("POST", chat.PATH, [tenant.bearer, (ROUTE, "http2"), ("x-cluster", "http2")], body))
        head = client.head()
        with suppress(ConnectionError):
            for piece in client.pieces(head):
                head.body += piece
        return head
    finally:
        client.close()


def over_http2(stack: Stack, tenant: Tenant, body: bytes) -> http1.Response:
    client = http2.Http2(stack.envoy.port)
    try:
        stream = client.start("POST", chat.PATH, [tenant.bearer, (ROUTE, "http2"), ("x-cluster", "http2")])
        client.data(stream, [body], end=True)
        with suppress(http2.StreamReset):
            client.response()
        return client.head()
    finally:
        client.close()


@pytest.mark.parametrize("speak", [over_http1, over_http2])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_it_costs(stack: Stack, tenant: Tenant, provider: Http2Upstream, case: Case, speak: Speak) -> None:
    provider.script, provider.bodies = case.script, []
    response = speak(stack, tenant, chat.encode(chat.body(stream=case.stream)))
    assert response.status == case.status
    [entry] = stack.envoy.logged(response)
    assert entry["details"].startswith(case.details)
    assert len(provider.bodies) == 1, "sent, and sent once"
    stack.settles_to(tenant, case.tokens(), requests=1)


@pytest.mark.parametrize("speak", [over_http1, over_http2])
@pytest.mark.parametrize("trailers", [False, True])
def test_the_usage_is_hidden_and_nothing_else(
    stack: Stack, tenant: Tenant, provider: Http2Upstream, speak: Speak, trailers: bool
) -> None:
    provider.script = says(*WHOLE, trailers=trailers)
    response = speak(stack, tenant, chat.encode(chat.body(stream=True)))
    assert response.body == b"".join(part for part in WHOLE if part != chat.usage_event(USAGE))
    stack.settles_to(tenant, USAGE.total, requests=1)
