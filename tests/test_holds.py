"""What is held while a request is under way: prompt as counted, and the output limit times the choices."""

from typing import Any

import pytest

from harness import chat
from harness.oracle import oracle
from harness.policy import Tenant
from harness.stack import Stack
from harness.upstream import Exchange
from harness.wait import eventually


@pytest.mark.parametrize(
    ("members", "output"),
    [
        ({"max_tokens": 50}, 50),
        ({"max_tokens": 100.0}, 100),
        ({"max_tokens": None, "max_completion_tokens": 70}, 70),
        ({"max_tokens": 50, "max_completion_tokens": 70}, 70),
        ({"max_tokens": None}, 200),
        ({"max_tokens": None, "model": "gpt-4"}, 100),
        ({"max_tokens": 1000}, 1000),
        ({"max_tokens": 999_999}, 1000),
        ({"max_tokens": 10**18}, 1000),
        ({"max_tokens": 999_999, "model": "gpt-4"}, 800),
        ({"max_tokens": 50, "n": 3}, 150),
        ({"max_tokens": 50, "n": None}, 50),
        ({"max_tokens": 50, "n": 128}, 6400),
        ({"max_tokens": None, "n": 2}, 400),
        ({"max_tokens": 50, "stream": True}, 50),
    ],
    ids=repr,
)
def test_the_output_part(stack: Stack, tenant: Tenant, members: dict[str, Any], output: int) -> None:
    body = chat.body(**members)
    prompt = oracle().prompt(body["messages"], body["model"])
    with stack.in_flight(tenant, **members):
        stack.holds(tenant, prompt + output, body["model"])
    stack.settles_to(tenant, chat.usage_of(body).total, requests=1, model=body["model"])


def message(content: str, role: str = "user", **members: str) -> dict[str, str]:
    return {"role": role, "content": content, **members}


PROMPTS: dict[str, list[dict[str, str]]] = {
    "empty": [message("")],
    "no messages": [],
    "named": [message("hi", name="alice")],
    "system": [message("You are terse.", role="system"), message("hi")],
    "Chinese": [message("你好世界")],
    "emoji": [message("\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 héllo")],
    "a hundred specials": [message("<|endoftext|>" * 100)],
    "special": [message("<|endoftext|><|im_start|>system<|im_end|>")],
    "escapes": [message('tab\t quote" back\\slash nul\u0000 line\u2028')],
    "code": [message("def f(x):\n    return {'a': x ** 2}\n\n\n# done   \r\n")],
    "conversation": [message(f"turn {i}", role="user" if i % 2 else "assistant") for i in range(40)],
    # Longer than one piece of 32 KiB, with breaks where it may be cut.
    "long": [message("The quick brown fox, naïve as ever, jumps over 12345 lazy dogs.\n" * 3000)],
    "long Chinese": [message("今天天气很好, today 我们去公园散步吧。\n" * 4000)],
}
PIECE = 32 << 10


@pytest.mark.parametrize("model", ["gpt-4o", "gpt-4"])
@pytest.mark.parametrize("messages", PROMPTS.values(), ids=PROMPTS)
def test_the_prompt_part(stack: Stack, tenant: Tenant, messages: list[dict[str, str]], model: str) -> None:
    with stack.in_flight(tenant, messages=messages, model=model):
        stack.holds(tenant, oracle().prompt(messages, model) + 50, model)


@pytest.mark.parametrize("unit", ["今天天气很好，我们去公园散步吧。", "a", " ", "\n", "1", "的"])
def test_a_prompt_without_a_break_is_exact_too(stack: Stack, tenant: Tenant, unit: str) -> None:
    messages = [message(unit * (5 * PIECE // len(unit.encode())))]
    with stack.in_flight(tenant, messages=messages):
        stack.holds(tenant, oracle().prompt(messages) + 50)


@pytest.mark.parametrize("model", ["gpt-4o-2024-08-06", "house-model", "GPT-4o", " gpt-4o ", "openai/gpt-4o"])
def test_names_of_one_model_share_its_bucket(stack: Stack, tenant: Tenant, model: str) -> None:
    with stack.in_flight(tenant, model=model):
        stack.holds(tenant, oracle().prompt(chat.body()["messages"]) + 50)
    assert stack.upstream.only_request().json()["model"] == model, "the name itself is the provider's to resolve"
    stack.settles_to(tenant, chat.usage_of(chat.body()).total, requests=1)


def test_two_models_do_not_share_a_bucket(stack: Stack, tenant: Tenant) -> None:
    assert stack.ask(tenant, model="gpt-4o").status == 200
    assert stack.ask(tenant, model="gpt-4").status == 200
    stack.settles_to(tenant, chat.usage_of(chat.body(model="gpt-4o")).total, requests=1, model="gpt-4o")
    stack.settles_to(tenant, chat.usage_of(chat.body(model="gpt-4")).total, requests=1, model="gpt-4")


def test_usage_above_the_hold_is_charged_in_full(stack: Stack, tenant: Tenant) -> None:
    usage = chat.Usage(prompt=4000, completion=5000)
    stack.upstream.handler = chat.raw_json(chat.completion(chat.DELTAS, usage))
    assert stack.ask(tenant).status == 200
    stack.settles_to(tenant, 9000, requests=1)


def test_a_refused_request_holds_nothing(stack: Stack) -> None:
    tenant = stack.tenant("small")
    prompt = oracle().prompt(chat.body()["messages"])
    with stack.in_flight(tenant, max_tokens=900):
        held = stack.ask(tenant, max_tokens=900)
        assert (held.status, held.error()["code"]) == (429, "tpm_limit_exceeded")
        # The request count is given back with it: all or nothing.
        stack.holds(tenant, prompt + 900)


# Long runs without a break, on which a byte-pair merge can take for ever. Counts by tiktoken.
RUNS = {
    "a": ("a" * 1_000_000, "gpt-4o", 125_000),
    "a, by the older encoding": ("a" * 1_000_000, "gpt-4", 125_000),
    "of Chinese": ("的" * 100_000, "gpt-4o", 100_000),
    "of emoji": ("🙂" * 100_000, "gpt-4", 200_000),
}


@pytest.mark.parametrize(("text", "model", "count"), RUNS.values(), ids=RUNS)
def test_a_long_run(stack: Stack, tenant: Tenant, text: str, model: str, count: int) -> None:
    framing = oracle().prompt([message("")], model) + 50
    usage = chat.Usage(count, 1)
    gate = stack.upstream.gate()

    async def handler(exchange: Exchange) -> None:
        await gate.wait()
        await chat.raw_json(chat.completion("x", usage))(exchange)

    # The oracle itself would take for ever.
    stack.upstream.handler = handler
    client = stack.open(tenant, chat.body(messages=[message(text)], model=model))
    gate.reached(1)
    held = eventually(lambda: stack.service.bucket(tenant.name, model), lambda bucket: bucket.open_holds == 1)
    assert abs(held.tokens - framing - count) <= len(text.encode()) // PIECE + 1
    gate.open()
    assert client.response().status == 200
    client.close()
    stack.settles_to(tenant, usage.total, requests=1, model=model)
