"""A quota service that floods, trickles, answers the dead, and takes settles only after several tries."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from harness import chat, http1, http2
from harness.policy import Tenant
from harness.quota import After, Answer, Half, Reply, Reset, Silence, Trickle, allow
from harness.refusals import assert_refused
from harness.stack import FakeStack, running_fake
from harness.wait import becomes, eventually

CALLER = Tenant("any", "any")
DEADLINE_MS = 1000
LARGE = 10 << 20
# What an answer that never ends may take beyond the deadline on a busy machine.
SLACK_S = 1.0


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeStack]:
    with running_fake(tmp_path_factory.mktemp("floods"), {"quota": {"timeout_ms": DEADLINE_MS}}) as stack:
        yield stack


@pytest.fixture
def stack(started: FakeStack) -> Iterator[FakeStack]:
    started.upstream.reset()
    started.quota.reset()
    yield started
    started.check()


def ask(stack: FakeStack, **members: Any) -> http1.Response:
    return stack.post([CALLER.bearer], chat.body(**members))


def settled(stack: FakeStack, timeout: float = 5.0) -> list[dict[str, Any]]:
    return eventually(lambda: stack.quota.settles_of(stack.quota.reserves[0]), bool, timeout)


ENDLESS = {
    "10 MB of text": Reply(200, b"x" * LARGE),
    "10 MB of brackets": Reply(200, b"[" * LARGE),
    "10 MB of white space": Reply(200, b" " * LARGE),
    "10 MB in a string": Reply(200, b'{"decision":"' + b"allow" * (LARGE // 5) + b'"}'),
    "10 MB of an error": Reply(500, b"x" * LARGE),
    "a trickle": Trickle(),
}


@pytest.mark.parametrize("answer", ENDLESS.values(), ids=ENDLESS)
def test_too_much_or_too_slow_is_no_answer(stack: FakeStack, answer: Answer) -> None:
    stack.quota.on_reserve = lambda reserve: answer
    start = time.monotonic()
    response = ask(stack)
    assert time.monotonic() - start < DEADLINE_MS / 1000 + SLACK_S
    assert_refused(response, 503, "api_error", "quota_unavailable")
    assert stack.upstream.requests == []
    [item] = settled(stack)
    assert (item["outcome"], item["sent"]) == ("released", False)


def test_ten_megabytes_beside_the_answer_do_no_harm(stack: FakeStack) -> None:
    """A field that we do not know is ignored, or the whole is no answer; the request is settled either way."""

    def padded(reserve: dict[str, Any]) -> Answer:
        whole = allow(reserve)
        assert isinstance(whole, Reply)
        return Reply(body=json.dumps({**json.loads(whole.body), "padding": "x" * LARGE}).encode())

    stack.quota.on_reserve = padded
    served = {200: "used", 503: "released"}
    response = ask(stack)
    [item] = settled(stack)
    assert item["outcome"] == served[response.status]


def test_again_and_again(stack: FakeStack) -> None:
    """What such answers leave behind does not add up to a stop."""
    stack.quota.on_reserve = lambda reserve: Reply(200, b"[" * LARGE)
    for _ in range(10):
        assert ask(stack).status == 503
    stack.quota.on_reserve = allow
    assert ask(stack).status == 200


def test_headers_of_the_service_that_are_not_utf8(stack: FakeStack) -> None:
    def odd(reserve: dict[str, Any]) -> Answer:
        whole = allow(reserve)
        assert isinstance(whole, Reply)
        return Reply(body=whole.body, headers=(("x-odd", b"\xc0\xa7\xff"), ("x-long", "y" * 8000)))

    stack.quota.on_reserve = odd
    assert ask(stack).status == 200
    assert [item["outcome"] for item in settled(stack)] == ["used"]


DENY = Reply(200, b'{"decision":"deny","reason":"tpm_limit_exceeded","retry_after_ms":1500,"policy_version":"fake"}')
GONE = Reply(200, b'{"decision":"gone","policy_version":"fake"}')


def hang_up_http1(stack: FakeStack) -> None:
    client = http1.Connection(stack.envoy.port)
    client.send(http1.encode("POST", chat.PATH, [CALLER.bearer], chat.encode(chat.body())))
    becomes(lambda: len(stack.quota.reserves), 1)
    client.abort()


def hang_up_http2(stack: FakeStack) -> None:
    client = http2.Http2(stack.envoy.port)
    stream = client.start("POST", chat.PATH, [CALLER.bearer])
    client.data(stream, [chat.encode(chat.body())], end=True)
    becomes(lambda: len(stack.quota.reserves), 1)
    client.reset(stream)
    client.close()


@pytest.mark.parametrize("hang_up", [hang_up_http1, hang_up_http2])
@pytest.mark.parametrize("answer", [None, DENY, GONE, Reply(500)], ids=["allow", "deny", "gone", "500"])
def test_an_answer_that_comes_when_its_stream_is_gone(stack: FakeStack, answer: Answer | None, hang_up: Any) -> None:
    held = stack.quota.hold_next_reserve()
    hang_up(stack)
    becomes(stack.envoy.active_requests, 0)
    [item] = settled(stack)
    assert (item["outcome"], item["sent"]) == ("released", False)
    assert item["reserve"]["id"] == stack.quota.reserves[0]["id"], "its answer was never seen"
    held.release(answer or allow(stack.quota.reserves[0]))
    # Something that comes later has gone all its way; the first has not been settled again, nor sent.
    assert ask(stack).status == 200
    eventually(lambda: stack.quota.settles_of(stack.quota.reserves[1]), bool)
    assert len(settled(stack)) == 1
    assert len(stack.upstream.requests) == 1


BAD_SETTLES = {
    "500": Reply(500),
    "503": Reply(503, b"upstream connect error"),
    "reset": Reset(),
    "silence": Silence(),
    "half": Half(then_reset=False),
    "trickle": Trickle(),
    "no JSON": Reply(200, b"thanks"),
    "10 MB": Reply(200, b"[" * LARGE),
}


@pytest.mark.parametrize("answer", BAD_SETTLES.values(), ids=BAD_SETTLES)
def test_a_settle_is_sent_until_it_is_taken(stack: FakeStack, answer: Answer) -> None:
    tries = 2
    stack.quota.on_settle = lambda: answer if len(settles_of_first(stack)) <= tries else None
    assert ask(stack).status == 200
    eventually(lambda: settles_of_first(stack), lambda items: len(items) > tries, 20)
    # One that is queued later is taken; the first is not sent again.
    assert ask(stack).status == 200
    eventually(lambda: stack.quota.settles_of(stack.quota.reserves[1]), bool)
    items = settles_of_first(stack)
    assert len(items) == tries + 1
    assert len({json.dumps(item["usage"]) for item in items}) == 1
    ages = [item["age_ms"] for item in items]
    assert ages == sorted(ages)


def settles_of_first(stack: FakeStack) -> list[dict[str, Any]]:
    return stack.quota.settles_of(stack.quota.reserves[0]) if stack.quota.reserves else []


def post(client: http1.Connection) -> None:
    client.send(http1.encode("POST", chat.PATH, [CALLER.bearer], chat.encode(chat.body())))


@pytest.mark.parametrize("answer", [None, DENY, GONE, Reply(500)], ids=["allow", "deny", "gone", "500"])
def test_an_answer_at_the_instant_of_the_deadline(stack: FakeStack, answer: Answer | None) -> None:
    """Whichever comes first: the client is answered once, and what may be held is settled once."""
    delays = iter([(DEADLINE_MS + ms) / 1000 for ms in range(-20, 20, 2)] * 2)
    stack.quota.on_reserve = lambda reserve: After(next(delays), answer or allow(reserve))
    clients = [http1.Connection(stack.envoy.port) for _ in range(20)]
    for client in clients:
        post(client)
    statuses = [client.response().status for client in clients]
    served = len(stack.upstream.requests)
    early = {reserve["id"]: reserve for reserve in stack.quota.reserves}
    assert (len(early), served) == (len(clients), statuses.count(200))
    in_time = {None: 200, DENY: 429}.get(answer, 503)
    assert set(statuses) <= {in_time, 503}
    # Every connection serves on: of a second answer something would be left over.
    stack.quota.on_reserve = allow
    for client in clients:
        post(client)
        assert client.response().status == 200
        client.close()
    late = [reserve for reserve in stack.quota.reserves if reserve["id"] not in early]
    becomes(lambda: [len(stack.quota.settles_of(reserve)) for reserve in late], [1] * len(clients))
    settles = [stack.quota.settles_of(reserve) for reserve in early.values()]
    assert max(map(len, settles)) <= 1
    outcomes = [items[0]["outcome"] for items in settles if items]
    assert outcomes.count("used") == served
    # A deny or gone that came in time has nothing to settle; how many did, the client is told of a deny only.
    if answer is DENY:
        assert len(outcomes) == statuses.count(503)
    elif answer is not GONE:
        assert len(outcomes) == len(clients)
