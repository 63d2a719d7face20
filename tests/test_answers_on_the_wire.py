"""What the quota service is told of an answer, and whether the provider is asked for its usage at all."""

from collections.abc import Iterator

import pytest

from harness import chat
from harness.oracle import oracle
from harness.policy import MODELS
from harness.stack import FakeStack, running_fake
from harness.wait import becomes

BEARER = ("authorization", "Bearer sk-test-1")
QUIET = {"name": "quiet", "match": ["quiet"], "tokenizer": "o200k_base", "usage_chunk": "never"}


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeStack]:
    with running_fake(tmp_path_factory.mktemp("answers"), models=[*MODELS, QUIET]) as stack:
        yield stack


@pytest.fixture(autouse=True)
def _afresh(fake: FakeStack) -> None:
    fake.upstream.reset()
    fake.quota.settles.clear()


@pytest.mark.parametrize("stream", [False, True])
def test_a_settle_names_the_model_and_the_tier(fake: FakeStack, stream: bool) -> None:
    answer = b'{"model":"GPT-4o-2024-08-06","service_tier":"priority","choices":[],"usage":{"prompt_tokens":9,%s}}'
    answer %= b'"completion_tokens":2'
    fake.upstream.handler = chat.raw_stream(b"data: " + answer + b"\n\n" + chat.DONE) if stream else chat.raw_json(answer)
    assert fake.post([BEARER], chat.body(stream=stream)).status == 200
    becomes(lambda: len(fake.quota.settles), 1)
    [item] = fake.quota.settles
    assert (item["model"], item["service_tier"]) == ("gpt-4o-2024-08-06", "priority")
    assert item["usage"]["input"] == 9


def test_an_answer_that_names_nothing(fake: FakeStack) -> None:
    fake.upstream.handler = chat.raw_json(b'{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2}}')
    assert fake.post([BEARER], chat.body()).status == 200
    becomes(lambda: len(fake.quota.settles), 1)
    assert not {"model", "service_tier"} & set(fake.quota.settles[0])


def test_a_model_whose_usage_is_not_asked_for(fake: FakeStack) -> None:
    """The request goes on as it came, the stream too, and its text is charged."""
    body = chat.body(model="quiet", stream=True)
    assert fake.post([BEARER], body).body == b"".join(chat.stream_events(chat.DELTAS, None, asked=False))
    assert fake.upstream.only_request().body == chat.encode(body)
    becomes(lambda: len(fake.quota.settles), 1)
    usage = fake.quota.settles[0]["usage"]
    assert (usage["input"], usage["output"]) == (oracle().prompt(body["messages"]), oracle().text("".join(chat.DELTAS)))
