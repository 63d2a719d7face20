"""What is written into a request: the limit that was granted, the model's default, or nothing."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from harness import chat
from harness.http1 import Response
from harness.oracle import oracle
from harness.policy import Plan, Policy, Tenant
from harness.refusals import assert_refused
from harness.stack import Stack, running

PROMPT = oracle().prompt(chat.body()["messages"])
MISSING = ("hold_default", "write_default", "hold_max", "refuse")
# Room for the prompt and 100 tokens.
TIGHT = PROMPT + 100


def models_of_every_kind(document: dict[str, Any]) -> None:
    shape = {"tokenizer": "o200k_base", "max_output_tokens": 1000, "default_output_tokens": 200}
    document["models"] += [
        {"name": missing, "match": [missing.replace("_", "-")], **shape, "output_limit": {"missing": missing}}
        for missing in MISSING
    ]
    document["models"].append({"name": "thinker", "match": ["thinker"], **shape, "reasoning": True})
    document["models"][-1]["output_limit"] = {"missing": "write_default"}
    document["unknown_model"] = {"as": "hold_max"}
    document["plans"]["clamped"]["output"] = {"when_tight": "clamp", "min_tokens": 40}


@pytest.fixture(scope="module")
def shared_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    plans = {"roomy": Plan(), "clamped": Plan(tokens=TIGHT), "tight": Plan(tokens=TIGHT)}
    policy = Policy(plans, models_of_every_kind)
    with running(tmp_path_factory.mktemp("stack"), policy=policy) as stack:
        yield stack


def body_without_limit(model: str = "gpt-4o", **members: Any) -> dict[str, Any]:
    body = chat.body(model=model, **members)
    del body["max_tokens"]
    return body


def ask(stack: Stack, tenant: Tenant, body: dict[str, Any]) -> Response:
    return stack.post([tenant.bearer], body)


def arrived(stack: Stack) -> bytes:
    seen = stack.upstream.only_request()
    assert seen.header("content-length") in (None, str(len(seen.body)))
    return seen.body


@pytest.mark.parametrize(
    ("model", "held", "added"),
    [
        ("hold-default", 200, b""),
        ("write-default", 200, b'"max_tokens":200,'),
        ("hold-max", 1000, b""),
        ("thinker", 200, b'"max_completion_tokens":200,'),
    ],
)
def test_a_missing_limit(stack: Stack, tenant: Tenant, model: str, held: int, added: bytes) -> None:
    name = model.replace("-", "_")
    gate = stack.upstream.gate()
    stack.upstream.handler = chat.answer(gate=gate)
    connection = stack.open(tenant, body_without_limit(model))
    stack.holds(tenant, PROMPT + held, name)
    gate.open()
    assert connection.response().status == 200
    connection.close()
    assert arrived(stack) == chat.encode(body_without_limit(model)).replace(b"{", b"{" + added, 1)
    stack.settles_to(tenant, chat.usage_of(chat.body()).total, 1, name)


def test_a_missing_limit_can_be_refused(stack: Stack, tenant: Tenant) -> None:
    response = ask(stack, tenant, body_without_limit("refuse"))
    assert_refused(response, 400, "invalid_request_error", "invalid_request", "max_completion_tokens")
    assert stack.upstream.requests == []
    assert ask(stack, tenant, chat.body(model="refuse")).status == 200


def test_a_null_is_replaced_in_its_place(stack: Stack, tenant: Tenant) -> None:
    body = {**body_without_limit("write-default"), "max_tokens": None}
    assert ask(stack, tenant, body).status == 200
    assert arrived(stack) == chat.encode({**body, "max_tokens": 200})


def test_what_does_not_fit_is_clamped(stack: Stack) -> None:
    tenant = stack.tenant("clamped")
    gate = stack.upstream.gate()
    stack.upstream.handler = chat.answer(gate=gate)
    connection = stack.open(tenant, chat.body(max_tokens=500))
    stack.holds(tenant, TIGHT)
    gate.open()
    response = connection.response()
    connection.close()
    assert (response.status, response.header("x-ratelimit-remaining-tokens")) == (200, "0")
    assert json.loads(arrived(stack))["max_tokens"] == 100
    stack.settles_to(tenant, chat.usage_of(chat.body()).total, 1)


def test_also_a_limit_that_nobody_gave(stack: Stack) -> None:
    tenant = stack.tenant("clamped")
    assert ask(stack, tenant, body_without_limit()).status == 200
    assert arrived(stack) == chat.encode(body_without_limit()).replace(b"{", b'{"max_tokens":100,', 1)


def test_a_streamed_and_clamped_request_is_edited_twice(stack: Stack) -> None:
    tenant = stack.tenant("clamped")
    body = body_without_limit(stream=True)
    assert ask(stack, tenant, body).status == 200
    seen = json.loads(arrived(stack))
    assert (seen["max_tokens"], seen["stream_options"]) == (100, {"include_usage": True})


def test_below_the_least_that_is_worth_it_nothing_is_clamped(stack: Stack) -> None:
    tenant = stack.tenant("clamped")
    with stack.in_flight(tenant, max_tokens=70):
        refused = ask(stack, tenant, chat.body(max_tokens=90))
    assert_refused(refused, 429, "rate_limit_error", "tpm_limit_exceeded")


def test_a_plan_that_does_not_clamp_refuses(stack: Stack) -> None:
    refused = ask(stack, stack.tenant("tight"), chat.body(max_tokens=500))
    assert_refused(refused, 429, "rate_limit_error", "request_exceeds_limit")
    assert stack.upstream.requests == []


def test_an_unknown_model_is_counted_as_the_one_that_stands_in(stack: Stack, tenant: Tenant) -> None:
    """Its maximum is written, and its bucket is charged; the name that the provider gets is the client's."""
    assert ask(stack, tenant, chat.body(model="never-heard-of", max_tokens=5000)).status == 200
    seen = json.loads(arrived(stack))
    assert (seen["model"], seen["max_tokens"]) == ("never-heard-of", 1000)
    stack.settles_to(tenant, chat.usage_of(chat.body()).total, 1, "hold_max")
