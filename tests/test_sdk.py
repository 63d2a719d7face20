"""The real openai SDK against the gate."""

from typing import Any

import pytest
from openai import AuthenticationError, BadRequestError, NotFoundError, RateLimitError

from harness import chat
from harness.policy import Tenant
from harness.stack import Stack

TEXT = "".join(chat.DELTAS)


def test_a_call_without_streaming(stack: Stack, tenant: Tenant) -> None:
    answer = stack.openai(tenant).chat.completions.create(**chat.body())
    expected = chat.usage_of(chat.body())
    assert answer.choices[0].message.content == TEXT
    assert answer.usage and answer.usage.total_tokens == expected.total
    stack.settles_to(tenant, expected.total, requests=1)


def test_the_usage_chunk_is_absent_when_not_asked_for(stack: Stack, tenant: Tenant) -> None:
    chunks = list(stack.openai(tenant).chat.completions.create(**chat.body(), stream=True))
    assert chat.asked_for_usage(stack.upstream.only_request()), "the gate asked the provider"
    assert [chunk.usage for chunk in chunks] == [None] * len(chunks)
    # Clients index `choices[0]` without looking.
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == TEXT
    assert chunks[-1].choices[0].finish_reason == "stop"
    stack.settles_to(tenant, chat.usage_of(chat.body()).total, requests=1)


def test_the_usage_chunk_is_present_when_asked_for(stack: Stack, tenant: Tenant) -> None:
    options: Any = {"include_usage": True}
    chunks = list(stack.openai(tenant).chat.completions.create(**chat.body(), stream=True, stream_options=options))
    expected = chat.usage_of(chat.body())
    assert chunks[-1].choices == []
    assert chunks[-1].usage and chunks[-1].usage.total_tokens == expected.total
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]) == TEXT
    stack.settles_to(tenant, expected.total, requests=1)


@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_is_a_rate_limit_error(stack: Stack, stream: bool) -> None:
    tenant = stack.tenant("one-request")
    client = stack.openai(tenant)
    client.chat.completions.create(**chat.body())
    with pytest.raises(RateLimitError) as caught:
        client.chat.completions.create(**chat.body(), stream=stream)
    error = caught.value
    assert error.code == "rpm_limit_exceeded"
    assert error.type == "rate_limit_error"
    assert isinstance(error.body, dict)
    assert error.body["limit"]["name"] == "model-requests"
    assert int(error.response.headers["retry-after"]) > 0
    assert len(stack.upstream.requests) == 1, "the refused call reached nobody"


def test_a_client_that_may_retry_does_not_when_the_wait_is_long(stack: Stack) -> None:
    tenant = stack.tenant("one-request")
    client = stack.openai(tenant, max_retries=2)
    client.chat.completions.create(**chat.body())

    def refusals() -> int:
        return sum(stack.envoy.stats(r"^http\..*downstream_rq_4xx$").values())

    before = refusals()
    with pytest.raises(RateLimitError):
        client.chat.completions.create(**chat.body())
    assert refusals() == before + 1


def test_a_client_that_may_retry_waits_as_told_and_is_served(stack: Stack) -> None:
    tenant = stack.tenant("one-per-burst")
    client = stack.openai(tenant, max_retries=2)
    for _ in range(3):
        assert client.chat.completions.create(**chat.body()).choices[0].message.content == TEXT
    # Three calls at one per window: the windows passed because the client waited.
    stack.settles_to(tenant, 3 * chat.usage_of(chat.body()).total, requests=3)


def test_other_refusals_have_the_exceptions_a_caller_expects(stack: Stack, tenant: Tenant) -> None:
    create = stack.openai(tenant).chat.completions.create
    with pytest.raises(NotFoundError) as missing:
        create(**chat.body(model="no-such-model"))
    assert missing.value.code == "model_not_found"
    with pytest.raises(BadRequestError) as bad:
        create(**chat.body(max_tokens="many"))
    assert bad.value.param == "max_tokens"
    stranger = Tenant("nobody", "roomy")
    with pytest.raises(AuthenticationError) as unknown:
        stack.openai(stranger).chat.completions.create(**chat.body())
    assert unknown.value.code == "unknown_key"
    assert stack.upstream.requests == []
