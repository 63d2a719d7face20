"""Who calls is known before a body costs anything: asked for while it arrives, and remembered for a while."""

import gzip
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness import chat, http1, http2
from harness.policy import Tenant
from harness.quota import Answer, Half, Reply, Reset, Silence
from harness.refusals import assert_refused
from harness.stack import FakeStack, Stack, running_fake
from harness.wait import becomes, eventually

DEADLINE_MS = 1000
LARGE = 4 << 20
ANSWER = chat.raw_json(chat.completion("x", chat.Usage(10, 5)))
GZIP = ("content-encoding", "gzip")


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeStack]:
    with running_fake(tmp_path_factory.mktemp("identify"), {"quota": {"timeout_ms": DEADLINE_MS}}) as stack:
        yield stack


@pytest.fixture
def fake(started: FakeStack) -> Iterator[FakeStack]:
    started.upstream.reset()
    # What goes on packed, the test's provider does not read.
    started.upstream.handler = ANSWER
    started.quota.reset()
    yield started
    started.check()


_names = iter(range(1_000_000))


def caller() -> Tenant:
    """Nobody has asked for it before."""
    return Tenant(f"caller-{next(_names)}", "any")


def unfinished(stack: FakeStack | Stack, tenant: Tenant, *headers: tuple[str, str]) -> http1.Connection:
    """The head of a large request, and a part of its body."""
    client = http1.Connection(stack.envoy.port)
    fields = [tenant.bearer, *headers, ("content-length", str(LARGE))]
    client.send(http1.encode("POST", chat.PATH, fields, b"x" * 10_000, length=False))
    return client


@pytest.mark.parametrize("coding", [[], [GZIP]], ids=["plain", "gzip"])
def test_strangers_are_refused_before_their_bodies_are_there(fake: FakeStack, coding: list[tuple[str, str]]) -> None:
    fake.quota.on_identify = lambda question: False
    clients = [unfinished(fake, caller(), *coding) for _ in range(24)]
    for client in clients:
        assert_refused(client.response(), 401, "authentication_error", "unknown_key")
        client.close()
    becomes(fake.envoy.active_requests, 0)
    assert (fake.upstream.requests, fake.quota.reserves) == ([], [])


def test_a_caller_is_asked_for_once(fake: FakeStack) -> None:
    tenant = caller()
    for _ in range(3):
        assert fake.post([tenant.bearer, GZIP], gzip.compress(chat.encode(chat.body()))).status == 200
    assert fake.quota.questions == [{"key_hash": tenant.key_hash}], "the hash, and nothing else"


def test_a_reserve_tells_as_well(fake: FakeStack) -> None:
    tenant = caller()
    assert fake.post([tenant.bearer], chat.body()).status == 200
    assert fake.post([tenant.bearer, GZIP], gzip.compress(chat.encode(chat.body()))).status == 200
    assert fake.quota.questions == []


def test_an_unknown_caller_is_remembered(fake: FakeStack) -> None:
    tenant = caller()
    fake.quota.on_identify = lambda question: False
    for _ in range(3):
        response = fake.post([tenant.bearer, GZIP], gzip.compress(chat.encode(chat.body())))
        assert_refused(response, 401, "authentication_error", "unknown_key")
    assert len(fake.quota.questions) == 1


def test_streams_of_one_caller_ask_together(fake: FakeStack) -> None:
    tenant = caller()
    fake.quota.on_identify = lambda question: Silence()
    clients = [unfinished(fake, tenant) for _ in range(5)]
    for client in clients:
        assert_refused(client.response(), 503, "api_error", "quota_unavailable")
        client.close()
    assert len(fake.quota.questions) in (1, 2), "the repeat after a deadline that came early"


def test_a_body_of_no_known_length_is_asked_for(fake: FakeStack) -> None:
    tenant, body = caller(), chat.encode(chat.body())
    response = http2.request(fake.envoy.port, [tenant.bearer], [body], chat.PATH)
    assert response.status == 200
    assert fake.quota.questions == [{"key_hash": tenant.key_hash}]
    assert fake.upstream.only_request().json() == chat.body()


def test_the_body_waits_for_the_answer(fake: FakeStack) -> None:
    """Whatever comes first: nothing is lost of it."""
    tenant, body = caller(), chat.encode(chat.body(padding="y" * LARGE))
    response = fake.post([tenant.bearer], body)
    assert response.status == 200
    assert fake.upstream.only_request().body == body


NO_ANSWER = {
    "500": Reply(500),
    "no JSON": Reply(200, b"yes"),
    "silence": Silence(),
    "half": Half(then_reset=False),
    "resets every time": Reset(),
}


@pytest.mark.parametrize("answer", NO_ANSWER.values(), ids=NO_ANSWER)
def test_no_answer_is_not_a_yes(fake: FakeStack, answer: Answer) -> None:
    fake.quota.on_identify = lambda question: answer
    client = unfinished(fake, caller())
    start = time.monotonic()
    assert_refused(client.response(), 503, "api_error", "quota_unavailable")
    assert time.monotonic() - start < DEADLINE_MS / 1000 + 1
    client.close()
    assert fake.quota.reserves == []


def test_a_broken_connection_is_tried_once_more(fake: FakeStack) -> None:
    fake.quota.on_identify = lambda question: Reset() if len(fake.quota.questions) == 1 else True
    response = fake.post([caller().bearer, GZIP], gzip.compress(chat.encode(chat.body())))
    assert (response.status, len(fake.quota.questions)) == (200, 2)


def test_a_service_that_is_older_than_the_question_is_not_asked_again(fake: FakeStack) -> None:
    """Last of this stack: its filter does not ask for a minute."""
    fake.quota.on_identify = lambda question: Reply(404)
    for _ in range(3):
        assert fake.post([caller().bearer, GZIP], gzip.compress(chat.encode(chat.body()))).status == 200
    assert len(fake.quota.questions) == 1


def test_a_strangers_bodies_do_not_stall_honest_callers(stack: Stack, tenant: Tenant) -> None:
    packed = gzip.compress(chat.encode(chat.body(messages=[{"role": "user", "content": "word " * 1_500_000}])))
    small = gzip.compress(chat.encode(chat.body()))
    stack.upstream.handler = ANSWER
    stranger = ("authorization", "Bearer sk-test-made-up")
    with ThreadPoolExecutor(30) as pool:
        answers = [pool.submit(stack.post, [stranger, GZIP], packed) for _ in range(30)]
        start = time.monotonic()
        assert stack.post([tenant.bearer, GZIP], small).status == 200
        took = time.monotonic() - start
        for answer in answers:
            assert_refused(answer.result(), 401, "authentication_error", "unknown_key")
    assert took < 2, "inflating and counting theirs takes many seconds"


def test_a_callers_large_bodies_do_not_stall_another_caller(stack: Stack, tenant: Tenant) -> None:
    """They take turns by caller, so that the other waits for one of them and not for all."""
    busy = stack.tenant()
    stack.upstream.handler = ANSWER
    packed = gzip.compress(chat.encode(chat.body(messages=[{"role": "user", "content": "word " * 1_000_000}])))
    done: list[float] = []

    def large() -> int:
        status = stack.post([busy.bearer, GZIP], packed).status
        done.append(time.monotonic())
        return status

    with ThreadPoolExecutor(12) as pool:
        answers = [pool.submit(large) for _ in range(12)]
        eventually(lambda: len(done), lambda count: count >= 1, 30)
        assert stack.post([tenant.bearer, GZIP], gzip.compress(chat.encode(chat.body()))).status == 200
        before = len(done)
        assert {answer.result() for answer in answers} == {200}
    assert before <= 8, "it waited for nearly all of them"
