"""Requests the gate must not guess about: each gets its answer, reaches nobody, costs nothing, traps nothing."""

import json
from typing import Any

import pytest

from harness import chat, http1
from harness.policy import Tenant
from harness.refusals import assert_refused
from harness.service import Bucket
from harness.stack import Stack

MESSAGES = json.dumps(chat.body()["messages"])


def raw(members: str) -> bytes:
    """A request whose JSON is written out, for what `json.dumps` would not write."""
    return b'{"model":"gpt-4o","messages":%s,%s}' % (MESSAGES.encode(), members.encode())


def assert_nothing_happened(stack: Stack, tenant: Tenant) -> None:
    assert stack.upstream.requests == [], "the refused request reached the upstream"
    assert stack.service.bucket(tenant.name) == Bucket(0, 0)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no json",
        b'{"model":"gpt-4o",',
        b'{"model":"gpt-4o"} {}',
        b"[]",
        b'"text"',
        b"null",
        b'{"model":"gpt-4o","messages":[{"role":"user","content":"\xff\xfe"}]}',
        b"[" * 100_000,
        b'{"model":"gpt-4o","messages":' + b'[{"a":' * 100_000,
    ],
    ids=["empty", "text", "cut", "two values", "array", "string", "null", "not UTF-8", "deep array", "deep messages"],
)
def test_not_a_json_object(stack: Stack, tenant: Tenant, body: bytes) -> None:
    assert_refused(stack.post([tenant.bearer], body), 400, "invalid_request_error", None)
    assert_nothing_happened(stack, tenant)


@pytest.mark.parametrize("messages", [None, "hello", {}, 7, True], ids=repr)
def test_messages_of_another_type(stack: Stack, tenant: Tenant, messages: Any) -> None:
    response = stack.ask(tenant, messages=messages)
    assert_refused(response, 400, "invalid_request_error", None, param="messages")
    assert_nothing_happened(stack, tenant)


@pytest.mark.parametrize("message", ["hello", None, [], 7], ids=repr)
def test_a_message_of_another_type(stack: Stack, tenant: Tenant, message: Any) -> None:
    response = stack.ask(tenant, messages=[message])
    assert response.status == 400
    # Naming the element as well is as good.
    assert response.error()["param"].startswith("messages")
    assert_nothing_happened(stack, tenant)


@pytest.mark.parametrize(
    ("body", "param"),
    [(b"{}", "model"), (b'{"messages":[]}', "model"), (b'{"model":"gpt-4o","messages":null}', "messages")],
)
def test_a_member_that_is_not_there(stack: Stack, tenant: Tenant, body: bytes, param: str) -> None:
    assert_refused(stack.post([tenant.bearer], body), 400, "invalid_request_error", None, param=param)
    assert_nothing_happened(stack, tenant)


@pytest.mark.parametrize("messages", [[], [{"role": "user", "content": ""}], [{}]], ids=repr)
def test_an_empty_model_with_an_empty_prompt(stack: Stack, tenant: Tenant, messages: list[Any]) -> None:
    response = stack.ask(tenant, model="", messages=messages)
    assert_refused(response, 404, "invalid_request_error", "model_not_found", param="model")
    assert_nothing_happened(stack, tenant)


def test_no_messages(stack: Stack, tenant: Tenant) -> None:
    response = stack.post([tenant.bearer], {"model": "gpt-4o"})
    assert_refused(response, 400, "invalid_request_error", None, param="messages")
    assert_nothing_happened(stack, tenant)


@pytest.mark.parametrize("model", ["null", "7", "[]", "{}", "true"])
def test_model_of_another_type(stack: Stack, tenant: Tenant, model: str) -> None:
    body = b'{"model":%s,"messages":%s}' % (model.encode(), MESSAGES.encode())
    assert_refused(stack.post([tenant.bearer], body), 400, "invalid_request_error", None, param="model")
    assert_nothing_happened(stack, tenant)


BAD_LIMITS = ["-2", "-1.5", "-1e400", "0", "100.5", '"100"', "true", "[]", "{}"]


@pytest.mark.parametrize("member", ["max_tokens", "max_completion_tokens", "n_predict"])
@pytest.mark.parametrize("value", BAD_LIMITS)
def test_output_limit_of_another_type_or_out_of_range(stack: Stack, tenant: Tenant, member: str, value: str) -> None:
    response = stack.post([tenant.bearer], raw(f'"{member}":{value}'))
    assert_refused(response, 400, "invalid_request_error", None, param=member)
    assert_nothing_happened(stack, tenant)


@pytest.mark.parametrize(
    ("member", "value"),
    [("n", value) for value in ("0", "129", "1e9", "-1", '"3"', "1.5", "true", "[]")]
    + [("stream", value) for value in ('"yes"', '"true"', "1", "0", "[]", "{}")]
    + [("stream_options", value) for value in ('"x"', "[]", "true")],
)
def test_members_of_another_type(stack: Stack, tenant: Tenant, member: str, value: str) -> None:
    members = f'"{member}":{value}' if member == "stream" else f'"stream":true,"{member}":{value}'
    response = stack.post([tenant.bearer], raw(members))
    assert_refused(response, 400, "invalid_request_error", None, param=member)
    assert_nothing_happened(stack, tenant)


@pytest.mark.parametrize(
    ("member", "twice"),
    [
        ("max_tokens", '"max_tokens":5,"max_tokens":500'),
        ("max_tokens", '"max_tokens":5,"max\\u005ftokens":500'),
        ("max_completion_tokens", '"max_completion_tokens":5,"max_completion_tokens":5'),
        ("n", '"n":1,"n":9'),
        ("stream", '"stream":false,"stream":true'),
        ("model", '"model":"gpt-4"'),
        ("model", '"\\u006dodel":"gpt-4"'),
        ("messages", '"messages":[]'),
        ("stream_options", '"stream":true,"stream_options":{},"stream_options":{"include_usage":false}'),
    ],
)
def test_a_member_given_twice(stack: Stack, tenant: Tenant, member: str, twice: str) -> None:
    assert_refused(stack.post([tenant.bearer], raw(twice)), 400, "invalid_request_error", None, param=member)
    assert_nothing_happened(stack, tenant)


@pytest.mark.parametrize("model", ["no-such-model", "", "gpt-4o\u0000", "m" * 70_000])
def test_unknown_model(stack: Stack, tenant: Tenant, model: str) -> None:
    response = stack.ask(tenant, model=model)
    assert_refused(response, 404, "invalid_request_error", "model_not_found", param="model")
    assert_nothing_happened(stack, tenant)


def test_model_that_the_plan_does_not_have(stack: Stack) -> None:
    tenant = stack.tenant("narrow")
    assert_refused(stack.ask(tenant), 403, "permission_error", "model_not_allowed", param="model")
    assert_nothing_happened(stack, tenant)


VALUE = b"\xff\xfe \xc0\xa7"


@pytest.mark.parametrize("name", ["user-agent", "x-forwarded-for", "x-anything", "accept"])
def test_a_header_value_that_is_not_utf8_is_passed_on(stack: Stack, tenant: Tenant, name: str) -> None:
    request = http1.encode("POST", chat.PATH, [tenant.bearer, (name, VALUE)], chat.encode(chat.body()))
    client = http1.Connection(stack.envoy.port)
    client.send(request)
    assert client.response().status == 200
    client.close()
    # Envoy itself extends x-forwarded-for.
    assert VALUE.decode("latin-1") in (stack.upstream.only_request().header(name) or "")


def test_an_answer_with_a_header_value_that_is_not_utf8(stack: Stack, tenant: Tenant) -> None:
    usage = chat.usage_of(chat.body())

    async def handler(exchange: Any) -> None:
        await exchange.reply(200, chat.completion(chat.DELTAS, usage), [("x-odd", VALUE), ("content-type", VALUE)])

    stack.upstream.handler = handler
    answer = stack.ask(tenant)
    assert (answer.status, answer.header("x-odd")) == (200, VALUE.decode("latin-1"))
    stack.settles_to(tenant, usage.total, requests=1)


def test_a_connection_serves_on_after_refusals(stack: Stack, tenant: Tenant) -> None:
    """Not after a 400: Envoy itself closes HTTP/1.1 connections after any local 400, and says so."""
    unknown, never = chat.body(model="none"), chat.body()
    client = http1.Connection(stack.envoy.port)
    for caller, body, status in ((tenant, unknown, 404), (stack.tenant("tiny"), never, 429)) * 2:
        client.send(http1.encode("POST", chat.PATH, [caller.bearer], chat.encode(body)))
        assert client.response().status == status
    client.send(http1.encode("POST", chat.PATH, [tenant.bearer], chat.encode(chat.body())))
    assert client.response().status == 200
    client.close()
    stack.settles_to(tenant, chat.usage_of(chat.body()).total, requests=1)


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, zstd", "unheard-of"])
def test_a_body_in_a_coding_that_cannot_be_read(stack: Stack, tenant: Tenant, coding: str) -> None:
    response = stack.post([tenant.bearer, ("content-encoding", coding)], chat.body())
    assert response.status == 415
    assert response.error()["type"] == "invalid_request_error"
    assert_nothing_happened(stack, tenant)


def test_a_long_run_of_white_space_is_counted(stack: Stack, tenant: Tenant) -> None:
    """About 1 MB of it makes tiktoken-rs panic when handed over whole, here and in the oracle."""
    usage = chat.Usage(prompt=11_000, completion=1)
    stack.upstream.handler = chat.raw_json(chat.completion("x", usage))
    response = stack.ask(tenant, messages=[{"role": "user", "content": " " * 1_500_000}])
    assert response.status == 200
    stack.settles_to(tenant, usage.total, requests=1)
