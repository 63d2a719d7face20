"""Counting in step with the arriving body: exact on hostile prompts, and the worker serves others in between."""

import random
from collections.abc import Iterator

import pytest

from harness import chat, http1
from harness.oracle import oracle
from harness.policy import Tenant
from harness.stack import FakeStack, running_fake
from harness.wait import eventually

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


def rx_bytes(fake: FakeStack) -> int:
    """Bytes that Envoy has read of its clients, the admin's own requests left out."""
    stats = fake.envoy.stats(r"^http\..*downstream_cx_rx_bytes_total$")
    return sum(count for name, count in stats.items() if not name.startswith("http.admin."))


def test_a_body_of_any_size_is_answered(fake: FakeStack) -> None:
    """Also one whose last bytes come, and are counted, while the root context was to count on."""
    for size in range(60_000, 200_000, 1_111):
        messages = [{"role": "user", "content": "x y" * (size // 3)}]
        assert fake.post([TENANT.bearer], chat.body(messages=messages)).status == 200
