"""What operators read on `/stats/prometheus`: the filter's metrics, with their labels made by `envoy.yaml`."""

from collections.abc import Iterator
from typing import Any

import pytest

from harness import chat, http1
from harness.envoy import Config
from harness.metrics import Metrics
from harness.quota import Reply, Reset
from harness.stack import FakeStack, Stack, running, running_fake
from harness.wait import becomes, eventually


@pytest.fixture(scope="module")
def shared_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(tmp_path_factory.mktemp("metrics"), edit=flushed_when_read) as stack:
        yield stack


def flushed_when_read(config: Config) -> None:
    """Histograms are shown as of now, not as of the last five seconds' flush."""
    config.document["stats_flush_on_admin"] = True


def metrics(stack: Stack | FakeStack) -> Metrics:
    return Metrics(stack.envoy.admin_port)


def test_an_admitted_request(stack: Stack) -> None:
    before, tenant = metrics(stack), stack.tenant()
    usage = {"prompt_tokens": 9, "completion_tokens": 7, "total_tokens": 16,
             "prompt_tokens_details": {"cached_tokens": 4}, "completion_tokens_details": {"reasoning_tokens": 2}}
    stack.upstream.handler = chat.raw_json(chat.encode({"choices": [], "usage": usage}))
    assert stack.ask(tenant, max_tokens=50).status == 200
    stack.settles_to(tenant, 16, requests=1)
    made = metrics(stack).since(before)
    assert made["requests", {"decision": "admitted", "dialect": "openai", "model": "gpt-4o"}] == 1
    assert made["held_tokens", {"class": "prompt", "model": "gpt-4o"}] == chat.usage_of(chat.body()).prompt
    assert made["held_tokens", {"class": "output", "model": "gpt-4o"}] == 50
    assert made["settles", {"outcome": "used", "model": "gpt-4o"}] == 1
    tokens = {labels["class"]: value for labels, value in made.all("settled_tokens")}
    assert tokens == {"input": 5, "cache_read": 4, "output": 5, "reasoning": 2}
    assert made["unbounded_output", {"model": "gpt-4o"}] == 0
    assert made["usage_missing", {"model": "gpt-4o"}] == made["usage_mismatch", {"model": "gpt-4o"}] == 0


def test_durations_are_histograms(stack: Stack) -> None:
    before, tenant = metrics(stack), stack.tenant()
    assert stack.ask(tenant).status == 200
    for name in ("reserve_us", "counting_us"):
        # Each look merges what the workers have recorded, for the next one to see.
        made = eventually(
            lambda: metrics(stack).since(before), lambda made, of=f"{name}_count": made[of, {}] == 1
        )
        assert made[f"{name}_sum", {}] > 0, "a real clock was read"
        assert made[f"{name}_bucket", {"le": "+Inf"}] == 1


def test_settles_are_followed_to_their_answer(stack: Stack) -> None:
    before, tenant = metrics(stack), stack.tenant()
    assert stack.ask(tenant).status == 200
    stack.settles_to(tenant, chat.usage_of(chat.body()).total, requests=1)
    made = eventually(
        lambda: metrics(stack).since(before), lambda made: made["settle_answers", {"status": "settled"}] == 1
    )
    assert made["settles_sent", {}] == 1
    assert made["settles_retried", {}] == made["settles_dropped", {}] == 0
    becomes(lambda: metrics(stack)["outbox_items", {}], 0)


@pytest.mark.parametrize(
    ("body", "member"),
    [
        (b"not json", "body"),
        (b'{"model":"gpt-4o","messages":[],"max_tokens":"1"}', "max_tokens"),
        (b'{"model":7,"messages":[]}', "model"),
        (b'{"model":"gpt-4o","messages":{}}', "messages"),
    ],
)
def test_refused_bodies(stack: Stack, body: bytes, member: str) -> None:
    before = metrics(stack)
    assert stack.post([stack.tenant().bearer], body).status == 400
    made = metrics(stack).since(before)
    assert made["body_refusals", {"member": member}] == 1
    assert made["requests", {"decision": "invalid_request", "dialect": "openai", "model": "none"}] == 1


def test_refusals_by_the_policy_carry_the_policy_s_name_of_the_model(stack: Stack) -> None:
    before = metrics(stack)
    assert stack.ask(stack.tenant("tiny"), model="openai/house-model").status == 429
    assert stack.ask(stack.tenant(), model="a-name-that-only-this-test-has").status == 404
    made = metrics(stack).since(before)
    assert made["requests", {"decision": "request_exceeds_limit", "dialect": "openai", "model": "gpt-4o"}] == 1
    assert made["requests", {"decision": "model_not_found", "dialect": "openai", "model": "unlisted"}] == 1
    assert "only-this-test" not in metrics(stack).text, "a client cannot make a metric"


def test_output_that_nothing_bounds(stack: Stack) -> None:
    before = metrics(stack)
    assert stack.ask(stack.tenant(), max_tokens=None).status == 200
    made = metrics(stack).since(before)
    assert made["unbounded_output", {"model": "gpt-4o"}] == 1
    assert made["held_tokens", {"class": "output", "model": "gpt-4o"}] == 200


def test_usage_that_is_missing_or_cannot_be_right(stack: Stack) -> None:
    before, tenant = metrics(stack), stack.tenant()
    stack.upstream.handler = chat.raw_json(b'{"choices":[{"message":{"content":"hi"}}]}')
    assert stack.ask(tenant).status == 200
    stack.upstream.handler = chat.raw_json(b'{"usage":{"prompt_tokens":5000,"completion_tokens":1}}')
    assert stack.ask(tenant).status == 200
    eventually(lambda: stack.service.bucket(tenant.name, "gpt-4o").open_holds, lambda holds: holds == 0)
    made = metrics(stack).since(before)
    assert made["usage_missing", {"model": "gpt-4o"}] == 1
    assert made["usage_mismatch", {"model": "gpt-4o"}] == 1


@pytest.mark.parametrize(
    ("members", "text", "completion"),
    [
        ({"max_tokens": 200}, ["word "] * 60, 1),
        ({"max_tokens": 200}, ["word "] * 60, 19_503),
        ({"max_tokens": 10, "n": 2}, ["word "] * 10, 21),
        ({"max_tokens": 200}, [], 150),
    ],
    ids=["far too few", "above the limit", "above the limit of all choices", "for no text"],
)
def test_output_that_cannot_be_right_is_charged_and_told_of(
    stack: Stack, members: dict[str, Any], text: list[str], completion: int
) -> None:
    before, tenant = metrics(stack), stack.tenant()
    usage = chat.Usage(chat.usage_of(chat.body()).prompt, completion)
    stack.upstream.handler = chat.raw_stream(b"".join(chat.stream_events(text, usage)))
    assert stack.ask(tenant, stream=True, **members).status == 200
    stack.settles_to(tenant, usage.total, requests=1)
    assert metrics(stack).since(before)["usage_mismatch", {"model": "gpt-4o"}] == 1


@pytest.mark.parametrize(("named", "others"), [("gpt-4", 1), ("gpt-4o-2024-08-06", 0), ("gpt-4o", 0), ("elsewhere", 1)])
def test_answers_by_another_model(stack: Stack, named: str, others: int) -> None:
    before, tenant = metrics(stack), stack.tenant()
    answer = {"model": named, "choices": [], "usage": chat.Usage(9, 2).json()}
    stack.upstream.handler = chat.raw_json(chat.encode(answer))
    assert stack.ask(tenant).status == 200
    stack.settles_to(tenant, 11, requests=1)
    assert metrics(stack).since(before)["answers_by_other_models", {"model": "gpt-4o"}] == others


def test_output_that_can_be_right(stack: Stack) -> None:
    before, tenant = metrics(stack), stack.tenant()
    for members in ({}, {"stream": True}, {"n": 2}, {"stream": True, "max_tokens": None}):
        assert stack.ask(tenant, **members).status == 200
    stack.closed_bucket(tenant)
    assert metrics(stack).since(before)["usage_mismatch", {"model": "gpt-4o"}] == 0


def test_an_error_of_the_provider_is_no_missing_usage(stack: Stack) -> None:
    before, tenant = metrics(stack), stack.tenant()
    stack.upstream.handler = chat.raw_json(b'{"error":{}}', status=500)
    assert stack.ask(tenant).status == 500
    stack.settles_to(tenant, 0, requests=1)
    made = metrics(stack).since(before)
    assert made["settles", {"outcome": "released", "model": "gpt-4o"}] == 1
    assert made["usage_missing", {"model": "gpt-4o"}] == 0


def test_vocabularies_are_counted_as_they_are_loaded(stack: Stack) -> None:
    for model in ("gpt-4o", "gpt-4"):
        assert stack.ask(stack.tenant(), model=model).status == 200
    # One worker serves; the main thread never counts.
    for encoding in ("o200k_base", "cl100k_base"):
        becomes(lambda name=encoding: metrics(stack)["tokenizer_loads", {"encoding": name}], 1)


def test_listed_paths_have_no_model(stack: Stack) -> None:
    before, tenant = metrics(stack), stack.tenant()
    stack.upstream.handler = chat.raw_json(b"{}")
    assert http1.request(stack.envoy.port, "GET", "/v1/models", [tenant.bearer]).status == 200
    made = metrics(stack).since(before)
    assert made["requests", {"decision": "admitted", "dialect": "openai", "model": "none"}] == 1
    assert made.all("held_tokens") == []


def test_no_label_is_left_in_a_name(stack: Stack) -> None:
    assert stack.ask(stack.tenant()).status == 200
    own = [line for line in metrics(stack).text.splitlines() if "tokengate_" in line and not line.startswith("#")]
    assert own
    for line in own:
        assert "=" not in line.partition("{")[0], line


def test_a_quota_service_that_fails(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("metrics-open")
    with running_fake(folder, plugin={"failure_mode": "open"}) as stack:
        bearer = ("authorization", "Bearer sk-test-1")
        stack.quota.on_reserve = lambda _: Reply(body=b"garbage")
        assert stack.post([bearer], chat.body()).status == 200
        stack.quota.on_reserve = lambda _: Reset()
        assert stack.post([bearer], chat.body()).status == 200
        made = metrics(stack)
        assert made["reserve_failures", {"cause": "unusable"}] == 1
        assert made["reserve_failures", {"cause": "connection"}] == 2, "the try and its one repeat"
        assert made["degraded", {"by": "filter"}] == 2
        assert made["requests", {"decision": "open", "dialect": "openai", "model": "gpt-4o"}] == 2


def test_settles_that_have_to_be_repeated(tmp_path_factory: pytest.TempPathFactory) -> None:
    with running_fake(tmp_path_factory.mktemp("metrics-retry")) as stack:
        failures = iter([Reply(status=503)])
        stack.quota.on_settle = lambda: next(failures, None)
        assert stack.post([("authorization", "Bearer sk-test-1")], chat.body()).status == 200
        made = eventually(lambda: metrics(stack), lambda made: made["settles_retried", {}] == 1)
        assert made["settles_sent", {}] == 1
        becomes(lambda: metrics(stack)["outbox_items", {}], 0)


def test_what_is_booked_after_an_outage(tmp_path_factory: pytest.TempPathFactory) -> None:
    with running(tmp_path_factory.mktemp("metrics-booked"), plugin={"failure_mode": "open"}) as stack:
        tenant, count = stack.tenant(), 3
        stack.proxy.refuse()
        try:
            for _ in range(count):
                assert stack.ask(tenant).status == 200
            becomes(lambda: metrics(stack)["outbox_items", {}], count)
        finally:
            stack.proxy.accept()
        made = eventually(
            lambda: metrics(stack), lambda made: made["settle_answers", {"status": "booked"}] == count, 20
        )
        assert made["degraded", {"by": "filter"}] == count
        assert made["settles_dropped", {}] == 0
        becomes(lambda: metrics(stack)["outbox_items", {}], 0)
        stack.settles_to(tenant, count * chat.usage_of(chat.body()).total, count)


def test_settles_that_find_no_room(tmp_path_factory: pytest.TempPathFactory) -> None:
    room, over = 16, 3
    plugin = {"failure_mode": "open", "outbox": {"max_items": room}}
    with running(tmp_path_factory.mktemp("metrics-dropped"), plugin=plugin) as stack:
        tenant = stack.tenant()
        stack.proxy.refuse()
        try:
            for _ in range(room + over):
                assert stack.ask(tenant).status == 200
            made = eventually(lambda: metrics(stack), lambda made: made["settles_dropped", {}] == over, 10)
            assert made["outbox_items", {}] == room
        finally:
            stack.proxy.accept()
        becomes(lambda: stack.service.bucket(tenant.name).requests, room, 20)
