"""What Envoy's access log tells of a request: decision, model, tokens, reservation and account as text."""

from collections.abc import Iterator
from typing import Any

import pytest

from harness import chat, http1
from harness.http1 import Response
from harness.policy import Tenant
from harness.stack import Stack, running
from harness.wait import eventually

FIELDS = (
    "decision", "model", "prompt_tokens", "output_tokens", "cached_tokens", "outcome", "reservation", "account",
)  # fmt: skip


@pytest.fixture(scope="module")
def shared_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(tmp_path_factory.mktemp("access-log"), {"paths": {"preflight": "pass"}}) as stack:
        yield stack


def logged(stack: Stack, response: Response) -> dict[str, Any]:
    """Our fields of the request's one entry; those that were not set are left out, as Envoy's `-` is."""
    [entry] = stack.envoy.logged(response)
    return {name: entry[name] for name in FIELDS if entry[name] not in (None, "-")}


@pytest.mark.parametrize("stream", [False, True])
def test_a_settled_request(stack: Stack, tenant: Tenant, stream: bool) -> None:
    entry = logged(stack, stack.ask(tenant, model="openai/house-model", stream=stream))
    usage = chat.usage_of(chat.body())
    reservation, account = entry.pop("reservation"), entry.pop("account")
    assert len(reservation) == 32 and len(account) == 16
    assert entry == {
        "decision": "admitted",
        "model": "gpt-4o",
        "prompt_tokens": str(usage.prompt),
        "output_tokens": str(usage.completion),
        "cached_tokens": "0",
        "outcome": "used",
    }


def test_cached_and_reasoning_tokens(stack: Stack, tenant: Tenant) -> None:
    usage = {"prompt_tokens": 30, "completion_tokens": 12, "prompt_tokens_details": {"cached_tokens": 20},
             "completion_tokens_details": {"reasoning_tokens": 10}}
    stack.upstream.handler = chat.raw_json(chat.encode({"choices": [], "usage": usage}))
    entry = logged(stack, stack.ask(tenant))
    assert (entry["prompt_tokens"], entry["cached_tokens"], entry["output_tokens"]) == ("30", "20", "12")


def test_two_requests_of_a_tenant_share_the_account_only(stack: Stack, tenant: Tenant) -> None:
    one, other = (logged(stack, stack.ask(tenant)) for _ in range(2))
    assert one["account"] == other["account"]
    assert one["reservation"] != other["reservation"]


def test_a_refusal_by_a_limit(stack: Stack) -> None:
    entry = logged(stack, stack.ask(stack.tenant("tiny")))
    assert entry.pop("reservation")
    prompt = str(chat.usage_of(chat.body()).prompt)
    assert entry == {"decision": "request_exceeds_limit", "model": "gpt-4o", "prompt_tokens": prompt}


def test_a_refusal_of_the_body(stack: Stack, tenant: Tenant) -> None:
    assert logged(stack, stack.post([tenant.bearer], b"{}")) == {"decision": "invalid_request"}


def test_a_client_cannot_write_the_model(stack: Stack, tenant: Tenant) -> None:
    response = stack.ask(tenant, model="zebra-2000")
    entry = logged(stack, response)
    assert (entry["decision"], entry["model"]) == ("model_not_found", "unlisted")
    assert "zebra-2000" not in stack.envoy.output()


def test_an_endpoint_without_tokens(stack: Stack, tenant: Tenant) -> None:
    stack.upstream.handler = chat.raw_json(b"{}")
    entry = logged(stack, http1.request(stack.envoy.port, "GET", "/v1/models", [tenant.bearer]))
    assert (entry["decision"], entry["model"], entry["outcome"]) == ("admitted", "none", "released")


def test_what_is_not_ours_has_no_fields(stack: Stack) -> None:
    preflight = [("origin", "https://example.com"), ("access-control-request-method", "POST")]
    assert logged(stack, http1.request(stack.envoy.port, "OPTIONS", chat.PATH, preflight)) == {}


def test_a_client_that_leaves(stack: Stack, tenant: Tenant) -> None:
    gate = stack.upstream.gate()
    stack.upstream.handler = chat.answer(gate=gate)
    connection = stack.open(tenant, chat.body(stream=True), ("x-request-id", "one-that-leaves"))
    gate.reached(1)
    connection.close()
    gate.open()

    def entries() -> list[dict[str, Any]]:
        return [entry for entry in stack.envoy.access_log() if entry["flags"] == "DC"]

    [entry] = eventually(entries, lambda found: len(found) == 1)
    assert (entry["decision"], entry["model"], entry["outcome"]) == ("admitted", "gpt-4o", "estimated")
    assert entry["prompt_tokens"] == str(chat.usage_of(chat.body()).prompt)


def test_a_request_that_would_have_been_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    with running(tmp_path_factory.mktemp("observed"), plugin={"mode": "observe"}) as stack:
        entry = logged(stack, stack.ask(stack.tenant("tiny")))
        assert entry["decision"] == "observed:request_exceeds_limit"
        assert entry["outcome"] == "used"
        stack.upstream.handler = chat.raw_json(b"{}")
        entry = logged(stack, stack.post([stack.tenant().bearer], b"{}"))
        assert entry == {"decision": "observed:invalid_request"}
