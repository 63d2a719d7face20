"""What is checked is what is run: whatever another server could read in a request is refused, held for, or replaced."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from harness import chat
from harness.oracle import oracle
from harness.policy import Policy, Tenant
from harness.refusals import assert_refused
from harness.service import Bucket
from harness.stack import Stack, running

MESSAGES = [{"role": "user", "content": "hi"}]
PROMPT = oracle().prompt(MESSAGES)
USAGE = chat.Usage(40, 2)


def write_default(document: dict[str, Any]) -> None:
    shape = {"tokenizer": "o200k_base", "max_output_tokens": 1000, "default_output_tokens": 200}
    document["models"].append(
        {"name": "bounded", "match": ["bounded"], **shape, "output_limit": {"missing": "write_default"}}
    )


@pytest.fixture(scope="module")
def shared_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(tmp_path_factory.mktemp("checked"), policy=Policy(edit=write_default)) as stack:
        yield stack


def raw(members: str, messages: str = json.dumps(MESSAGES), model: str = "gpt-4o") -> bytes:
    comma = "," if members else ""
    return f'{{"model":"{model}","messages":{messages}{comma}{members}}}'.encode()


def held_for(stack: Stack, tenant: Tenant, body: bytes) -> tuple[int, bytes]:
    """What a request holds while it is under way, and what arrived of it."""
    gate = stack.upstream.gate()

    async def handler(exchange: Any) -> None:
        await gate.wait()
        await chat.raw_json(chat.completion("x", USAGE))(exchange)

    stack.upstream.handler = handler
    client = stack.open(tenant, body)
    try:
        gate.reached(1)
        held = stack.service.bucket(tenant.name)
        assert held.open_holds == 1
        gate.open()
        assert client.response().status == 200
    finally:
        gate.open()
        client.close()
    return held.tokens, stack.upstream.only_request().body


def refused(stack: Stack, tenant: Tenant, body: bytes, param: str, path: str = chat.PATH) -> None:
    response = stack.post([tenant.bearer], body, path)
    assert_refused(response, 400, "invalid_request_error", None, param=param)
    assert stack.upstream.requests == []
    assert stack.service.bucket(tenant.name) == Bucket(0, 0)


SPELLINGS = {
    "model": ('"Model":"gpt-4"', "model"),
    "escaped": ('"\\u004dodel":"gpt-4"', "model"),
    "limit": ('"max_tokens":1,"Max_Tokens":100000', "max_tokens"),
    "choices": ('"N":5', "n"),
    "long s": ('"\u017ftream":true', "stream"),
    "Kelvin": ('"max_to\u212aens":5', "max_tokens"),
    "Kelvin, escaped": ('"max_to\\u212aens":5', "max_tokens"),
    "inside": ('"stream":true,"stream_options":{"Include_Usage":false}', "stream_options.include_usage"),
    "other models": ('"Fallbacks":["gpt-4"]', "fallbacks"),
}


@pytest.mark.parametrize(("members", "param"), SPELLINGS.values(), ids=SPELLINGS)
def test_a_member_in_another_case_is_refused(stack: Stack, tenant: Tenant, members: str, param: str) -> None:
    refused(stack, tenant, raw(members), param)


INSIDE = {
    "message": ('{"role":"user","content":"hi","Content":"more"}', "messages.content"),
    "message, twice": ('{"role":"user","content":"hi","content":"more"}', "messages.content"),
    "part": ('{"content":[{"type":"text","text":"hi","Text":"more"}]}', "messages.content.text"),
    "image": (
        '{"content":[{"type":"image_url","image_url":{"url":"https://x/","detail":"low","detail":"high"}}]}',
        "messages.content.image_url.detail",
    ),
}


@pytest.mark.parametrize(("message", "param"), INSIDE.values(), ids=INSIDE)
def test_and_inside_of_a_message(stack: Stack, tenant: Tenant, message: str, param: str) -> None:
    refused(stack, tenant, raw("", f"[{message}]"), param)


@pytest.mark.parametrize(
    ("query", "param"), [("model=gpt-4", "model"), ("a=1&M%6fdel=x", "model"), ("max_tokens=5", "max_tokens")]
)
def test_a_member_in_the_query_is_refused(stack: Stack, tenant: Tenant, query: str, param: str) -> None:
    refused(stack, tenant, raw(""), param, f"{chat.PATH}?{query}")


LIMITS = {
    "n_predict": ('"max_tokens":5,"n_predict":700', 700),
    "max_new_tokens": ('"max_tokens":5,"max_new_tokens":700', 700),
    "min_tokens": ('"max_tokens":5,"min_tokens":700', 700),
    "above the most": ('"max_tokens":5,"n_predict":16000', 1000),
    "twenty digits": ('"max_tokens":99999999999999999999', 1000),
    "choices": ('"max_tokens":5,"n_cmpl":3', 15),
    "no limit": ('"max_tokens":-1', 200),
    "no limit, as a float": ('"max_completion_tokens":-1.0', 200),
}


@pytest.mark.parametrize(("members", "output"), LIMITS.values(), ids=LIMITS)
def test_every_name_of_the_output_limit_counts(stack: Stack, tenant: Tenant, members: str, output: int) -> None:
    held, arrived = held_for(stack, tenant, raw(members))
    assert held == PROMPT + output
    limits = [name for name in json.loads(arrived) if name in ("max_tokens", "n_predict", "max_new_tokens")]
    assert all(json.loads(arrived)[name] <= 1000 for name in limits)


@pytest.mark.parametrize(
    ("members", "written"),
    [
        ('"max_tokens":-1', '"max_tokens":200'),
        ('"n_predict":-1', '"n_predict":200'),
        ('"max_tokens":50,"n_predict":-1', '"max_tokens":50,"n_predict":50'),
        ('"max_tokens":null', '"max_tokens":200'),
    ],
)
def test_no_limit_is_replaced_where_one_is_written(stack: Stack, tenant: Tenant, members: str, written: str) -> None:
    assert stack.post([tenant.bearer], raw(members, model="bounded")).status == 200
    assert written.encode() in stack.upstream.only_request().body


def test_a_default_that_a_digest_forbids_to_write_is_refused(stack: Stack, tenant: Tenant) -> None:
    response = stack.post([tenant.bearer, ("digest", "any")], raw("", model="bounded"))
    assert_refused(response, 400, "invalid_request_error", None, param="max_tokens")
    assert stack.upstream.requests == []


WORDS = "word " * 3000
INPUT = {
    "input_ids": ('"input_ids":[%s]' % ",".join(["1"] * 5000), 5000, 5000),
    "documents": ('"documents":[{"text":"%s"}]' % WORDS, PROMPT + 3000, PROMPT + 3020),
    "chat_template": ('"chat_template":"%s"' % WORDS, PROMPT + 3000, PROMPT + 3005),
    "prediction": ('"prediction":{"type":"content","content":"%s"}' % WORDS, PROMPT + 3000, PROMPT + 3005),
    "data_sources": ('"data_sources":[{"type":"azure_search"}]', PROMPT + 6000, PROMPT + 6020),
    "unknown": ('"features":"%s"' % WORDS, PROMPT + 3000, PROMPT + 3010),
    "unknown and short": ('"features":"%s"' % ("word " * 40), PROMPT, PROMPT),
    "known and long": ('"metadata":{"a":"%s"}' % WORDS, PROMPT, PROMPT),
}


@pytest.mark.parametrize(("members", "least", "most"), INPUT.values(), ids=INPUT)
def test_members_that_bring_input_are_held_for(
    stack: Stack, tenant: Tenant, members: str, least: int, most: int
) -> None:
    held, _ = held_for(stack, tenant, raw(f'{members},"max_tokens":50'))
    assert least <= held - 50 <= most


BASE64 = "QUJDZGVm" * 40_000
FRAME = PROMPT - 1
PARTS = {
    "video_url": '{"type":"video_url","video_url":{"url":"data:video/mp4;base64,%s"}}' % BASE64,
    "document": '{"type":"document","source":{"type":"base64","data":"%s"}}' % BASE64,
    "image": '{"type":"image","source":{"type":"base64","data":"%s"}}' % BASE64,
    "unknown": '{"type":"odd","file_data":"%s"}' % BASE64,
    "escaped": '{"type":"odd","x":"data:image\\/png;base64,%s"}' % BASE64.replace("ZGVm", "\\/\\u002b"),
}


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_base64_is_never_text(stack: Stack, tenant: Tenant, part: str) -> None:
    held, _ = held_for(stack, tenant, raw('"max_tokens":50', '[{"role":"user","content":[%s]}]' % part))
    assert FRAME + 2000 <= held - 50 <= FRAME + 2020


def test_other_models_that_may_answer_are_told_to_the_service(stack: Stack, tenant: Tenant) -> None:
    held, _ = held_for(stack, tenant, raw('"models":["gpt-4o"],"fallbacks":[{"model":"o3"}]'))
    assert held >= PROMPT + 200
    too_many = ",".join(['"gpt-4"'] * 9)
    assert_refused(
        stack.post([tenant.bearer], raw(f'"models":[{too_many}]')), 400, "invalid_request_error", None, param="models"
    )


@pytest.mark.parametrize("members", ['"models":["gpt-4o"]', '"fallbacks":[{"model":"gpt-4o"}]', '"fallbacks":["o3"]'])
def test_a_model_that_the_plan_does_not_have_is_none_to_fall_back_to(stack: Stack, members: str) -> None:
    tenant = stack.tenant("narrow")
    response = stack.post([tenant.bearer], raw(members, model="gpt-4"))
    assert_refused(response, 403, "permission_error", "model_not_allowed", param="model")
    assert stack.upstream.requests == []


def test_a_body_is_called_what_it_was_read_as(stack: Stack, tenant: Tenant) -> None:
    client = stack.open(tenant, raw('"max_tokens":5'), ("content-type", "text/plain"))
    assert client.response().status == 200
    client.close()
    assert stack.upstream.only_request().all("content-type") == ["application/json"]


def test_what_is_not_for_the_provider_does_not_reach_it(stack: Stack, tenant: Tenant) -> None:
    names = ["openai-organization", "openai-project", "cookie", "proxy-authorization", "x-original-url"]
    names += ["x-rewrite-url", "x-http-method-override", "x-http-method", "x-method-override"]
    client = stack.open(tenant, raw('"max_tokens":5'), *((name, "x") for name in names), ("openai-beta", "x"))
    assert client.response().status == 200
    client.close()
    seen = stack.upstream.only_request()
    assert [name for name in names if seen.header(name) is not None] == []
    assert seen.header("openai-beta") == "x"
