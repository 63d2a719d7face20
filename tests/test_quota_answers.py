"""What the filter makes of a quota service that resets, talks nonsense, or says nothing; and what it sends it."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from harness import chat
from harness.oracle import oracle
from harness.policy import Tenant
from harness.quota import Answer, Half, Reply, Reset, Silence, allow
from harness.refusals import assert_refused
from harness.stack import FakeStack, running_fake
from harness.wait import eventually

CALLER = Tenant("any", "any")


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeStack]:
    with running_fake(tmp_path_factory.mktemp("quota"), {"quota": {"timeout_ms": 1000}}) as stack:
        yield stack


@pytest.fixture
def stack(started: FakeStack) -> Iterator[FakeStack]:
    started.upstream.reset()
    started.quota.reset()
    yield started
    started.check()


def ask(stack: FakeStack, **members: Any) -> Any:
    return stack.post([CALLER.bearer], chat.body(**members))


def settled(stack: FakeStack) -> list[dict[str, Any]]:
    """What was settled for the test's first reserve; an earlier test's settle may come late."""
    return eventually(lambda: stack.quota.settles_of(stack.quota.reserves[0]), bool)


NONSENSE = {
    "500": Reply(500, b'{"decision":"allow"}'),
    "503 in plain text": Reply(503, b"upstream connect error or disconnect/reset before headers"),
    "404": Reply(404, b"{}"),
    "empty object": Reply(200, b"{}"),
    "no body": Reply(200, b""),
    "text": Reply(200, b"allow"),
    "not UTF-8": Reply(200, b'{"decision":"\xff\xfe"}'),
    "another decision": Reply(200, b'{"decision":"perhaps","policy_version":"1"}'),
    "array": Reply(200, b"[]"),
    "a megabyte": Reply(200, b"x" * (1 << 20)),
    "cut": Reply(200, b'{"decision":"allow","account":"a","limits":[],"policy_ver'),
    "silence": Silence(),
    "stalls in mid-answer": Half(then_reset=False),
    "cut in mid-answer": Half(then_reset=True),
    "resets every time": Reset(),
}


@pytest.mark.parametrize("answer", NONSENSE.values(), ids=NONSENSE)
def test_no_usable_answer_is_not_an_allow(stack: FakeStack, answer: Answer) -> None:
    stack.quota.on_reserve = lambda reserve: answer
    response = ask(stack)
    assert_refused(response, 503, "api_error", "quota_unavailable")
    assert response.header("retry-after") == "1"
    assert stack.upstream.requests == []
    # Whoever gives up, closes: the service may have held something.
    [item] = settled(stack)
    assert (item["outcome"], item["sent"]) == ("released", False)
    assert item["reserve"]["id"] == stack.quota.reserves[0]["id"], "the service can tell whose it was"


def test_a_reset_is_tried_once_more_with_the_same_id(stack: FakeStack) -> None:
    stack.quota.on_reserve = lambda reserve: Reset() if reserve["attempt"] == 1 else allow(reserve)
    assert ask(stack).status == 200
    first, second = stack.quota.reserves
    assert (first["attempt"], second["attempt"]) == (1, 2)
    assert first["id"] == second["id"]
    assert [item["outcome"] for item in settled(stack)] == ["used"]


def test_silence_is_not_tried_again(stack: FakeStack) -> None:
    stack.quota.on_reserve = lambda reserve: Silence()
    assert ask(stack).status == 503
    settled(stack)
    assert len(stack.quota.reserves) == 1


def test_gone_is_answered_as_unavailable_and_not_settled_again(stack: FakeStack) -> None:
    stack.quota.on_reserve = lambda reserve: Reply(200, b'{"decision":"gone","policy_version":"fake"}')
    assert ask(stack).status == 503
    assert stack.upstream.requests == []
    assert_no_settle(stack)


def test_a_denied_request_is_not_settled(stack: FakeStack) -> None:
    body = b'{"decision":"deny","reason":"tpm_limit_exceeded","retry_after_ms":1500,"policy_version":"fake"}'
    stack.quota.on_reserve = lambda reserve: Reply(200, body)
    response = ask(stack)
    assert_refused(response, 429, "rate_limit_error", "tpm_limit_exceeded")
    assert (response.header("retry-after"), response.header("retry-after-ms")) == ("2", "1500")
    assert_no_settle(stack)


def assert_no_settle(stack: FakeStack) -> None:
    """Nothing for the last reserve, although a request that came after it has been settled."""
    closed = stack.quota.reserves[-1]
    stack.quota.on_reserve = allow
    assert ask(stack).status == 200
    later = stack.quota.reserves[-1]
    eventually(lambda: stack.quota.settles_of(later), bool)
    assert stack.quota.settles_of(closed) == []


def test_what_a_reserve_says(stack: FakeStack) -> None:
    assert ask(stack, model=" GPT-4o ", n=3, stream=True).status == 200
    [reserve] = stack.quota.reserves
    assert re.fullmatch(r"[0-9a-f]{32}", reserve.pop("id"))
    assert 0 < reserve.pop("deadline_ms") <= 1000
    reserve.pop("request_id", None)
    assert reserve == {
        "attempt": 1,
        "key_hash": CALLER.key_hash,
        "model": "gpt-4o",
        "dialect": "openai",
        "endpoint": "chat.completions",
        "prompt_tokens": oracle().prompt(chat.body()["messages"]),
        "max_output_tokens": 50,
        "choices": 3,
        "stream": True,
        "can_clamp": True,
        "ip": "127.0.0.1",
    }


def test_ids_are_never_the_clients(stack: FakeStack) -> None:
    """The same request with the same request id twice is two reservations."""
    headers = [CALLER.bearer, ("x-request-id", "11111111-1111-4111-8111-111111111111")]
    for _ in range(2):
        assert stack.post(headers, chat.body()).status == 200
    first, second = stack.quota.reserves
    assert first["id"] != second["id"]
    assert "1111" * 4 not in first["id"]


def test_a_missing_output_limit_is_left_to_the_service(stack: FakeStack) -> None:
    body = chat.body()
    del body["max_tokens"]
    assert stack.post([CALLER.bearer], body).status == 200
    assert stack.quota.reserves[0]["max_output_tokens"] is None
    assert stack.upstream.only_request().body == chat.encode(body), "nothing is written into the request"


def test_a_smaller_grant_is_written_into_the_request(stack: FakeStack) -> None:
    def clamp(reserve: dict[str, Any]) -> Answer:
        return allow({**reserve, "max_output_tokens": 17})

    stack.quota.on_reserve = clamp
    assert ask(stack).status == 200
    assert stack.upstream.only_request().json()["max_tokens"] == 17


def test_a_granted_limit_is_added_where_there_is_none(stack: FakeStack) -> None:
    stack.quota.on_reserve = lambda reserve: allow({**reserve, "max_output_tokens": 17})
    body = chat.body()
    del body["max_tokens"]
    assert stack.post([CALLER.bearer], body).status == 200
    seen = stack.upstream.only_request()
    assert seen.body == chat.encode(body).replace(b"{", b'{"max_tokens":17,', 1)
    assert seen.header("content-length") == str(len(seen.body))


def test_a_decision_without_the_store_can_be_booked(stack: FakeStack) -> None:
    def degraded(reserve: dict[str, Any]) -> Answer:
        answer = {"decision": "allow", "account": "account-1", "degraded": True, "policy_version": "fake"}
        return Reply(body=json.dumps(answer).encode())

    stack.quota.on_reserve = degraded
    response = ask(stack)
    assert (response.status, response.header("x-tokengate-degraded")) == (200, "open")
    [item] = settled(stack)
    assert (item["account"], item["outcome"]) == ("account-1", "used")
    assert item["reserve"] == {**stack.quota.reserves[0]}


def test_a_new_policy_version_is_fetched(stack: FakeStack) -> None:
    """Here the model's maximum changes; it shows in what the filter asks to hold."""
    models = stack.quota.models
    stack.quota.models = [{**model, "max_output_tokens": 30} for model in models]
    stack.quota.version = "next"
    stack.quota.on_reserve = lambda reserve: allow(reserve, version=stack.quota.version)
    try:
        eventually(lambda: ask(stack) and stack.quota.reserves[-1]["max_output_tokens"], lambda held: held == 30)
    finally:
        stack.quota.models, stack.quota.version = models, "fake"
    eventually(lambda: ask(stack) and stack.quota.reserves[-1]["max_output_tokens"], lambda held: held == 50)


def test_what_a_settle_says(stack: FakeStack) -> None:
    usage = (
        b'{"prompt_tokens":100,"completion_tokens":30,"total_tokens":130,'
        b'"prompt_tokens_details":{"cached_tokens":80},"completion_tokens_details":{"reasoning_tokens":10}}'
    )
    stack.upstream.handler = chat.raw_json(b'{"choices":[],"usage":%s}' % usage)
    assert ask(stack).status == 200
    [item] = settled(stack)
    assert item["account"] == "account-1"
    assert (item["outcome"], item["sent"]) == ("used", True)
    # The classes are disjoint.
    assert item["usage"] == {"input": 20, "cache_read": 80, "cache_write": 0, "output": 20, "reasoning": 10}
    assert item.get("reserve") is None, "its answer was seen"
    assert item["age_ms"] >= item["queued_ms"] >= 0
