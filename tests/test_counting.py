"""Counting in step with the arriving body: exact on hostile prompts, and the worker serves others in between."""

import gzip
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import chat, http1
from harness.holding import at_body
from harness.oracle import oracle
from harness.policy import Tenant
from harness.stack import FakeStack, running_fake
from harness.wait import becomes, eventually

TENANT = Tenant("counting", "roomy")
RANDOM = random.Random(5)
# Tokens that begin in one piece of the body and end in the next; and texts that no rule lets cut.
HOSTILE = {
    "letters": "".join(RANDOM.choices("abcdefghijklmnopqrstuvwxyz", k=2_000_000)),
    "one letter": "a" * 2_000_000,
    "spaces": " " * 2_000_001 + "a",
    "quotes": "'\\\"" * 700_000,
    "line ends": "\n\r" * 1_000_000,
    "symbols": "".join(RANDOM.choices("!=-+*/~^&#", k=2_000_000)),
    "ideographs": "的世界价格" * 140_000,
    "emoji": "🙂👩\u200d👧" * 130_000,
}
# tiktoken-rs gives up on these: 128 spaces are a token, and the last one is the letter's.
KNOWN = {"spaces": 2_000_000 // 128 + 1}
PACKED = ["letters", "one letter", "spaces", "emoji"]


@pytest.fixture(scope="module")
def shared_fake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeStack]:
    with running_fake(tmp_path_factory.mktemp("counting")) as stack:
        yield stack


@pytest.fixture
def fake(shared_fake: FakeStack) -> Iterator[FakeStack]:
    shared_fake.upstream.reset()
    shared_fake.quota.reset()
    # What it would report is the oracle's to count; these prompts take it seconds.
    shared_fake.upstream.handler = chat.raw_json(chat.completion("x", chat.Usage(1, 1)))
    yield shared_fake
    shared_fake.check()


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("model_first", [True, False], ids=["model first", "model last"])
def test_a_hostile_prompt_is_counted_exactly(fake: FakeStack, name: str, model_first: bool) -> None:
    messages = {"messages": [{"role": "user", "content": HOSTILE[name]}]}
    body = {"model": "gpt-4o", **messages} if model_first else {**messages, "model": "gpt-4o"}
    assert fake.post([TENANT.bearer], body).status == 200
    text = KNOWN[name] if name in KNOWN else oracle().text(HOSTILE[name])
    [reserve] = fake.quota.reserves
    assert reserve["prompt_tokens"] == text + 7
    assert fake.upstream.only_request().body == chat.encode(body)


def test_others_are_served_while_a_prompt_is_counted(fake: FakeStack) -> None:
    hostile = chat.encode(chat.body(messages=[{"role": "user", "content": HOSTILE["letters"] * 4}]))
    connection = http1.Connection(fake.envoy.port)
    try:
        before = rx_bytes(fake)
        connection.send(http1.encode("POST", chat.PATH, [TENANT.bearer], hostile))
        eventually(lambda: rx_bytes(fake) - before, lambda count: count > len(hostile))
        assert fake.post([TENANT.bearer], chat.body()).status == 200
        assert connection.response().status == 200
    finally:
        connection.close()
    first, second = (reserve["prompt_tokens"] for reserve in fake.quota.reserves)
    assert first < 50 < second, "the small request did not wait for the large one's count"


def test_every_length_is_answered(fake: FakeStack) -> None:
    """Whether the last byte's callback counts the rest, or the next ticks do, or both begin to."""
    for length in range(13_000, 100_000, 1_500):
        body = chat.encode(chat.body(messages=[{"content": HOSTILE["letters"][:length]}]))
        connection = http1.Connection(fake.envoy.port)
        whole = http1.encode("POST", chat.PATH, [TENANT.bearer], body)
        connection.send(whole[:-300])
        connection.send(whole[-300:])
        assert connection.response().status == 200, length
        connection.close()


def test_all_of_many_are_counted(fake: FakeStack) -> None:
    """Their counts take turns; who leaves in the middle is no hindrance and holds nothing."""
    bodies = [chat.body(messages=[{"role": "user", "content": text[:900_000]}]) for text in HOSTILE.values()]
    left = http1.Connection(fake.envoy.port)
    left.send(http1.encode("POST", chat.PATH, [TENANT.bearer], chat.encode(bodies[0])))
    connections = [fake.open(TENANT, body) for body in bodies]
    left.abort()
    try:
        assert [connection.response().status for connection in connections] == [200] * len(bodies)
    finally:
        for connection in connections:
            connection.close()
    becomes(fake.envoy.active_requests, 0)
    # The one that left may have been counted before it did.
    assert len(fake.quota.reserves) - len(bodies) in (0, 1)


def test_packed_prompts_are_counted_one_after_the_other(fake: FakeStack) -> None:
    packed = {name: gzip.compress(chat.encode(chat.body(messages=[{"content": HOSTILE[name]}])), 1) for name in PACKED}
    connections = {name: fake.open(TENANT, body, ("content-encoding", "gzip")) for name, body in packed.items()}
    try:
        for connection in connections.values():
            assert connection.response().status == 200
    finally:
        for connection in connections.values():
            connection.close()
    counted = sorted(reserve["prompt_tokens"] for reserve in fake.quota.reserves)
    assert counted == sorted(6 + (KNOWN.get(name) or oracle().text(HOSTILE[name])) for name in PACKED)


def test_a_body_without_held_headers(tmp_path: Path) -> None:
    with running_fake(tmp_path, edit=at_body) as stack:
        stack.upstream.handler = chat.raw_json(chat.completion("x", chat.Usage(1, 1)))
        assert stack.post([TENANT.bearer], chat.body(messages=[{"content": HOSTILE["spaces"]}])).status == 200
        assert [reserve["prompt_tokens"] for reserve in stack.quota.reserves] == [KNOWN["spaces"] + 6]


def rx_bytes(fake: FakeStack) -> int:
    """Bytes that Envoy has read of its clients, the admin's own requests left out."""
    stats = fake.envoy.stats(r"^http\..*downstream_cx_rx_bytes_total$")
    return sum(count for name, count in stats.items() if not name.startswith("http.admin."))


def test_a_body_of_any_size_is_answered(fake: FakeStack) -> None:
    """Also one whose last bytes come, and are counted, while the root context was to count on."""
    for size in range(60_000, 200_000, 1_111):
        messages = [{"role": "user", "content": "x y" * (size // 3)}]
        assert fake.post([TENANT.bearer], chat.body(messages=messages)).status == 200
