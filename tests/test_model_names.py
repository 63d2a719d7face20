"""Spellings of a model's name: one bucket for one model, no bucket for what is not in the policy."""

import json

import pytest

from harness import chat
from harness.policy import Tenant
from harness.refusals import assert_refused
from harness.service import Bucket
from harness.stack import Stack

MESSAGES = json.dumps(chat.body()["messages"])
TOTAL = chat.usage_of(chat.body()).total
USAGE = chat.Usage(40, 2)


def body(spelling: str) -> bytes:
    """`spelling` is JSON text, escapes and all."""
    return f'{{"model":"{spelling}","max_tokens":50,"messages":{MESSAGES}}}'.encode("utf-8", "surrogatepass")


@pytest.mark.parametrize(
    ("spelling", "model"),
    [
        (spelling, "gpt-4o")
        for spelling in (
            "GPT-4O",
            "Gpt-4o",
            "  gpt-4o",
            "gpt-4o\\t\\n",
            "gpt\\u002d4o",
            "\\u0067pt-4o",
            "openai/gpt-4o",
            "OpenAI/GPT-4o",
            "azure/gpt-4o",
            "openrouter/openai/gpt-4o",
            "ft:gpt-4o:acme::x7",
            "ft:gpt-4o-2024-08-06:acme:suffix:x7",
            "FT:GPT-4o:acme::x7",
            "openai/ft:gpt-4o:acme::x7",
            " openai/gpt-4o ",
            "gpt-4o-2024-11-20",
            "house-model",
            "HOUSE-MODEL",
        )
    ]
    + [("gpt-4", "gpt-4"), ("ft:gpt-4:acme::x", "gpt-4"), ("o3", "o3"), ("O3", "o3"), ("openai/o3", "o3")],
)
def test_one_bucket_for_all_names_of_a_model(stack: Stack, tenant: Tenant, spelling: str, model: str) -> None:
    stack.upstream.handler = chat.raw_json(chat.completion("x", USAGE))
    response = stack.post([tenant.bearer], body(spelling))
    assert response.status == 200, response.body
    assert stack.upstream.only_request().body == body(spelling), "the provider gets the name as it was given"
    stack.settles_to(tenant, USAGE.total, requests=1, model=model)
    others = {"gpt-4o", "gpt-4", "o3"} - {model}
    assert {stack.service.bucket(tenant.name, other) for other in others} == {Bucket(0, 0)}


UNKNOWN = [
    "gpt-4-turbo",
    "gpt-4o-mini",
    "gpt-4.1",
    "gpt4o",
    "gpt-4 o",
    "gpt-4o\\u0000",
    "\\u0000gpt-4o",
    "gpt\u20114o",
    "ｇｐｔ-4o",
    "gpt-4\u043e",
    "gpt-4o\u200b",
    "\\ud800gpt-4o",
    "*",
    "gpt-*",
    "gpt-4o*",
    "?",
    "",
    " ",
    "/",
    "openai/",
    "gpt-4o/",
    "/gpt-4o/x",
    "ft:",
    "ft::acme",
    "..",
    "gpt-4o,o3",
    "o3-mini",
    "o",
    "tenant:model",
]


@pytest.mark.parametrize("spelling", UNKNOWN, ids=ascii)
def test_what_is_no_name_of_a_model_is_refused(stack: Stack, tenant: Tenant, spelling: str) -> None:
    response = stack.post([tenant.bearer], body(spelling))
    assert_refused(response, 404, "invalid_request_error", "model_not_found", param="model")
    assert stack.upstream.requests == []
    assert {stack.service.bucket(tenant.name, model) for model in ("gpt-4o", "gpt-4", "o3")} == {Bucket(0, 0)}


def test_a_plan_without_the_model_refuses_every_spelling(stack: Stack) -> None:
    tenant = stack.tenant("narrow")
    for spelling in ("gpt-4o", "GPT-4O", "openai/gpt-4o", "ft:gpt-4o:acme::x", "house-model"):
        response = stack.post([tenant.bearer], body(spelling))
        assert_refused(response, 403, "permission_error", "model_not_allowed", param="model")
    assert stack.upstream.requests == []


def test_a_limit_is_one_for_all_spellings(stack: Stack) -> None:
    tenant = stack.tenant("one-request")
    assert stack.post([tenant.bearer], body("gpt-4o")).status == 200
    for spelling in ("GPT-4o", " gpt-4o", "openai/gpt-4o", "ft:gpt-4o:acme::x", "gpt-4o-2024-08-06", "house-model"):
        response = stack.post([tenant.bearer], body(spelling))
        assert_refused(response, 429, "rate_limit_error", "rpm_limit_exceeded")


def test_a_name_that_the_client_made_up_is_in_no_metric(stack: Stack, tenant: Tenant) -> None:
    """Nor in a log, which is looked at after every test."""
    for spelling in (f"{chat.CANARY}-1", f"openai/{chat.CANARY}", f"ft:gpt-4o:{chat.CANARY}::x"):
        stack.post([tenant.bearer], body(spelling))
    assert stack.envoy.stats(chat.CANARY) == {}
