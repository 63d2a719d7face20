"""When a settle leaves: at the provider's last byte, whatever the client does, and at once where it frees a slot."""

from collections.abc import Iterator
from typing import Any

import pytest

from harness import chat, http1, http2
from harness.oracle import oracle
from harness.policy import Plan, Policy, Tenant
from harness.stack import Stack, running
from harness.upstream import Exchange
from harness.wait import becomes

REQUESTS = 1000
# A reader that has not taken anything sees no end of this for ever.
LARGE = "word " * 40_000
PROMPTLY_S = 1.0


def one_at_a_time(document: dict[str, Any]) -> None:
    limit = {"name": "in-flight", "per": ["tenant"], "algorithm": "concurrency", "lease": "60s"}
    document["limits"].append({**limit, "limit": {"roomy": 1000, "single": 1}})


@pytest.fixture(scope="module", params=["memory", "redis"])
def shared_stack(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Stack]:
    policy = Policy({"roomy": Plan(tenants=32), "single": Plan()}, edit=one_at_a_time)
    with running(tmp_path_factory.mktemp("time"), redis=request.param == "redis", policy=policy) as stack:
        yield stack


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
def test_one_after_another_is_never_too_many(stack: Stack, stream: bool) -> None:
    """A slot is free before its client can know that its answer is over."""
    tenant = stack.tenant("single")
    request = http1.encode("POST", chat.PATH, [tenant.bearer], chat.encode(chat.body(stream=stream)))
    client = http1.Connection(stack.envoy.port)
    statuses = []
    for _ in range(REQUESTS):
        client.send(request)
        statuses.append(client.response().status)
    client.close()
    assert statuses.count(200) == REQUESTS, f"{REQUESTS - statuses.count(200)} were refused"
    stack.settles_to(tenant, REQUESTS * chat.usage_of(chat.body()).total, REQUESTS)


def unread(stack: Stack, tenant: Tenant, stream: bool) -> http2.Http2:
    """A client that reads nothing of its answer."""
    client = http2.Http2(stack.envoy.port)
    number = client.start("POST", chat.PATH, [tenant.bearer])
    client.data(number, [chat.encode(chat.body(stream=stream))], end=True)
    return client


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
def test_a_client_that_does_not_read_does_not_put_its_debt_off(stack: Stack, tenant: Tenant, stream: bool) -> None:
    usage = chat.Usage(10, 5000)
    body = chat.completion(LARGE, usage)
    events = [chat.delta_event(LARGE), chat.usage_event(usage), chat.DONE]
    stack.upstream.handler = chat.raw_stream(b"".join(events)) if stream else chat.raw_json(body)
    client = unread(stack, tenant, stream)
    becomes(lambda: len(stack.upstream.requests), 1)
    stack.settles_to(tenant, usage.total, requests=1, timeout=PROMPTLY_S)
    assert stack.envoy.active_requests() == 1, "its stream is not over"
    assert client.response().status == 200
    client.close()
    becomes(stack.envoy.active_requests, 0)
    # What is settled behind it has found nothing charged twice.
    last = stack.tenant()
    assert stack.ask(last).status == 200
    stack.settles_to(last, usage.total, requests=1)
    stack.settles_to(tenant, usage.total, requests=1)


def test_a_stream_that_ends_with_trailers_is_settled_at_its_end(stack: Stack, tenant: Tenant) -> None:
    async def handler(exchange: Exchange) -> None:
        await exchange.head(200, chat.EVENT_STREAM)
        await exchange.chunk(chat.delta_event(LARGE))
        await exchange.finish(b"x-sum: 1\r\n")

    stack.upstream.handler = handler
    client = unread(stack, tenant, stream=True)
    delivered = oracle().prompt(chat.body()["messages"]) + oracle().text(LARGE)
    becomes(lambda: stack.service.bucket(tenant.name).open_holds, 0, 10)
    assert stack.envoy.active_requests() == 1
    assert 0 < stack.service.bucket(tenant.name).tokens <= delivered
    client.close()


@pytest.mark.parametrize("status", [204, 304, 500])
def test_an_answer_without_a_body_is_settled_at_its_head(stack: Stack, status: int) -> None:
    tenant = stack.tenant("single")

    async def handler(exchange: Exchange) -> None:
        await exchange.reply(status, b"", [])

    stack.upstream.handler = handler
    client = http1.Connection(stack.envoy.port)
    request = http1.encode("POST", chat.PATH, [tenant.bearer], chat.encode(chat.body()))
    statuses = []
    for _ in range(20):
        client.send(request)
        statuses.append(client.response().status)
    client.close()
    assert statuses == [status] * 20
    becomes(lambda: stack.service.bucket(tenant.name).open_holds, 0)
